# SPDX-License-Identifier: Apache-2.0
"""Every layout is a bijection: pack and unpack are inverses in both directions, bit by bit."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch", reason="torch lives in the engine environment")

from kvseal.errors import LayoutError  # noqa: E402
from kvseal.layouts import KVGeometry, KVLayout  # noqa: E402
from kvseal.layouts.cpu_tiled import AMX, BFMMLA, CpuTiledLayout  # noqa: E402
from kvseal.layouts.cpu_transposed import CpuTransposedLayout  # noqa: E402
from kvseal.layouts.gpu_packed import GpuPackedLayout  # noqa: E402
from kvseal.layouts.gpu_split import GpuSplitLayout  # noqa: E402

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def make(kind: str, geometry: KVGeometry) -> KVLayout:
    return {
        "transposed": lambda: CpuTransposedLayout(geometry, "vec"),
        "amx": lambda: CpuTiledLayout(geometry, "amx", AMX),
        "bfmmla": lambda: CpuTiledLayout(geometry, "neon", BFMMLA),
        "packed": lambda: GpuPackedLayout(geometry),
        "split": lambda: GpuSplitLayout(geometry),
    }[kind]()


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)


def any_bits(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Random bit patterns, NaNs and infinities included: a layout may not care."""
    generator = torch.Generator().manual_seed(seed)
    raw = torch.randint(0, 256, (*shape, dtype.itemsize), generator=generator, dtype=torch.uint8)
    return raw.view(dtype).squeeze(-1)


@pytest.mark.parametrize("kind", ["transposed", "amx", "bfmmla", "packed", "split"])
@pytest.mark.parametrize("seed", range(12))
def test_pack_and_unpack_are_inverses(kind: str, seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311  (test data)
    block = rng.choice([16, 32, 48, 64, 128])
    geometry = KVGeometry(
        layers=rng.randint(1, 4),
        kv_heads=rng.randint(1, 5),
        head_size=rng.choice([32, 64, 80, 112, 128]),
        block_size_tokens=block,
        dtype=rng.choice(DTYPES),
    )
    layout = make(kind, geometry)
    tokens = rng.randint(1, 4) * block if layout.block_aligned else rng.randint(1, 200)
    canonical = (geometry.layers, tokens, geometry.kv_heads, geometry.head_size)
    keys = any_bits(canonical, geometry.dtype, seed)
    values = any_bits(canonical, geometry.dtype, seed + 1000)

    packed = layout.pack(keys, values)

    assert packed.shape == (layout.planes, geometry.layers, tokens, layout.width)
    again = layout.unpack(packed)
    assert torch.equal(bits(again[0]), bits(keys))
    assert torch.equal(bits(again[1]), bits(values))
    memory = any_bits(tuple(packed.shape), geometry.dtype, seed + 2000)
    assert torch.equal(bits(layout.pack(*layout.unpack(memory))), bits(memory))


@pytest.mark.parametrize("kind", ["transposed", "amx", "bfmmla"])
def test_a_block_does_not_depend_on_its_neighbours(kind: str) -> None:
    layout = make(kind, KVGeometry(2, 3, 64, 32, torch.bfloat16))
    keys = any_bits((2, 96, 3, 64), torch.bfloat16, 1)
    values = any_bits((2, 96, 3, 64), torch.bfloat16, 2)
    whole = layout.pack(keys, values)
    middle = layout.pack(keys[:, 32:64], values[:, 32:64])
    assert torch.equal(bits(whole[:, :, 32:64]), bits(middle))


def test_transposed_block_stands_where_the_kernel_reads_it() -> None:
    geometry = KVGeometry(1, 1, 4, 2, torch.float32)
    keys = torch.tensor([[1.0, 2, 3, 4], [5, 6, 7, 8]]).reshape(1, 2, 1, 4)
    values = keys + 10
    packed = CpuTransposedLayout(geometry, "vec").pack(keys, values)
    assert packed.flatten().tolist() == [
        *(1, 5, 2, 6, 3, 7, 4, 8),  # keys: head element by head element
        *(11, 12, 13, 14, 15, 16, 17, 18),  # values: token by token
    ]


def test_amx_tiles_stand_where_the_kernel_reads_them() -> None:
    geometry = KVGeometry(1, 1, 32, 32, torch.bfloat16)
    index = torch.arange(32 * 32).reshape(1, 32, 1, 32)
    token, element = index // 32, index % 32
    layout = CpuTiledLayout(geometry, "amx", AMX)
    by_token = layout.pack(token.bfloat16(), token.bfloat16()).flatten().tolist()
    by_element = layout.pack(element.bfloat16(), element.bfloat16()).flatten().tolist()
    # Keys: pairs of elements, 16 tokens a row, then the next pair; then 16 tokens on.
    assert list(zip(by_token[:4], by_element[:4], strict=True)) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert (by_token[32], by_element[32]) == (0, 2)
    assert (by_token[512], by_element[512]) == (16, 0)
    # Values: pairs of tokens, 16 elements a row, then the next pair; then 16 elements on.
    first = 32 * 32
    assert (by_token[first + 1], by_element[first + 1]) == (1, 0)
    assert (by_token[first + 2], by_element[first + 2]) == (0, 1)
    assert (by_token[first + 32], by_element[first + 32]) == (2, 0)
    assert (by_token[first + 512], by_element[first + 512]) == (0, 16)


def test_a_cut_block_is_refused() -> None:
    layout = make("transposed", KVGeometry(1, 1, 64, 32, torch.float32))
    with pytest.raises(LayoutError, match="multiple of the block of 32"):
        layout.unpack(torch.zeros(1, 1, 40, layout.width))
    with pytest.raises(LayoutError, match="multiple of the block of 32"):
        layout.check_tokens(0)


def test_foreign_shape_and_dtype_are_refused() -> None:
    layout = make("packed", KVGeometry(2, 3, 64, 16, torch.float16))
    good = torch.zeros(1, 2, 5, layout.width, dtype=torch.float16)
    layout.unpack(good)
    layout.unpack(good[0])
    for bad in (good.float(), good[..., :-1], good[:, :1], good.expand(2, -1, -1, -1)):
        with pytest.raises(LayoutError, match="do not fit layout gpu-token-major-fused-float16"):
            layout.unpack(bad)
    keys = torch.zeros(2, 5, 3, 64, dtype=torch.float16)
    with pytest.raises(LayoutError, match="values do not fit"):
        layout.pack(keys, keys[:, :4])


def test_tiles_that_do_not_divide_the_block_are_refused() -> None:
    with pytest.raises(LayoutError, match="whole tiles"):
        make("amx", KVGeometry(1, 1, 40, 32, torch.bfloat16))


def test_quantized_cache_has_no_geometry() -> None:
    with pytest.raises(LayoutError, match="element type"):
        KVGeometry(1, 1, 64, 32, torch.uint8)
