# SPDX-License-Identifier: Apache-2.0
"""Prompts from a local file of JSON lines: `{"prompt": "…", "answers": ["…"]}`.

Each line is one prompt, sent as it stands (a raw completion, no chat template);
`answers` are the texts any of which is right (`answer` with one text will do).
Lengths are what they are: nothing is cut or filled up. The first lines are
taken, in order, so a run names its prompts by the file alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kvseal.canonical import loads_strict
from kvseal.errors import EvidenceError, OptionError
from kvseal.workload.prompt import Prompt, Tokenizer

OPTION = "WORKFLOW_KNLP_LMCACHE_SNAPKV_DATASET_FILE"
KIND = "file"


def prompts_from_file(path: Path, *, prompts: int, tokenizer: Tokenizer) -> list[Prompt]:
    """Return the first `prompts` prompts of the file.

    Raises:
        OptionError: the file can't be read, has fewer lines, or a line is not of the form.
    """
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(
            f"the dataset file can't be read: {error}",
            option=OPTION,
            value=str(path),
            expected="a UTF-8 file of JSON lines",
        ) from None
    lines = [(number, line) for number, line in enumerate(content.split("\n"), 1) if line.strip()]
    if len(lines) < prompts:
        raise OptionError(
            f"the dataset file has {len(lines)} prompts",
            option=OPTION,
            value=str(path),
            expected=f"at least {prompts}",
            remedy="set WORKFLOW_KNLP_LMCACHE_SNAPKV_NUM_PROMPTS to what it has, or add lines",
        )
    rows = [_row(line, f"{path} line {number}") for number, line in lines[:prompts]]
    return [
        Prompt(index, str(path), text, tuple(tokenizer.encode(text)), tuple(expected), KIND)
        for index, (text, expected) in enumerate(rows)
    ]


def answers(value: Any) -> list[str] | None:
    """Return one text or a list of texts as a list, None for anything else or nothing."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not texts:
        return None
    if not all(isinstance(text, str) and text.strip() for text in texts):
        return None
    return texts


def _row(line: str, where: str) -> tuple[str, list[str]]:
    try:
        row = loads_strict(line)
    except EvidenceError as error:
        raise OptionError(f"{where}: {error.message}", option=OPTION) from None
    if isinstance(row, dict):
        named = {"prompt"} | ({"answers", "answer"} & set(row))
        found = answers(row.get("answers", row.get("answer")))
        prompt = row.get("prompt")
        if set(row) == named and len(named) == 2 and isinstance(prompt, str) and prompt and found:
            return prompt, found
    raise OptionError(
        f"{where} is not a prompt",
        option=OPTION,
        value=line[:80],
        expected='{"prompt": "…", "answers": ["…", …]}, no other keys, none of them empty',
    )
