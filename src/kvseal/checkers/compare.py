# SPDX-License-Identifier: Apache-2.0
"""Judge a comparison run: may its figures be read as baseline against SnapKV?

The worry: an answer of the SnapKV arm that came from ordinary KV, from a
recomputation, or from another request's cache looks like any other answer, and
would be counted as SnapKV's accuracy and speed. So PASS asks that every prompt
was answered in both arms, that each arm began with a cache counted as empty,
that both the LMCache server and vLLM saw exactly the hits that had to happen,
and that transformers, decoding from the same compacted cache, gives the same
token IDs. How many answers are right is the measurement and moves no verdict.

`judge` reads the spec and the history and nothing else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kvseal.checkers import statistics
from kvseal.checkers.evidence import sort_evidence
from kvseal.checkers.prompt_checks import check_prompt
from kvseal.checkers.reasons import Reason
from kvseal.checkers.run_checks import check_run
from kvseal.checkers.summary import Row, arm_summary, comparison, datasets, make_rows
from kvseal.records.events import ARMS
from kvseal.records.history import History
from kvseal.spec.runspec import RunSpec
from kvseal.verdict import Verdict, merge


@dataclass(frozen=True)
class Judgement:
    """A verdict, every reason for it, a row for each prompt, and the figures."""

    verdict: Verdict
    reasons: tuple[Reason, ...]
    rows: tuple[Row, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the part of result.json that is judged (kvseal.records.result)."""
        return {
            "verdict": self.verdict.value,
            "reasons": [reason.to_json() for reason in self.reasons],
            **{arm: arm_summary(self.rows, arm) for arm in ARMS},
            "comparison": {
                **comparison(self.rows),
                "confidence_percent": statistics.CONFIDENCE_PERCENT,
                "resamples": statistics.RESAMPLES,
                "seed": statistics.SEED,
            },
            "datasets": datasets(self.rows),
            "prompts": [row.to_json() for row in self.rows],
        }


def judge(spec: RunSpec, history: History) -> Judgement:
    """Return the judgement of `history` as a run of `spec`."""
    evidence = sort_evidence(history)
    reasons = list(check_run(spec, evidence))
    for index in sorted(evidence.prompts):
        reasons += check_prompt(spec, evidence, index)
    about: dict[int, list[Reason]] = defaultdict(list)
    for reason in reasons:
        if reason.index is not None:
            about[reason.index].append(reason)
    # What is said of a whole arm, such as a cache that was not empty, holds for each answer of it.
    arm_wide = [reason for reason in reasons if reason.index is None and reason.arm is not None]
    rows = make_rows(
        evidence,
        {
            index: (
                prompt_verdict(about[index]),
                tuple(dict.fromkeys(reason.code for reason in about[index])),
                frozenset(arm for arm in ARMS if counts(about[index] + arm_wide, arm)),
            )
            for index in evidence.prompts
        },
    )
    if not reasons:
        return Judgement(Verdict.PASS, (), rows)
    return Judgement(merge(reason.verdict for reason in reasons), tuple(reasons), rows)


def prompt_verdict(reasons: Iterable[Reason]) -> Verdict:
    """Return PASS for no reason, else the worst of them."""
    return merge([Verdict.PASS, *(reason.verdict for reason in reasons)])


def counts(reasons: Iterable[Reason], arm: str) -> bool:
    """True when this arm's answer may enter its figures.

    It may not when anything is held against it or against the prompt itself.
    The reference witness is apart: it judges whether the run is right, while
    an answer it disagrees with did come from the compacted cache.
    """
    return all(
        reason.arm not in (arm, None) or reason.code.startswith("reference.") for reason in reasons
    )
