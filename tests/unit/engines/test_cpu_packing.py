# SPDX-License-Identifier: Apache-2.0
"""CPU layouts against the memory that vLLM's own cache-writing operator writes."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch lives in the engine environment")
pytest.importorskip("vllm", reason="vLLM lives in the engine environment")

from vllm import _custom_ops  # noqa: E402

from kvseal.engines import cpu_packing  # noqa: E402
from kvseal.errors import LayoutError  # noqa: E402
from kvseal.layouts import KVGeometry, cpu_candidates  # noqa: E402
from kvseal.layouts.cpu_tiled import AMX, CpuTiledLayout  # noqa: E402
from kvseal.layouts.cpu_transposed import CpuTransposedLayout  # noqa: E402
from kvseal.layouts.registry import CPU_ISAS  # noqa: E402

pytestmark = pytest.mark.skipif(
    not hasattr(torch.ops._C, "cpu_attn_reshape_and_cache"),
    reason="the installed vLLM has no CPU attention",
)


def runs_here(isa: str, geometry: KVGeometry) -> bool:
    try:
        cpu_packing.operator_confirms(CpuTransposedLayout(geometry, isa))
    except LayoutError:
        return False
    return True


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("block", [16, 32, 48, 64, 128])
@pytest.mark.parametrize("isa", CPU_ISAS)
def test_operator_and_layout_agree_or_the_instruction_set_is_refused(
    isa: str, block: int, dtype: torch.dtype
) -> None:
    geometry = KVGeometry(1, 2, 64, block, dtype)
    if not runs_here(isa, geometry):
        # That vLLM can't run it here must be an error, never an unproven layout.
        try:
            candidates = cpu_candidates(isa, geometry)
        except LayoutError:
            return  # refused one step earlier: no layout of that name
        for layout in candidates:
            with pytest.raises(LayoutError, match="does not run"):
                cpu_packing.operator_confirms(layout)
        return
    assert any(cpu_packing.operator_confirms(layout) for layout in cpu_candidates(isa, geometry))


def test_some_instruction_set_was_really_compared() -> None:
    geometry = KVGeometry(1, 2, 64, 32, torch.float32)
    assert [isa for isa in CPU_ISAS if runs_here(isa, geometry)]


@pytest.mark.parametrize("head_size", [32, 64, 80, 112, 128])
@pytest.mark.parametrize("block", [16, 32, 128])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_vllms_own_choice_is_confirmed(dtype: torch.dtype, block: int, head_size: int) -> None:
    geometry = KVGeometry(4, 3, head_size, block, dtype)
    layout = cpu_packing.confirmed_layout(geometry)
    assert layout.geometry == geometry
    assert layout.isa == cpu_packing.vllm_isa(geometry)
    assert f"-b{block}-" in layout.name


def test_a_whole_sequence_in_scattered_blocks_is_read_back() -> None:
    """Blocks out of order, several heads, one token at a time: as the engine fills its cache."""
    geometry = KVGeometry(1, 3, 64, 32, torch.float32)
    layout = cpu_packing.confirmed_layout(geometry)
    keys, values = torch.randn(2, 96, 3, 64)
    cache = torch.zeros(8, 3, 64, 64)
    key_cache, value_cache = cache.chunk(2, dim=2)
    blocks = torch.tensor([5, 0, 3])
    for token in range(96):
        slot = blocks[token // 32] * 32 + token % 32
        _custom_ops.cpu_attn_reshape_and_cache(
            *(keys[token : token + 1], values[token : token + 1]),
            *(key_cache, value_cache, slot[None], layout.isa),
        )
    rows = cache[blocks].view(3, 3, 32, 128).transpose(1, 2).reshape(1, 1, 96, 384)
    read_keys, read_values = layout.unpack(rows)
    assert torch.equal(read_keys[0], keys)
    assert torch.equal(read_values[0], values)


def test_a_wrong_packing_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    geometry = KVGeometry(2, 2, 64, 32, torch.bfloat16)
    isa = cpu_packing.vllm_isa(geometry)
    wrong = CpuTransposedLayout if isa == "amx" else lambda g, i: CpuTiledLayout(g, i, AMX)
    monkeypatch.setattr(cpu_packing, "cpu_candidates", lambda i, g: [wrong(g, i)])
    with pytest.raises(LayoutError, match="in a way that no layout here knows"):
        cpu_packing.confirmed_layout(geometry)


def test_an_instruction_set_the_operator_does_not_have_is_refused() -> None:
    geometry = KVGeometry(1, 2, 64, 32, torch.float32)
    with pytest.raises(LayoutError, match="does not run"):
        cpu_packing.operator_confirms(CpuTransposedLayout(geometry, "no-such-isa"))
