# SPDX-License-Identifier: Apache-2.0
"""Is a stored result.json what its own spec and history give?

The result is only a view of the history, so it can be made again from it. One
that differs was written by something else than the judge, and fails.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kvseal.checkers.matrix.document import judge
from kvseal.checkers.matrix.plan import Spec
from kvseal.checkers.matrix.reasons import Reason, reason
from kvseal.records.history import History
from kvseal.verdict import Verdict, merge


def judge_again(spec: Spec, history: History, stored: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the result made anew, with what is wrong with `stored` among its reasons.

    `stored` is result.json, None when there is none.
    """
    anew: dict[str, Any] = json.loads(json.dumps(judge(spec, history)))
    found: list[Reason] = []
    if stored is None:
        found.append(reason("result.missing"))
    elif stored != anew:
        names = sorted(
            name
            for name in set(stored) | set(anew)
            if name not in stored or name not in anew or stored[name] != anew[name]
        )
        found.append(reason("result.differs", fields=", ".join(names)))
    if not found:
        return anew
    verdicts = [Verdict(anew["verdict"]), *(entry.outcome.verdict for entry in found)]
    return anew | {
        "verdict": merge(verdicts).value,
        "reasons": [*anew["reasons"], *(entry.to_json() for entry in found)],
    }
