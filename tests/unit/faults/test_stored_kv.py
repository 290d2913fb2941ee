# SPDX-License-Identifier: Apache-2.0
"""Each fault damages what it says, all of it and nothing else, and alike for the same draw."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch", reason="torch lives in the engine environment")

from kvseal.faults.stored_kv import FAULTS, Chunk  # noqa: E402

LAYERS, TOKENS, HEADS, SIZE = 4, 24, 3, 8
START, STOP = 8, 16
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
EVERY = pytest.mark.parametrize("dtype", DTYPES, ids=str)
NAMES = (
    "unchanged", "one_bit", "low_bytes", "values_zero_layer", "zero", "layers_swapped",
    "rolled", "shifted", "values_shifted", "foreign",
)  # fmt: skip


def tensors(seed, dtype):
    generator = torch.Generator().manual_seed(seed)
    shape = (LAYERS, TOKENS, HEADS, SIZE)
    return tuple((torch.rand(shape, generator=generator) + 0.5).to(dtype) for _ in range(2))


def chunk(dtype=torch.float32, seed=0, start=START, stop=STOP):
    keys, values = tensors(1, dtype)
    return Chunk(keys, values, start, stop, *tensors(2, dtype), random.Random(seed))  # noqa: S311


def bits(part):
    return part.contiguous().view({4: torch.int32, 2: torch.int16}[part.element_size()])


def changed(before, after):
    """Return where the bits differ, as [layers, tokens, heads, elements]."""
    return bits(before) != bits(after)


def where(mask):
    """Return the layers and tokens in which anything differs."""
    return (
        mask.flatten(1).any(1).nonzero().flatten().tolist(),
        mask.transpose(0, 1).flatten(1).any(1).nonzero().flatten().tolist(),
    )


INSIDE = list(range(START, STOP))
ALL = list(range(LAYERS))


def test_the_faults_are_these():
    assert tuple(FAULTS) == NAMES
    assert all(FAULTS[name].__name__ == name for name in NAMES)


@EVERY
@pytest.mark.parametrize("name", NAMES)
def test_nothing_outside_the_chunk_and_nothing_that_was_given(name, dtype):
    given = chunk(dtype)
    kept = [part.clone() for part in (given.keys, given.values, given.other_keys,
                                      given.other_values)]  # fmt: skip
    keys, values = FAULTS[name](given)
    after = (given.keys, given.values, given.other_keys, given.other_values)
    assert all(torch.equal(bits(one), bits(two)) for one, two in zip(kept, after, strict=True))
    for before, made in ((given.keys, keys), (given.values, values)):
        assert made.shape == before.shape
        assert made.dtype == before.dtype
        assert made.data_ptr() != before.data_ptr()
        mask = changed(before, made)
        assert not mask[:, :START].any()
        assert not mask[:, STOP:].any()
    differs = changed(given.keys, keys).any() or changed(given.values, values).any()
    assert bool(differs) == (name != "unchanged")


@EVERY
@pytest.mark.parametrize("name", NAMES)
def test_the_same_draw_gives_the_same_damage(name, dtype):
    one, two = FAULTS[name](chunk(dtype, 5)), FAULTS[name](chunk(dtype, 5))
    assert all(torch.equal(bits(a), bits(b)) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize("name", ["one_bit", "values_zero_layer", "layers_swapped"])
def test_another_draw_strikes_elsewhere(name):
    seen = set()
    for seed in range(20):
        given = chunk(seed=seed)
        keys, values = FAULTS[name](given)
        mask = changed(given.keys, keys) | changed(given.values, values)
        seen.add(str(mask.nonzero().tolist()))
    assert len(seen) > 3


@EVERY
def test_one_bit(dtype):
    spots = set()
    for seed in range(40):
        given = chunk(dtype, seed)
        keys, values = FAULTS["one_bit"](given)
        assert torch.equal(values, given.values)
        (spot,) = changed(given.keys, keys).nonzero().tolist()
        top = {torch.float32: 30, torch.float16: 14, torch.bfloat16: 14}[dtype]
        before, after = bits(given.keys)[tuple(spot)], bits(keys)[tuple(spot)]
        assert int(before ^ after) == 1 << top, "the highest bit of the exponent"
        ratio = abs(float(keys[tuple(spot)]) / float(given.keys[tuple(spot)]))
        assert not 1e-3 < ratio < 1e3
        spots.add(tuple(spot))
    layers, tokens, heads, elements = (set(axis) for axis in zip(*spots, strict=True))
    assert layers == set(ALL)
    assert tokens == set(INSIDE), "each token of the chunk, its first and last included"
    assert heads == set(range(HEADS))
    assert len(elements) > SIZE // 2


@EVERY
def test_low_bytes(dtype):
    given = chunk(dtype)
    keys, values = FAULTS["low_bytes"](given)
    assert torch.equal(keys, given.keys)
    difference = (bits(given.values) ^ bits(values))[:, START:STOP]
    assert (difference == 0xFF).all(), "every element of the chunk, in all layers"


def test_values_zero_layer():
    layers = set()
    for seed in range(20):
        given = chunk(seed=seed)
        keys, values = FAULTS["values_zero_layer"](given)
        assert torch.equal(keys, given.keys)
        struck, tokens = where(changed(given.values, values))
        assert len(struck) == 1
        assert tokens == INSIDE
        assert not values[struck[0], START:STOP].any()
        layers.update(struck)
    assert layers == set(ALL)


def test_zero():
    given = chunk()
    for before, made in zip((given.keys, given.values), FAULTS["zero"](given), strict=True):
        assert not made[:, START:STOP].any()
        assert where(changed(before, made)) == (ALL, INSIDE)


def test_layers_swapped():
    for seed in range(10):
        given = chunk(seed=seed)
        keys, values = FAULTS["layers_swapped"](given)
        struck = None
        for before, made in ((given.keys, keys), (given.values, values)):
            (one, other), tokens = where(changed(before, made))
            assert tokens == INSIDE
            assert torch.equal(made[one, START:STOP], before[other, START:STOP])
            assert torch.equal(made[other, START:STOP], before[one, START:STOP])
            assert struck in (None, (one, other)), "keys and values of the same layers"
            struck = (one, other)


def test_rolled_keeps_every_token_s_pair():
    given = chunk()
    keys, values = FAULTS["rolled"](given)
    order = [STOP - 1, *range(START, STOP - 1)]
    assert torch.equal(keys[:, START:STOP], given.keys[:, order])
    assert torch.equal(values[:, START:STOP], given.values[:, order])


def test_shifted_doubles_the_first_and_loses_the_last():
    given = chunk()
    keys, values = FAULTS["shifted"](given)
    order = [START, *range(START, STOP - 1)]
    assert torch.equal(keys[:, START:STOP], given.keys[:, order])
    assert torch.equal(values[:, START:STOP], given.values[:, order])


def test_values_shifted_parts_keys_from_values():
    given = chunk()
    keys, values = FAULTS["values_shifted"](given)
    assert torch.equal(keys, given.keys)
    order = [STOP - 1, *range(START, STOP - 1)]
    assert torch.equal(values[:, START:STOP], given.values[:, order])


def test_foreign():
    given = chunk()
    keys, values = FAULTS["foreign"](given)
    assert torch.equal(keys[:, START:STOP], given.other_keys[:, START:STOP])
    assert torch.equal(values[:, START:STOP], given.other_values[:, START:STOP])


@pytest.mark.parametrize(("start", "stop"), [(0, 8), (16, 24), (0, 24)])
@pytest.mark.parametrize("name", NAMES[1:])
def test_the_first_and_last_chunk(name, start, stop):
    given = chunk(start=start, stop=stop)
    mask = torch.zeros(TOKENS, dtype=torch.bool)
    for before, made in zip((given.keys, given.values), FAULTS[name](given), strict=True):
        mask |= changed(before, made).transpose(0, 1).flatten(1).any(1)
    struck = mask.nonzero().flatten().tolist()
    assert struck
    assert set(struck) <= set(range(start, stop))
