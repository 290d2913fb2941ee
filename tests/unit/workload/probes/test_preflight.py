# SPDX-License-Identifier: Apache-2.0
"""What is refused before a probe is made, and that the value each error names would do."""

import pytest

from kvseal.errors import OptionError


@pytest.mark.parametrize(
    ("changes", "option"),
    [
        ({"suite": "quick"}, "--suite"),
        ({"formats": ()}, "--prompt-format"),
        ({"formats": ("raw", "raw")}, "--prompt-format"),
        ({"formats": ("both",)}, "--prompt-format"),
        ({"reuse_counts": ()}, "--reuse-counts"),
        ({"reuse_counts": (0,)}, "--reuse-counts"),
        ({"reuse_counts": (1, 1)}, "--reuse-counts"),
        ({"reuse_counts": (-1,)}, "--reuse-counts"),
        ({"reuse_counts": (True,)}, "--reuse-counts"),
        ({"max_tokens": 0}, "--max-tokens"),
        ({"seed": -1}, "--seed"),
        ({"seed": 1 << 53}, "--seed"),
        ({"chunk": 0}, "--chunk-size"),
        ({"block": 0}, "--block-size"),
        ({"limit": 0}, "--max-model-len"),
        ({"chunk": 250}, "--chunk-size"),
        ({"chunk": 8, "block": 16}, "--chunk-size"),
        ({"lengths": []}, "--fixture"),
        ({"suite": "acceptance"}, "--fixture"),
        ({"suite": "acceptance", "lengths": []}, "--fixture"),
    ],
)
def test_an_argument_that_can_not_be_is_named(build, changes, option):
    with pytest.raises(OptionError) as caught:
        build(**changes)
    assert caught.value.option == option
    assert caught.value.expected


@pytest.mark.parametrize(
    "row",
    [
        {"tokens": 511, "reuse_count": 1},
        {"tokens": 511, "reuse_count": 1, "format": "raw", "note": ""},
        {"tokens": 0, "reuse_count": 1, "format": "raw"},
        {"tokens": 511, "reuse_count": True, "format": "raw"},
        {"tokens": "511", "reuse_count": 1, "format": "raw"},
        {"tokens": 511, "reuse_count": 1, "format": "both"},
        "511",
    ],
)
def test_a_row_that_is_no_probe_is_refused(build, row):
    with pytest.raises(OptionError, match="--fixture"):
        build("acceptance", lengths=[row])


def test_a_row_that_stands_twice_is_refused(build, l4_rows):
    with pytest.raises(OptionError, match="twice"):
        build("acceptance", lengths=[l4_rows[0], *l4_rows])


@pytest.mark.parametrize(
    ("changes", "option"),
    [({"formats": ("raw",)}, "--prompt-format"), ({"reuse_counts": (1, 2)}, "--reuse-counts")],
)
def test_an_option_that_contradicts_the_fixture_is_refused(build, l4_rows, changes, option):
    with pytest.raises(OptionError) as caught:
        build("acceptance", lengths=l4_rows, **changes)
    assert caught.value.option == option


def test_every_prompt_and_its_output_must_fit_the_model(build):
    build(limit=1504 + 16)
    with pytest.raises(OptionError) as caught:
        build(limit=1504 + 15)
    assert caught.value.option == "--max-model-len"
    assert caught.value.value == 1519
    assert caught.value.expected == "at least 1520"
    assert "at most 240 tokens (--chunk-size)" in caught.value.remedy
    build(chunk=240, limit=1519)


def test_a_model_too_small_for_any_chunk_is_told_so(build):
    with pytest.raises(OptionError) as caught:
        build(chunk=16, limit=20)
    assert "--chunk-size" not in caught.value.remedy


def test_a_fixture_must_fit_the_model_too(build, l4_rows):
    build("acceptance", lengths=l4_rows, limit=1516)
    with pytest.raises(OptionError, match="at least 1516"):
        build("acceptance", lengths=l4_rows, limit=1515)


def test_a_chat_frame_longer_than_the_shortest_prompt_is_refused(build, toys):
    with pytest.raises(OptionError) as caught:
        build(chunk=32, tokenizer=toys.LongFrame())
    assert caught.value.option == "--chunk-size"
    assert "49 tokens around its text" in caught.value.message
    assert "--prompt-format raw" in caught.value.remedy
    build(chunk=32, formats=("raw",), tokenizer=toys.LongFrame())


def test_a_fixture_shorter_than_the_chat_frame_is_refused(build, toys):
    rows = [{"tokens": 49, "reuse_count": 1, "format": "chat"}]
    with pytest.raises(OptionError, match="--fixture"):
        build("acceptance", lengths=rows, tokenizer=toys.LongFrame())


@pytest.mark.parametrize("formats", [("chat",), ("raw", "chat")])
def test_a_missing_chat_template_is_never_replaced_by_raw(build, toys, formats):
    with pytest.raises(OptionError) as caught:
        build(formats=formats, tokenizer=toys.Base())
    assert caught.value.option == "--prompt-format"
    assert "--prompt-format raw" in caught.value.remedy
    assert build(formats=("raw",), tokenizer=toys.Base())


def test_a_tokenizer_that_makes_nothing_of_words_is_refused(build, toys):
    class Mute(toys.Words):
        def encode(self, text):
            return super().encode(text) if "notes" in text else []

    with pytest.raises(OptionError, match="--tokenizer"):
        build(tokenizer=Mute())
