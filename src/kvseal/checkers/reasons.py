# SPDX-License-Identifier: Apache-2.0
"""Every reason a run can be held back for: a stable code, its verdict, its text.

Codes are part of the result format and never change their meaning. FAIL is for
something wrong that was seen; INCONCLUSIVE for something that must be known and
is not. A run without any reason passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvseal.verdict import Verdict

_FAIL, _UNKNOWN = Verdict.FAIL, Verdict.INCONCLUSIVE

REASONS: dict[str, tuple[Verdict, str]] = {
    "run.not_started": (_UNKNOWN, "the history holds no start of a run"),
    "run.spec_differs": (
        _UNKNOWN,
        "the run was started for spec {started}, but spec.json has digest {stored}",
    ),
    "run.truncated": (_UNKNOWN, "the last line of the history was broken off in writing"),
    "run.not_finished": (_UNKNOWN, "the run did not reach its end"),
    "run.interrupted": (_UNKNOWN, "the run was interrupted by {signal}"),
    "run.error": (_UNKNOWN, "the run stopped with an error in {where}: {message}"),
    "run.environment_missing": (_UNKNOWN, "the history does not say what the run stood on"),
    "run.engines_missing": (_UNKNOWN, "the history does not say that the engines had started"),
    "run.event_repeated": (_UNKNOWN, "{event} is recorded {count} times, so none of them counts"),
    "cache.not_cleared": (_UNKNOWN, "the cache was not shown to be empty before this arm"),
    "cache.not_empty": (_UNKNOWN, "{objects} objects were still in the cache after clearing"),
    "cache.cleared_late": (_UNKNOWN, "the cache was cleared only after this arm had begun"),
    "arms.interleaved": (_UNKNOWN, "the arms did not run one after the other"),
    "prompt.missing": (_UNKNOWN, "the run spec asks for this prompt, the history has none"),
    "prompt.unexpected": (_UNKNOWN, "the run spec asks for {prompts} prompts, so not for this one"),
    "prompt.length": (_UNKNOWN, "the prompt has {tokens} tokens, the run spec asks for {wanted}"),
    "prompt.repeated": (
        _UNKNOWN,
        "prompt {other} has the same token IDs, so one may be answered from the other's cache",
    ),
    "prompt.kind_unknown": (_UNKNOWN, "no answer rule for a question of kind {kind}"),
    "transform.missing": (_UNKNOWN, "the KV cache of this prompt was not compacted"),
    "transform.out_of_order": (
        _UNKNOWN,
        "the compaction is not recorded between clearing the cache and the answer",
    ),
    "transform.lengths": (
        _UNKNOWN,
        "{source} source tokens and {tail} after them are not the prompt's {prompt} tokens",
    ),
    "transform.digest": (_UNKNOWN, "the digest of the retained positions is not that of the list"),
    "transform.store_short": (_UNKNOWN, "{stored} of {retained} retained tokens were stored"),
    "transform.positions": (
        _FAIL,
        "the retained positions are not strictly increasing positions in {source} source tokens",
    ),
    "transform.window_dropped": (
        _FAIL,
        "the last {window} source tokens must all be kept, position {position} was dropped",
    ),
    "transform.retained_share": (
        _FAIL,
        "{retained} of {source} tokens were retained, further than one chunk from the {wanted} "
        "asked for",
    ),
    "reference.missing": (_UNKNOWN, "there is no reference answer from the same compacted cache"),
    "reference.incomplete": (
        _UNKNOWN,
        "reference and answer agree, but one has {reference} tokens and the other {answer}",
    ),
    "reference.contradicts": (
        _UNKNOWN,
        "the history gives {recorded} as the first difference, the token IDs give {found}",
    ),
    "reference.near_tie": (
        _UNKNOWN,
        "the reference takes another token at {position}, where its two best are {margin} apart: "
        "a tie for an engine in {dtype}",
    ),
    "reference.differs": (
        _FAIL,
        "the reference from the same compacted cache takes another token at {position} "
        "(its two best are {margin} apart)",
    ),
    "result.missing": (_UNKNOWN, "the run folder holds no result.json"),
    "result.differs": (_FAIL, "result.json is not what its own history gives, in {fields}"),
}
for _arm, _name in (("baseline", "baseline"), ("snapkv", "SnapKV")):
    REASONS |= {
        f"{_arm}.answer_missing": (_UNKNOWN, f"there is no {_name} answer"),
        f"{_arm}.answer_empty": (_UNKNOWN, f"the {_name} answer has no token"),
        f"{_arm}.prompt_length": (
            _UNKNOWN,
            f"the engine saw a {_name} prompt of {{seen}} tokens, {{sent}} were meant",
        ),
        f"{_arm}.hit_expectation": (
            _UNKNOWN,
            f"the driver expected {{expected}} hit tokens of the {_name} answer, where {{right}} "
            "can be right",
        ),
        f"{_arm}.hit_unknown": (
            _UNKNOWN,
            f"{{witness}} did not say how many tokens of the {_name} answer came from the cache",
        ),
        f"{_arm}.hit_missing": (
            _UNKNOWN,
            f"{{witness}} saw no cache hit where {{expected}} tokens had to come from it, so this "
            f"is no {_name} answer",
        ),
        f"{_arm}.hit_differs": (
            _UNKNOWN,
            "{witness} saw {seen} hit tokens, {expected} had to be hit",
        ),
    }


@dataclass(frozen=True)
class Reason:
    """One finding; `index` and `arm` are None where it is about the whole run."""

    code: str
    text: str
    index: int | None = None
    arm: str | None = None

    @property
    def verdict(self) -> Verdict:
        """FAIL or INCONCLUSIVE, as REASONS says for the code."""
        return REASONS[self.code][0]

    def to_json(self) -> dict[str, Any]:
        """Return the reason as it stands in result.json."""
        return {
            "code": self.code,
            "verdict": self.verdict.value,
            "index": self.index,
            "arm": self.arm,
            "text": self.text,
        }


def reason(
    code: str, *, index: int | None = None, arm: str | None = None, **values: object
) -> Reason:
    """Return a reason with its text filled in from `values`."""
    return Reason(code, REASONS[code][1].format(**values), index, arm)
