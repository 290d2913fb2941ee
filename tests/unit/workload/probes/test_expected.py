# SPDX-License-Identifier: Apache-2.0
"""Expected hits against counts that were seen, and their bounds for any lengths."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvseal.errors import EvidenceError
from kvseal.workload.probes import TARGETS, Geometry, expected_cached

L4 = Geometry(chunk_tokens=256, block_tokens=16, max_model_len=2048)


@pytest.mark.parametrize(
    ("tokens", "lmcache", "native"),
    [
        (255, 0, 240),
        (256, 255, 240),
        (257, 256, 256),
        (511, 256, 496),
        (512, 511, 496),
        (513, 512, 512),
        (1500, 1280, 1488),
    ],
)
def test_counts_that_were_seen(tokens, lmcache, native):
    assert expected_cached("lmcache", tokens, L4) == lmcache
    assert expected_cached("mp", tokens, L4) == lmcache
    assert expected_cached("native", tokens, L4) == native


@pytest.mark.parametrize(
    ("prefix", "lmcache", "native"),
    [(0, 0, 0), (15, 0, 0), (16, 0, 16), (511, 256, 496), (512, 512, 512), (530, 512, 528)],
)
def test_a_known_prefix_counts_in_whole_chunks_or_blocks(prefix, lmcache, native):
    assert expected_cached("lmcache", 640, L4, prefix) == lmcache
    assert expected_cached("native", 640, L4, prefix) == native


@given(
    target=st.sampled_from(TARGETS),
    block=st.integers(1, 64),
    blocks=st.integers(1, 32),
    tokens=st.integers(1, 5000),
    data=st.data(),
)
def test_the_last_token_is_always_computed(target, block, blocks, tokens, data):
    geometry = Geometry(block * blocks, block, 8192)
    prefix = data.draw(st.integers(0, tokens))
    whole = expected_cached(target, tokens, geometry)
    part = expected_cached(target, tokens, geometry, prefix)
    assert 0 <= part <= whole < tokens
    assert part <= prefix
    assert expected_cached(target, tokens, geometry, tokens) == whole
    unit = block if target == "native" else block * blocks
    assert whole % unit == 0 or (target != "native" and whole + 1 == tokens)


@pytest.mark.parametrize(
    ("target", "tokens", "prefix"),
    [("control", 10, None), ("native", 0, None), ("native", 5, 6), ("mp", 5, -1)],
)
def test_what_no_prompt_has_is_refused(target, tokens, prefix):
    with pytest.raises(EvidenceError):
        expected_cached(target, tokens, L4, prefix)
