# SPDX-License-Identifier: Apache-2.0
"""Prompts from a local file, and the lines that are refused."""

import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvseal.errors import OptionError
from kvseal.workload.file import prompts_from_file

toy = SimpleNamespace(**runpy.run_path(str(Path(__file__).parent / "toy.py")))


def read(path, text, prompts=1):
    path.write_text(text, encoding="utf-8")
    return prompts_from_file(path, prompts=prompts, tokenizer=toy.Letters())


def test_lines_become_prompts_in_order(tmp_path):
    rows = [
        {"prompt": "Häuser are", "answers": ["big", "tall"]},
        {"prompt": "Roses are", "answer": "red"},
        {"prompt": "third", "answers": ["x"]},
    ]
    text = "\n\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n"
    made = read(tmp_path / "d.jsonl", text, prompts=2)
    assert [prompt.text for prompt in made] == ["Häuser are", "Roses are"]
    assert [prompt.expected for prompt in made] == [("big", "tall"), ("red",)]
    assert [(prompt.index, prompt.kind) for prompt in made] == [(0, "file"), (1, "file")]
    assert made[0].token_ids == tuple(map(ord, "Häuser are"))


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        "[]",
        '{"prompt":"a"}',
        '{"prompt":"","answers":["b"]}',
        '{"prompt":"a","answers":[]}',
        '{"prompt":"a","answers":[" "]}',
        '{"prompt":"a","answers":[1]}',
        '{"prompt":"a","answers":"b","answer":"b"}',
        '{"prompt":"a","answers":["b"],"note":1}',
        '{"prompt":"a","prompt":"b","answers":["b"]}',
    ],
)
def test_a_line_that_is_no_prompt_is_refused_with_its_number(tmp_path, line):
    good = '{"prompt":"a","answers":["b"]}\n'
    with pytest.raises(OptionError, match="line 2"):
        read(tmp_path / "d.jsonl", good + line, prompts=2)


def test_too_few_lines_are_refused(tmp_path):
    with pytest.raises(OptionError, match="has 1 prompts"):
        read(tmp_path / "d.jsonl", '{"prompt":"a","answers":["b"]}\n', prompts=2)


def test_a_missing_or_binary_file_is_refused(tmp_path):
    with pytest.raises(OptionError, match="can't be read"):
        prompts_from_file(tmp_path / "none", prompts=1, tokenizer=toy.Letters())
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(OptionError, match="can't be read"):
        prompts_from_file(tmp_path / "binary", prompts=1, tokenizer=toy.Letters())
