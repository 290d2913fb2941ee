# SPDX-License-Identifier: Apache-2.0
"""Per-prompt rows and the figures of each arm, over those answers whose evidence holds.

`output_tput` is what KNLP users know under that name: output tokens over the
seconds from sending the request to its last token, summed over the arm's
decode requests (its batch does the same with one wall clock over all streams;
here requests run one at a time). `decode_tput` leaves out each answer's first
token and the wait for it: generation alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kvseal.checkers.answers import RULES, is_correct
from kvseal.checkers.evidence import Evidence
from kvseal.checkers.prompt_checks import first_difference
from kvseal.checkers.statistics import Estimate, bootstrap, median, throughput, wilson
from kvseal.records.events import ARMS
from kvseal.records.history import Event
from kvseal.verdict import Verdict


@dataclass(frozen=True)
class Row:
    """One prompt: what each arm did with it, and whether that counts.

    `arms` has an entry for each arm that answered; `counted` are the arms whose
    answer rests on the evidence it needs.
    """

    index: int
    prompt: Event
    transform: Event | None
    reference: Event | None
    arms: dict[str, Event]
    counted: frozenset[str]
    verdict: Verdict
    reasons: tuple[str, ...]

    def correct(self, arm: str) -> bool | None:
        """Return whether `arm` answered right; None without answer or rule."""
        if arm not in self.arms or self.prompt["question_kind"] not in RULES:
            return None
        return is_correct(
            self.prompt["question_kind"], self.arms[arm]["text"], self.prompt["expected"]
        )

    def to_json(self) -> dict[str, Any]:
        """Return the row as it stands in result.json."""
        transform, reference = self.transform, self.reference
        return {
            "index": self.index,
            "dataset": self.prompt["dataset"],
            "question_kind": self.prompt["question_kind"],
            "expected": list(self.prompt["expected"]),
            "prompt_tokens": self.prompt["prompt_tokens"],
            "prompt_token_ids_sha256": self.prompt["prompt_token_ids_sha256"],
            "verdict": self.verdict.value,
            "reasons": list(self.reasons),
            "baseline": self._answer("baseline"),
            "snapkv": self._answer("snapkv"),
            "transform": None
            if transform is None
            else {name: transform[name] for name in TRANSFORM_FIELDS},
            "reference": None if reference is None else self._reference(reference),
        }

    def _answer(self, arm: str) -> dict[str, Any] | None:
        if arm not in self.arms:
            return None
        answer = self.arms[arm]
        return {
            "correct": self.correct(arm),
            "counted": arm in self.counted,
            "output_tokens": len(answer["output_token_ids"]),
            "output_tput": throughput([len(answer["output_token_ids"])], [answer["total_seconds"]]),
            **{name: answer[name] for name in ANSWER_FIELDS},
        }

    def _reference(self, reference: Event) -> dict[str, Any]:
        answer = self.arms.get("snapkv")
        difference = (
            None
            if answer is None
            else first_difference(reference["output_token_ids"], answer["output_token_ids"])
        )
        return {
            "equal": None if answer is None else difference is None,
            "first_difference": difference,
            "top2_margin": reference["top2_margin"],
        }


ANSWER_FIELDS = (
    "text", "output_token_ids", "finish_reason", "prompt_tokens", "ttft_seconds", "decode_seconds",
    "total_seconds", "expected_hit_tokens", "hit_tokens_vllm", "hit_tokens_server",
)  # fmt: skip
TRANSFORM_FIELDS = (
    "source_tokens", "retained_tokens", "tail_tokens", "stored_tokens", "layout", "granularity",
    "retained_positions_sha256", "retained_token_ids_sha256", "transform_seconds",
    "retrieve_seconds", "store_seconds",
)  # fmt: skip


def make_rows(
    evidence: Evidence, found: dict[int, tuple[Verdict, tuple[str, ...], frozenset[str]]]
) -> tuple[Row, ...]:
    """Return a row for each prompt; `found` has its verdict, reason codes and counted arms."""
    rows = []
    for index, (verdict, codes, counted) in sorted(found.items()):
        arms = {
            arm: evidence.answers[arm, index] for arm in ARMS if (arm, index) in evidence.answers
        }
        row = Row(
            index=index,
            prompt=evidence.prompts[index],
            transform=evidence.transforms.get(index),
            reference=evidence.references.get(index),
            arms=arms,
            counted=counted & set(arms),
            verdict=verdict,
            reasons=codes,
        )
        rows.append(row)
    return tuple(rows)


def arm_summary(rows: Sequence[Row], arm: str) -> dict[str, Any]:
    """Return the figures of one arm over its counted answers."""
    answers = [row.arms[arm] for row in rows if arm in row.counted]
    correct = sum(bool(row.correct(arm)) for row in rows if arm in row.counted)
    tokens = [len(answer["output_token_ids"]) for answer in answers]
    summary: dict[str, Any] = {
        "correct": correct,
        "total": len(answers),
        "not_counted": sum(arm in row.arms for row in rows) - len(answers),
        "accuracy": _json(wilson(correct, len(answers))),
        "output_tput": throughput(tokens, [answer["total_seconds"] for answer in answers]),
        "decode_tput": throughput(
            [max(count - 1, 0) for count in tokens],
            [answer["decode_seconds"] for answer in answers],
        ),
        "output_tokens": sum(tokens),
        "total_seconds": math.fsum(answer["total_seconds"] for answer in answers),
        "ttft_median_seconds": median([answer["ttft_seconds"] for answer in answers]),
        "hit_tokens": sum(answer["expected_hit_tokens"] for answer in answers),
    }
    if arm == "snapkv":
        transforms = [row.transform for row in rows if arm in row.counted and row.transform]
        summary |= {
            name: sum(transform[name] for transform in transforms)
            for name in ("source_tokens", "retained_tokens")
        }
        summary |= {
            name: math.fsum(transform[name] for transform in transforms)
            for name in ("transform_seconds", "retrieve_seconds", "store_seconds")
        }
    return summary


def comparison(rows: Sequence[Row]) -> dict[str, Any]:
    """Return SnapKV against baseline over prompts that count in both arms, with intervals."""
    pairs = [row for row in rows if row.counted >= set(ARMS)]
    return {
        "pairs": len(pairs),
        "accuracy_difference": _json(bootstrap(pairs, _accuracy_difference)),
        "output_tput_ratio": _json(bootstrap(pairs, _tput_ratio)),
        "ttft_median_ratio": _json(bootstrap(pairs, _ttft_ratio)),
    }


def datasets(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the right answers of each dataset, over prompts that count in both arms."""
    names = list(dict.fromkeys(row.prompt["dataset"] for row in rows))
    pairs = [row for row in rows if row.counted >= set(ARMS)]
    return [
        {
            "dataset": name,
            "total": sum(row.prompt["dataset"] == name for row in pairs),
            **{
                f"{arm}_correct": sum(
                    bool(row.correct(arm)) for row in pairs if row.prompt["dataset"] == name
                )
                for arm in ARMS
            },
        }
        for name in names
    ]


def _json(estimate: Estimate | None) -> dict[str, Any] | None:
    return None if estimate is None else estimate.to_json()


def _accuracy_difference(rows: Sequence[Row]) -> float | None:
    """Share of right SnapKV answers less that of right baseline answers."""
    if not rows:
        return None
    return sum(bool(row.correct("snapkv")) - bool(row.correct("baseline")) for row in rows) / len(
        rows
    )


def _tput_ratio(rows: Sequence[Row]) -> float | None:
    """SnapKV's output_tput over the baseline's."""
    baseline, snapkv = (
        throughput(
            [len(row.arms[arm]["output_token_ids"]) for row in rows],
            [row.arms[arm]["total_seconds"] for row in rows],
        )
        for arm in ARMS
    )
    return snapkv / baseline if snapkv is not None and baseline else None


def _ttft_ratio(rows: Sequence[Row]) -> float | None:
    """SnapKV's median time to first token over the baseline's."""
    baseline, snapkv = (median([row.arms[arm]["ttft_seconds"] for row in rows]) for arm in ARMS)
    return snapkv / baseline if snapkv is not None and baseline else None
