# SPDX-License-Identifier: Apache-2.0
"""Each suite's prompts: lengths, scopes, formats, text; for any geometry, seed and format."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvseal.errors import OptionError
from kvseal.workload.probes.text import TITLES

STANDARD_256 = [255, 256, 257, 511, 512, 513, 271, 272, 273, 1504, 640, 704]


def common(first, second):
    pairs = zip(first, second, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


def test_standard_has_twelve_prompts_at_the_boundaries_twice(build):
    probes = build()
    assert [probe.tokens for probe in probes] == STANDARD_256 * 2
    assert [probe.reuse_count for probe in probes] == [1] * 12 + [3] * 12
    assert [probe.prompt_format for probe in probes[:12]].count("raw") == 6
    assert probes[0].id == "raw-255-x1"
    assert probes[12].token_ids == probes[0].token_ids
    assert probes[12].prompt == probes[0].prompt


def test_smoke_has_three_prompts_twice(build):
    probes = build("smoke", chunk=64, block=32)
    assert [probe.tokens for probe in probes] == [127, 128, 248] * 2
    assert {probe.prompt_format for probe in probes} == {"raw", "chat"}


@pytest.mark.parametrize("form", ["raw", "chat"])
def test_one_format_is_the_format_of_all(build, form):
    for suite in ("standard", "smoke"):
        assert {probe.prompt_format for probe in build(suite, formats=(form,))} == {form}


def test_a_fixture_is_taken_as_it_stands(build, l4_rows):
    probes = build("acceptance", formats=("chat",), lengths=l4_rows)
    assert [(probe.tokens, probe.reuse_count, probe.prompt_format) for probe in probes] == [
        (row["tokens"], row["reuse_count"], row["format"]) for row in l4_rows
    ]


def test_a_fixture_may_reuse_one_prompt_in_two_ways(build):
    rows = [{"tokens": 300, "reuse_count": count, "format": "raw"} for count in (1, 3)]
    first, second = build("acceptance", lengths=rows)
    assert first.prompt == second.prompt
    assert (first.id, second.id) == ("raw-300-x1", "raw-300-x3")


def test_the_frame_of_each_format_stands_around_the_text(build, toys):
    for probe in build(tokenizer=toys.Bytes()):
        before, after = (
            ((toys.BOS,), ())
            if probe.prompt_format == "raw"
            else (
                toys.BEFORE,
                toys.AFTER,
            )
        )
        ids = probe.token_ids
        assert ids[: len(before)] == before
        assert ids[len(ids) - len(after) :] == after
        assert all(token >= toys.RESERVED for token in ids[len(before) : len(ids) - len(after)])


def test_the_pair_shares_a_scope_and_parts_after_whole_chunks(build):
    probes = build()
    for count in (1, 3):
        first, second = [
            probe
            for probe in probes
            if probe.case.startswith("shared-prefix") and probe.reuse_count == count
        ]
        assert second.scope == first.scope == first.id
        assert first.cold_prefix_tokens == 0
        assert second.cold_prefix_tokens == common(first.token_ids, second.token_ids) == 512
        assert second.tokens != first.tokens
    others = [probe.scope for probe in probes if probe.case != "shared-prefix-second"]
    assert len(set(others)) == len(others)
    assert all(
        probe.cold_prefix_tokens == 0 for probe in probes if probe.case != "shared-prefix-second"
    )


def test_each_text_asks_for_a_fact_that_its_beginning_states(build, toys):
    tokenizer = toys.Words()
    for probe in build(tokenizer=tokenizer)[:12]:
        text = tokenizer.decode(probe.token_ids)
        last = text.rpartition(".")[2]
        raw = probe.prompt_format == "raw"
        start = last.index("above, ") + 7 if raw else last.index("does ") + 5
        words = last[start:].replace(" keep the ", " keeps the ").replace(",", "").split()
        assert " ".join(words[:4]) in text[: len(text) // 2]


@pytest.mark.parametrize(("suite", "least"), [("standard", 2), ("smoke", 1)])
def test_some_prompts_are_in_many_scripts(build, toys, suite, least):
    tokenizer = toys.Bytes()
    probes = build(suite, chunk=1024, reuse_counts=(1,), tokenizer=tokenizer)
    texts = [tokenizer.decode(probe.token_ids) for probe in probes]
    assert sum(not text.isascii() for text in texts) >= least
    several = next(
        text for probe, text in zip(probes, texts, strict=True) if probe.case == "several-chunks"
    )
    for low, high in ((0x4E00, 0x9FFF), (0x1F300, 0x1FAFF), (0x0590, 0x06FF), (0xC0, 0x17F)):
        assert any(low <= ord(character) <= high for character in several)


GEOMETRIES = st.tuples(
    st.sampled_from([1, 2, 4, 16, 32]), st.integers(1, 40), st.integers(0, 2**40)
)


@settings(max_examples=80)
@given(
    geometry=GEOMETRIES,
    kind=st.tuples(
        st.sampled_from(["standard", "smoke"]),
        st.sampled_from([("raw",), ("chat",), ("raw", "chat"), ("chat", "raw")]),
        st.integers(0, 2),
    ),
)
def test_any_geometry_and_seed(build, toys, geometry, kind):
    block, blocks, seed = geometry
    suite, formats, number = kind
    chunk = block * blocks
    tokenizer = toys.TOKENIZERS[number]

    def again(seed=seed):
        return build(
            suite, chunk=chunk, block=block, formats=formats, seed=seed, tokenizer=tokenizer()
        )

    try:
        probes = again()
    except OptionError as error:
        # Too small for the frame: what the error says would do is enough, and no less is.
        assert error.option == "--chunk-size"
        enough = int(error.expected.split()[-1])
        assert enough > chunk
        assert enough % block == 0
        build(suite, chunk=enough, block=block, formats=formats, seed=seed, tokenizer=tokenizer())
        with pytest.raises(OptionError, match="chunk-size"):
            less = max(chunk, enough - block)
            build(suite, chunk=less, block=block, formats=formats, seed=seed, tokenizer=tokenizer())
        return
    assert probes == again()
    prompts = [probe for probe in probes if probe.reuse_count == 1]
    assert len(prompts) == {"standard": 12, "smoke": 3}[suite]
    assert len(probes) == 2 * len(prompts)
    assert len({probe.id for probe in probes}) == len(probes)
    assert len({probe.prompt for probe in probes}) == len(prompts)
    assert [probe.tokens for probe in prompts[:2]] == (
        [chunk - 1, chunk] if suite == "standard" else [2 * chunk - 1, 2 * chunk]
    )
    assert all(str(probe.tokens) == probe.id.split("-")[1] for probe in probes)
    frame = len(tokenizer.before)
    for place, probe in enumerate(prompts):
        for other in prompts[:place]:
            alike = common(probe.token_ids, other.token_ids)
            if probe.scope == other.scope:
                assert 2 * chunk <= alike == probe.cold_prefix_tokens < probe.tokens
            else:
                # The frame is the model's; the text differs from its first token on.
                assert alike <= (frame if probe.prompt_format == "chat" else 1)
    assert {probe.token_ids for probe in again(seed + 1)}.isdisjoint(
        probe.token_ids for probe in probes
    )


@pytest.mark.parametrize("chunk", [96, 97, 128, 250])
def test_no_character_is_cut(build, toys, chunk):
    tokenizer = toys.Bytes()
    for probe in build(chunk=chunk, block=1, tokenizer=tokenizer):
        tokenizer.decode(probe.token_ids)


def test_one_block_a_chunk_still_gives_twelve_lengths(build):
    lengths = [probe.tokens for probe in build(chunk=64, block=64)[:12]]
    assert lengths == [63, 64, 65, 127, 128, 129, 191, 192, 193, 376, 160, 176]


def test_a_fixture_may_have_as_many_prompts_as_there_are_titles(build):
    rows = [{"tokens": 100 + n, "reuse_count": 1, "format": "raw"} for n in range(len(TITLES))]
    probes = build("acceptance", lengths=rows)
    assert len({probe.token_ids[1] for probe in probes}) == len(rows)
    with pytest.raises(OptionError, match="--fixture"):
        build("acceptance", lengths=[*rows, {**rows[0], "tokens": 99}])
