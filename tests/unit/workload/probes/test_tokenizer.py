# SPDX-License-Identifier: Apache-2.0
"""The model's own tokenizer: what it is asked for, and a real one where there is one."""

import os
import sys
from pathlib import Path

import pytest

from kvseal.errors import OptionError, PrerequisiteError
from kvseal.models.resolve import resolve_model
from kvseal.spec.runspec import RunSpec
from kvseal.workload.probes import Geometry, ModelTokenizer, build_probes, load_tokenizer


class Fake:
    """As much of a transformers tokenizer as is used; one token a character."""

    bos_token_id = 1

    def __init__(self, template="<{content}>", adds_bos=True):
        self.chat_template = template
        self.adds_bos = adds_bos

    def encode(self, text, add_special_tokens):
        return [1] * (add_special_tokens and self.adds_bos) + [ord(letter) for letter in text]

    def apply_chat_template(self, messages, tokenize, add_generation_prompt):
        assert not tokenize
        assert add_generation_prompt
        (message,) = messages
        assert message["role"] == "user"
        return self.chat_template.format(content=message["content"])


def model(*arguments, **changes):
    return ModelTokenizer(Fake(*arguments, **changes), Path("m"))


def test_a_chat_frame_is_what_stands_around_the_content():
    assert model("<u>{content}</u>").chat_frame() == (
        [ord(letter) for letter in "<u>"],
        [ord(letter) for letter in "</u>"],
    )


@pytest.mark.parametrize("template", [None, "", "no content", "{content}{content}", "{missing}"])
def test_a_template_that_can_not_be_used_is_refused(template):
    with pytest.raises(OptionError) as caught:
        model(template).chat_frame()
    assert (caught.value.option, caught.value.value) == ("--prompt-format", "chat")
    assert "--prompt-format raw" in caught.value.remedy


def test_a_first_token_counts_only_where_the_tokenizer_adds_it():
    assert model().bos() == [1]
    assert model(adds_bos=False).bos() == []
    assert model().encode("a") == [ord("a")]


def test_without_transformers_the_remedy_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(PrerequisiteError, match="transformers"):
        load_tokenizer(tmp_path)


def test_a_directory_without_a_tokenizer_is_named(tmp_path):
    pytest.importorskip("transformers", reason="no transformers: run in the engine environment")
    with pytest.raises(OptionError) as caught:
        load_tokenizer(tmp_path, option="--model")
    assert (caught.value.option, caught.value.value) == ("--model", str(tmp_path))


@pytest.fixture(scope="module")
def real():
    """Return the tokenizer of the model that the checked run spec names."""
    pytest.importorskip("transformers", reason="no transformers: run in the engine environment")
    spec = os.environ.get("KVSEAL_CHECK_SPEC", "")
    if not spec:
        pytest.skip("KVSEAL_CHECK_SPEC names no run spec: run scripts/check")
    return load_tokenizer(resolve_model(RunSpec.load(spec)).path)


def test_the_real_frame_is_what_the_template_gives(real):
    before, after = real.chat_frame()
    text = "Where is the lamp?"
    ids = real._tokenizer.apply_chat_template(
        [{"role": "user", "content": text}], add_generation_prompt=True, return_dict=False
    )
    assert [*before, *real.encode(text), *after] == ids


def test_real_probes_have_exact_lengths_and_whole_characters(real):
    probes = build_probes(
        "standard",
        formats=("raw", "chat"),
        reuse_counts=(1, 3),
        geometry=Geometry(256, 16, 2048),
        max_tokens=16,
        seed=0,
        tokenizer=real,
    )
    assert [probe.tokens for probe in probes[:4]] == [255, 256, 257, 511]
    assert probes[11].cold_prefix_tokens == 512
    texts = [real._tokenizer.decode(probe.token_ids) for probe in probes]
    assert not any("\ufffd" in text for text in texts)
    assert sum(not text.isascii() for text in texts) == 4
    raw = {probe.token_ids[:16] for probe in probes if probe.prompt_format == "raw"}
    assert len(raw) == 6
