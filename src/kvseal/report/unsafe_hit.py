# SPDX-License-Identifier: Apache-2.0
"""The demonstration of an unsafe hit on the terminal: one prompt, its two answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvseal.report.console import printable

SHOWN_CHARACTERS = 300


def console(result: Mapping[str, Any], name: str) -> str:
    """Return the outcome of one run as lines of text."""
    lines = [f"{result['verdict']}  {name}", f"{result['sentence']}."]
    prompt = result["prompt"]
    if prompt is not None:
        lines += [
            "",
            f"The ordinary prompt ({len(prompt['token_ids'])} tokens) ends:",
            f"  … {printable(prompt['text'][-SHOWN_CHARACTERS:])}",
        ]
    for cache, title in (
        ("compacted", f"Served from KV compacted out of {_source(prompt)}:"),
        ("empty", "Its true answer, from an empty cache:"),
    ):
        answer = result[f"answer_{cache}"]
        if answer is not None:
            hits = answer["hit_tokens_server"]
            lines += [
                "",
                f"{title} ({'unknown' if hits is None else hits} tokens from the cache)",
                f"  {printable(answer['text'])}",
                f"  {' '.join(map(str, answer['output_token_ids']))}",
            ]
    return "\n".join(lines)


def _source(prompt: Mapping[str, Any] | None) -> str:
    return "another prompt" if prompt is None else f"a prompt of {prompt['source_tokens']} tokens"
