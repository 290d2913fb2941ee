# SPDX-License-Identifier: Apache-2.0
"""The judgement of an unsafe hit: a hit fails, no hit passes, anything unseen does neither."""

from __future__ import annotations

from typing import Any

import pytest

from kvseal.checkers.unsafe_hit import judge_unsafe_hit
from kvseal.records import builders
from kvseal.records.history import Event, History
from kvseal.records.schemas import validate
from kvseal.verdict import Verdict


def answer(cache: str, ids: list[int], hits: int | None, hits_vllm: Any = "same") -> dict[str, Any]:
    return builders.literal_answer(
        cache=cache,
        output_token_ids=ids,
        text="text",
        hit_tokens_server=hits,
        hit_tokens_vllm=hits if hits_vllm == "same" else hits_vllm,
    )


def history(*answers: dict[str, Any], end: bool = True, prompt: bool = True) -> History:
    lines = [builders.run_started(spec_sha256="0" * 64, host={}, driver="unsafe-hit")]
    if prompt:
        lines.append(
            builders.literal_prompt(
                token_ids=[1, 2, 3], source_tokens=9, compacted_tokens=2, text="abc"
            )
        )
    lines += answers
    if end:
        lines.append(builders.run_finished())
    return History(
        tuple(
            Event(
                number,
                "2026-11-30T12:00:00Z",
                line["event"],
                {name: value for name, value in line.items() if name != "event"},
            )
            for number, line in enumerate(lines)
        )
    )


def test_a_hit_on_the_compacted_entry_fails_and_names_the_first_token() -> None:
    found = judge_unsafe_hit(history(answer("compacted", [5, 6], 2), answer("empty", [5, 7], 0)))
    validate(found.to_json(), "unsafe-hit-result.v1")
    assert found.verdict is Verdict.FAIL
    assert found.evidence["first_difference"] == 1


def test_a_hit_that_changes_no_token_fails_too() -> None:
    found = judge_unsafe_hit(history(answer("compacted", [5, 6], 2), answer("empty", [5, 6], 0)))
    assert found.verdict is Verdict.FAIL


def test_no_hit_and_equal_tokens_pass() -> None:
    found = judge_unsafe_hit(history(answer("compacted", [5, 6], 0), answer("empty", [5, 6], 0)))
    assert found.verdict is Verdict.PASS


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(
            history(answer("compacted", [5], 0), answer("empty", [6], 0)), id="differs-without-hit"
        ),
        pytest.param(
            history(answer("compacted", [5], None), answer("empty", [5], 0)), id="hits-unknown"
        ),
        pytest.param(
            history(answer("compacted", [5], 0, None), answer("empty", [5], 0)), id="vllm-silent"
        ),
        pytest.param(
            history(answer("compacted", [5], 2, 1), answer("empty", [5], 0)), id="witnesses-differ"
        ),
        pytest.param(history(answer("compacted", [5], 2), answer("empty", [6], 2)), id="not-empty"),
        pytest.param(history(answer("compacted", [5], 2)), id="one-answer"),
        pytest.param(history(), id="no-answer"),
        pytest.param(
            history(answer("compacted", [5], 2), answer("empty", [6], 0), prompt=False),
            id="no-prompt",
        ),
        pytest.param(
            history(answer("compacted", [5], 2), answer("empty", [6], 0), end=False),
            id="not-finished",
        ),
        pytest.param(
            history(
                answer("compacted", [5], 0),
                answer("empty", [5], 0),
                builders.error(where="x", message="broke"),
            ),
            id="error",
        ),
        pytest.param(
            history(
                answer("compacted", [5], 0),
                answer("empty", [5], 0),
                builders.interrupted(signal="SIGINT"),
            ),
            id="interrupted",
        ),
    ],
)
def test_what_was_not_seen_gives_no_verdict(seen: History) -> None:
    found = judge_unsafe_hit(seen)
    assert found.verdict is Verdict.INCONCLUSIVE
    validate(found.to_json(), "unsafe-hit-result.v1")
