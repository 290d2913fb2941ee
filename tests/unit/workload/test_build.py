# SPDX-License-Identifier: Apache-2.0
"""The prompts of a spec, from each source, and lengths that no run can use."""

import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvseal.errors import OptionError, PrerequisiteError
from kvseal.workload.build import build_prompts

toy = SimpleNamespace(**runpy.run_path(str(Path(__file__).parent / "toy.py")))
BUILDER = Path(__file__).parents[1] / "records" / "builder.py"
build = SimpleNamespace(**runpy.run_path(str(BUILDER)))


def from_file(tmp_path, *texts):
    path = tmp_path / "d.jsonl"
    rows = [json.dumps({"prompt": text, "answers": ["x"]}) for text in texts]
    path.write_text("\n".join(rows))
    spec = build.make_spec(workload={"dataset_file": str(path), "prompts": len(texts)})
    return build_prompts(spec, toy.Letters())


def test_tasks_come_in_the_number_and_length_of_the_spec():
    made = build_prompts(build.make_spec(), toy.Words())
    assert [len(prompt.token_ids) for prompt in made] == [build.SOURCE + build.TAIL] * 4
    assert [prompt.kind for prompt in made] == ["needle", "key_value"] * 2


def test_a_file_comes_before_tasks(tmp_path):
    made = from_file(tmp_path, "a" * 100, "b" * 200)
    assert [len(prompt.token_ids) for prompt in made] == [100, 200]


def test_a_hub_dataset_is_asked_for(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    spec = build.make_spec(workload={"dataset_hub": "o/d", "dataset_revision": "a" * 40})
    with pytest.raises(PrerequisiteError, match="datasets"):
        build_prompts(spec, toy.Letters())


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        # 64 tokens are no whole chunk, as the last token is always computed.
        (["a" * 64], "too short"),
        (["a" * 2046], "too long"),
        (["a" * 100, "a" * 100], "are the same"),
    ],
)
def test_prompts_no_run_can_use_are_refused(tmp_path, texts, message):
    with pytest.raises(OptionError, match=message):
        from_file(tmp_path, *texts)


def test_the_shortest_and_longest_usable_prompts_are_taken(tmp_path):
    assert len(from_file(tmp_path, "a" * 65, "b" * 2045)) == 2
