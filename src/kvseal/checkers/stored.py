# SPDX-License-Identifier: Apache-2.0
"""Is a stored result.json what its own spec and history give?

The result is only a view of the history, so it can be made again from it. One
that differs was written by something else than the judge, and fails.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kvseal.checkers.compare import Judgement, judge
from kvseal.checkers.reasons import Reason, reason
from kvseal.records.history import History
from kvseal.records.result import assemble
from kvseal.spec.runspec import RunSpec
from kvseal.verdict import merge


def judge_again(
    spec: RunSpec, history: History, stored: Mapping[str, Any] | None
) -> tuple[Judgement, dict[str, Any]]:
    """Return the judgement, with `stored` among what is judged, and the result made anew.

    `stored` is result.json, None when there is none. The result made anew is
    what result.json should be and knows nothing of what is there.
    """
    judgement = judge(spec, history)
    anew: dict[str, Any] = json.loads(json.dumps(assemble(spec, history, judgement.to_json())))
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
    if found:
        reasons = (*judgement.reasons, *found)
        judgement = replace(
            judgement,
            reasons=reasons,
            verdict=merge(entry.verdict for entry in reasons),
        )
    return judgement, anew
