# SPDX-License-Identifier: Apache-2.0
"""The registry knows what each platform means by a format name, and refuses the rest."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch lives in the engine environment")

from kvseal.errors import LayoutError  # noqa: E402
from kvseal.layouts import KVGeometry, QueryLayout, cpu_candidates, layout_for  # noqa: E402

GEOMETRY = KVGeometry(2, 3, 64, 32, torch.float32)
BFLOAT16 = KVGeometry(2, 3, 64, 32, torch.bfloat16)


@pytest.mark.parametrize(
    ("engine_kv_format", "name"),
    [
        ("NL_X_NB_BS_NH_CS", "gpu-token-major-fused-float32"),
        ("NL_X_NB_NH_BS_CS", "gpu-token-major-fused-float32"),
        ("NL_X_TWO_NB_BS_NH_HS", "gpu-token-major-split-float32"),
        ("NL_X_NB_TWO_BS_NH_HS", "gpu-token-major-split-float32"),
        ("NL_X_TWO_NB_NH_BS_HS", "gpu-token-major-split-float32"),
        ("NL_X_NB_TWO_NH_BS_HS", "gpu-token-major-split-float32"),
    ],
)
def test_gpu_formats(engine_kv_format: str, name: str) -> None:
    assert layout_for(engine_kv_format, device="cuda", geometry=GEOMETRY).name == name


def test_the_same_format_name_is_another_layout_on_cpu() -> None:
    [packing] = cpu_candidates("vec", GEOMETRY)
    layout = layout_for("NL_X_NB_NH_BS_CS", device="cpu", geometry=GEOMETRY, cpu_layout=packing)
    assert layout.name == "cpu-vec-transposed-hnd-fused-b32-float32"


@pytest.mark.parametrize(
    ("engine_kv_format", "device"),
    [
        ("NL_X_NB_BS_NH_CS", "cpu"),  # never seen on a CPU
        ("NL_X_NB_TWO_NH_BS_HS", "cpu"),  # CPU before vLLM 0.26
        ("NL_X_NB_BS_HS", "cuda"),  # latent attention
        ("NB_NL_TWO_BS_NH_HS", "cuda"),
        ("NL_X_NB_BS_NH_CS", "xpu"),
    ],
)
def test_unknown_is_refused_by_name(engine_kv_format: str, device: str) -> None:
    with pytest.raises(LayoutError, match=engine_kv_format):
        layout_for(engine_kv_format, device=device, geometry=GEOMETRY)


def test_cpu_format_without_a_confirmed_packing_is_refused() -> None:
    with pytest.raises(LayoutError, match="without vLLM's own packing"):
        layout_for("NL_X_NB_NH_BS_CS", device="cpu", geometry=GEOMETRY)
    [other] = cpu_candidates("vec", BFLOAT16)
    with pytest.raises(LayoutError, match="without vLLM's own packing"):
        layout_for("NL_X_NB_NH_BS_CS", device="cpu", geometry=GEOMETRY, cpu_layout=other)


@pytest.mark.parametrize("isa", ["vec", "vec16", "neon", "rvv", "vxe", "vsx"])
def test_vector_instruction_sets_have_one_packing_in_float32(isa: str) -> None:
    [layout] = cpu_candidates(isa, GEOMETRY)
    assert layout.name == f"cpu-{isa}-transposed-hnd-fused-b32-float32"


def test_matrix_instruction_sets_pack_bfloat16_in_tiles() -> None:
    assert [layout.packing for layout in cpu_candidates("amx", BFLOAT16)] == ["amx16x2"]
    # Arm: how vLLM was compiled decides, so both are tried.
    assert [layout.packing for layout in cpu_candidates("neon", BFLOAT16)] == [
        "bfmmla8x4",
        "transposed",
    ]


@pytest.mark.parametrize("isa", ["amx", "sve", ""])
def test_instruction_set_without_a_layout_is_refused(isa: str) -> None:
    with pytest.raises(LayoutError, match=f"{isa} with float32"):
        cpu_candidates(isa, GEOMETRY)


def test_queries_are_split_by_head() -> None:
    layout = QueryLayout(layers=2, query_heads=3, head_size=4, dtype=torch.float32)
    packed = torch.arange(2 * 5 * 12, dtype=torch.float32).reshape(1, 2, 5, 12)
    queries = layout.unpack(packed)
    assert queries.shape == (2, 5, 3, 4)
    assert queries[1, 4, 2].tolist() == packed[0, 1, 4, 8:].tolist()
    assert torch.equal(layout.unpack(packed[0]), queries)
    assert layout.name == "query-token-major-float32"


@pytest.mark.parametrize("shape", [(2, 2, 5, 12), (1, 2, 5, 11), (1, 3, 5, 12), (2, 5)], ids=str)
def test_queries_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    layout = QueryLayout(layers=2, query_heads=3, head_size=4, dtype=torch.float32)
    with pytest.raises(LayoutError, match="query tensor does not fit"):
        layout.unpack(torch.zeros(shape))
