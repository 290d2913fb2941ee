# SPDX-License-Identifier: Apache-2.0
"""Figures and verdicts in words that need no knowledge of the program.

Every report says the same thing because it takes its sentences from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MINUS = "−"


def number(value: float | None, digits: int = 3) -> str:
    """Return `value` to `digits` significant digits, or "unknown"."""
    if value is None:
        return "unknown"
    if value == 0:
        return "0"
    text = f"{value:.{digits}g}"
    return (f"{value:.0f}" if "e" in text and abs(value) >= 1 else text).replace("-", MINUS)


def share(accuracy: Mapping[str, Any] | None) -> str:
    """Return an accuracy as a percentage with its interval."""
    if accuracy is None:
        return "unknown"
    value, low, high = (f"{accuracy[end] * 100:.0f}" for end in ("value", "low", "high"))
    return f"{value} % ({low}–{high})"


def change_percent(ratio: Mapping[str, Any] | None) -> str:
    """Return a ratio estimate as a signed change in percent with its interval."""
    return _signed(ratio, lambda value: (value - 1) * 100, " %", 1)


def change_points(difference: Mapping[str, Any] | None) -> str:
    """Return a difference of shares in percentage points with its interval."""
    return _signed(difference, lambda value: value * 100, " points", 0)


def _signed(estimate: Mapping[str, Any] | None, scale: Any, unit: str, digits: int) -> str:
    if estimate is None:
        return "unknown"

    def text(value: float) -> str:
        shown = f"{scale(value):+.{digits}f}".replace("-", MINUS)
        # Nothing has no sign, whichever side it was rounded from.
        return shown if shown.strip("+0." + MINUS) else shown[1:]

    if estimate["low"] is None:
        return text(estimate["value"]) + unit
    return f"{text(estimate['value'])}{unit} ({text(estimate['low'])} to {text(estimate['high'])})"


def verdict_sentence(result: Mapping[str, Any]) -> str:
    """Return what the verdict means, in one sentence."""
    reasons = result["reasons"]
    if result["verdict"] == "PASS":
        baseline, snapkv = result["baseline"], result["snapkv"]
        kept = snapkv["retained_tokens"] / max(snapkv["source_tokens"], 1)
        witness = (
            ", and transformers gives the same tokens from the same compacted cache"
            if result["reference"]
            else ""
        )
        return (
            f"These figures hold: keeping {kept * 100:.0f} % of each prompt's KV cache, SnapKV "
            f"answered {snapkv['correct']} of {snapkv['total']} prompts right where the whole "
            f"cache answered {baseline['correct']}; both engines confirmed that every SnapKV "
            f"answer came from the compacted cache{witness}."
        )
    worst = next(entry for entry in reasons if entry["verdict"] == result["verdict"])
    if result["verdict"] == "FAIL":
        return f"Something is wrong, so these figures must not be used: {reason_text(worst)}."
    return (
        "This run does not show how SnapKV compares, because something that must be known is "
        f"not: {reason_text(worst)}."
    )


def reason_text(reason: Mapping[str, Any]) -> str:
    """Return a reason with what it is about."""
    about = [
        *([f"prompt {reason['index']}"] if reason["index"] is not None else []),
        *([f"{ARM_NAMES[reason['arm']]} arm"] if reason["arm"] is not None else []),
    ]
    return (f"{', '.join(about)}: " if about else "") + reason["text"]


ARM_NAMES = {"baseline": "baseline", "snapkv": "SnapKV"}


def arm_table(result: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Return the comparison as rows of name, baseline, SnapKV, change."""
    baseline, snapkv, both = result["baseline"], result["snapkv"], result["comparison"]
    return [
        (
            "right answers",
            f"{baseline['correct']} of {baseline['total']}",
            f"{snapkv['correct']} of {snapkv['total']}",
            "",
        ),
        (
            "accuracy",
            share(baseline["accuracy"]),
            share(snapkv["accuracy"]),
            change_points(both["accuracy_difference"]),
        ),
        (
            "output tokens/s",
            number(baseline["output_tput"]),
            number(snapkv["output_tput"]),
            change_percent(both["output_tput_ratio"]),
        ),
        ("decode tokens/s", number(baseline["decode_tput"]), number(snapkv["decode_tput"]), ""),
        (
            "median TTFT, s",
            number(baseline["ttft_median_seconds"]),
            number(snapkv["ttft_median_seconds"]),
            change_percent(both["ttft_median_ratio"]),
        ),
        ("tokens from the cache", str(baseline["hit_tokens"]), str(snapkv["hit_tokens"]), ""),
    ]


HEADINGS = ("", "baseline", "SnapKV", "change")


def setting_rows(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what was run, as pairs of name and value."""
    tokens = sorted(set(result["prompt_tokens"]))
    span = "none" if not tokens else f"{tokens[0]}–{tokens[-1]}" if tokens[1:] else str(tokens[0])
    return [
        ("model", f"{result['model']} ({result['model_revision'] or 'unknown revision'})"),
        ("dataset", result["dataset"]),
        ("prompts", f"{result['num_prompts']} of {span} tokens, {result['new_tokens']} new"),
        ("dropped", f"{result['drop_ratio'] * 100:.0f} % of the KV cache"),
        ("query window", f"{result['window_size']} tokens, kernel {result['kernel_size']}"),
        ("device", f"{result['device']}, {result['dtype']}"),
        ("vLLM", result["vllm_version"] or "unknown"),
        ("LMCache", _with_revision(result)),
        ("torch", result["torch_version"] or "unknown"),
        ("kvseal", result["kvseal_version"] or "unknown"),
        ("run spec", result["spec_sha256"]),
    ]


def _with_revision(result: Mapping[str, Any]) -> str:
    version, revision = result["lmcache_version"] or "unknown", result["lmcache_revision"]
    return f"{version} at {revision}" if revision else version
