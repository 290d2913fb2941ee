# SPDX-License-Identifier: Apache-2.0
"""Every reason that keeps a verification from passing: a stable code, its verdict, its text.

Codes are part of the report format and never change their meaning. There is one
FAIL: an answer that differs from the control with nothing else to explain it.
All others are INCONCLUSIVE, something that must be known and is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvseal.verdict import Verdict

DIFFERS = "difference.unexplained"

REASONS: dict[str, str] = {
    "run.not_started": "the history holds no start of a verification",
    "run.request_incomplete": "the recorded request can't be judged by: {problem}",
    "run.environment_missing": "the history does not say what the run stood on",
    "run.manifest_missing": "the history holds no probes",
    "run.manifest_wrong": "the recorded probes can't be used: {problem}",
    "run.plan_differs": (
        "{recorded} generations were planned, but these probes and targets take {planned}"
    ),
    "run.event_repeated": "{event} is recorded {count} times",
    "run.out_of_order": "{event} is not where it has to be in the history",
    "run.error": "the run met an error in {where}: {message}",
    "run.interrupted": "the run was interrupted by {signal}",
    "run.truncated": "the last line of the history was broken off in writing",
    "run.not_finished": "the run did not reach its end",
    "contract.not_accepted": (
        "the installation is not that of the contract, and this was not accepted by name: {what}"
    ),
    "acceptance.unusable": "the acceptance fixture can't be compared with: {problem}",
    "target.not_started": "its engine never started",
    "target.not_finished": "its engine is not recorded as ended",
    "target.status": "its process ended with status {status}",
    "target.error": "error in {where}: {message}",
    "target.disqualified": "it does not count under the evidence contract: {reason}",
    "target.unexpected": "{count} events are about a target that was not asked for",
    "target.overlaps": "it did not run alone, or not after the control",
    "target.nothing_reused": "no probe of it reused anything, so it shows nothing about reuse",
    "probe.incomplete": "{found} of {planned} answers are there",
    "probe.not_completed": "the probe is not recorded as completed",
    "probe.unexpected": "{count} events are about a probe that is not in the manifest",
    "probe.no_control": "there is no sound control to compare with: {problem}",
    "answer.missing": "{answer} did not come: {reason}",
    "answer.repeated": "{answer} is recorded {count} times, so none of them counts",
    "answer.unexpected": "{answer} was not planned",
    "answer.prompt_differs": "{answer} was given to other tokens than those of the probe",
    "answer.out_of_order": "{answer} is recorded outside its place in its target's run",
    "answer.empty": "{answer} has no token",
    "answer.unfinished": "{answer} ended for reason {finish}, so it may have been cut off",
    "answer.length": (
        "{answer} ended for reason {finish} with {tokens} tokens, where {limit} were asked for"
    ),
    "control.drifts": (
        "the control's answers to one prompt part at token {index}, so what differs from it may "
        "have nothing to do with reuse"
    ),
    "control.cached": "{answer} took {seen} tokens from a cache that had to be off",
    "hits.unknown": "nobody counted the cached tokens of {answer}",
    "hits.zero": "{answer} reused nothing, where {expected} cached tokens had to be",
    "hits.differ": "{answer} reused {seen} cached tokens, where {expected} had to be",
    "hits.not_cold": "{answer} found {seen} cached tokens, where {expected} had to be",
    "hits.server_unknown": "the cache server did not say what it loaded for {answer}",
    "hits.server_differ": (
        "the cache server loaded {seen} tokens for {answer}, where {expected} had to be"
    ),
    "difference.near_tie": (
        "{answer} takes the control's second choice, {token} instead of {control}, at token "
        "{index}; the two are {margin} apart there, a tie in {dtype}"
    ),
    "difference.second_witness": (
        "{answer} takes {token} instead of {control} at token {index}, and so does native prefix "
        "caching in this run, so this may have nothing to do with the target"
    ),
    "difference.without_reuse": (
        "{answer} takes {token} instead of {control} at token {index} though it reused nothing"
    ),
    "difference.like_cold": (
        "{answer} takes {token} instead of {control} at token {index}, as the cold answer did, "
        "which reused nothing"
    ),
    "difference.hidden": (
        "{answer} has the control's tokens, but their log-probabilities moved by {moved}, where "
        "rounding in {dtype} moves them by {bound} at most, so these tokens do not show equal KV"
    ),
    DIFFERS: (
        "{answer} takes {token} instead of {control} at token {index} (the control's two best are "
        "{margin} apart there{moved})"
    ),
}


@dataclass(frozen=True)
class Reason:
    """One finding; `target` and `probe` are None where it is about more than one."""

    code: str
    text: str
    target: str | None = None
    probe: str | None = None

    @property
    def verdict(self) -> Verdict:
        """FAIL for an unexplained difference, else INCONCLUSIVE."""
        return Verdict.FAIL if self.code == DIFFERS else Verdict.INCONCLUSIVE

    def to_json(self) -> dict[str, Any]:
        """Return the reason as it stands in the report."""
        return {
            "verdict": self.verdict.value,
            "target": self.target,
            "probe": self.probe,
            "code": self.code,
            "text": self.text,
        }


def reason(
    code: str, *, target: str | None = None, probe: str | None = None, **values: object
) -> Reason:
    """Return a reason with its text filled in from `values`."""
    return Reason(code, REASONS[code].format(**values), target, probe)


def answer_name(kind: str, repetition: int) -> str:
    """Return what an answer is called in texts."""
    names = {"control": "the control's answer", "cold": "the cold answer"}
    if kind == "control" and repetition:
        return "the control's repeated answer"
    return names.get(kind, f"reusing answer {repetition}")
