# SPDX-License-Identifier: Apache-2.0
"""Hub datasets, with a stand-in for the `datasets` package: no network in a unit test."""

import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvseal.errors import OptionError, PrerequisiteError
from kvseal.workload.hub import parse_hub, prompts_from_hub

toy = SimpleNamespace(**runpy.run_path(str(Path(__file__).parent / "toy.py")))
COMMIT = "ab" * 20


class Rows(list):
    """What `load_dataset` gives, as far as it is used."""

    @property
    def column_names(self):
        return list(self[0])


@pytest.fixture
def hub(monkeypatch):
    """Install a `datasets` whose load_dataset returns, or raises, `hub.gives`."""
    state = SimpleNamespace(gives=None, asked=None)

    def load_dataset(name, *, revision, split):
        state.asked = (name, revision, split)
        if isinstance(state.gives, Exception):
            raise state.gives
        return Rows(state.gives)

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    return state


def load(name="o/d", revision=COMMIT, prompts=1):
    return prompts_from_hub(name, revision, prompts=prompts, tokenizer=toy.Letters())


def test_rows_become_prompts_by_the_default_columns(hub):
    hub.gives = [{"prompt": "a", "answer": "b"}, {"prompt": "c", "answer": ["d", "e"]}]
    made = load(prompts=2)
    assert hub.asked == ("o/d", COMMIT, "train")
    assert [(prompt.text, prompt.expected, prompt.kind) for prompt in made] == [
        ("a", ("b",), "hub"),
        ("c", ("d", "e"), "hub"),
    ]


def test_columns_and_split_can_be_named(hub):
    hub.gives = [{"q": "a", "t": "b"}]
    assert load("o/d:prompt=q,answer=t,split=test")[0].expected == ("b",)
    assert hub.asked == ("o/d", COMMIT, "test")


@pytest.mark.parametrize(
    "name", ["o/d:column=q", "o/d:prompt=", "o/d:split=a,split=b", "o/d:prompt"]
)
def test_a_wrong_setting_is_refused(name):
    with pytest.raises(OptionError, match="setting"):
        parse_hub(name)


@pytest.mark.parametrize("revision", ["", "main", "AB" * 20, "ab" * 19])
def test_a_mutable_revision_is_refused_before_anything_is_loaded(hub, revision):
    with pytest.raises(OptionError, match="DATASET_REVISION"):
        load(revision=revision)
    assert hub.asked is None


def test_missing_columns_are_named(hub):
    hub.gives = [{"question": "a", "answer": "b"}]
    with pytest.raises(OptionError, match="columns question, answer"):
        load()


def test_too_few_rows_are_refused(hub):
    hub.gives = [{"prompt": "a", "answer": "b"}]
    with pytest.raises(OptionError, match="has 1 rows"):
        load(prompts=2)


@pytest.mark.parametrize(
    "row", [{"prompt": "", "answer": "b"}, {"prompt": 1, "answer": "b"},
            {"prompt": "a", "answer": None}, {"prompt": "a", "answer": []}]
)  # fmt: skip
def test_a_row_without_prompt_or_answer_is_refused(hub, row):
    hub.gives = [row]
    with pytest.raises(OptionError, match="row 0"):
        load()


@pytest.mark.parametrize("error", [ConnectionError("offline"), ValueError("no such split")])
def test_a_dataset_that_can_t_be_loaded_is_a_prerequisite(hub, error):
    hub.gives = error
    with pytest.raises(PrerequisiteError, match=str(error)):
        load()


def test_without_the_package_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(PrerequisiteError, match="install `datasets`"):
        load()
