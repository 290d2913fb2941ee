# SPDX-License-Identifier: Apache-2.0
"""Short names for what a step must come to, and why some rows don't run everywhere."""

from __future__ import annotations

from kvseal.workload.matrix.case import Required

HIT, MISS, REFUSED, SEEN = Required.HIT, Required.MISS, Required.REFUSED, Required.SEEN

NO_ENGINE = "without an engine nothing is computed, and LMCache's own engine knows no salt"
ONLY_TEXT = (
    "the text of a variant is all that differs, and no other backend or restart looks into it"
)
PLACE = "it is about this part of the server, whatever else was restarted"
