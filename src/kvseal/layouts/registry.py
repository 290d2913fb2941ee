# SPDX-License-Identifier: Apache-2.0
"""Choose the layout for what a server declares; whatever is unknown is refused.

Format names are those of `lmcache.lmcache_native.EngineKVFormat`. The same
name means different bytes on a CPU and on a GPU, so the device decides first.
A CPU format needs the packing that vLLM's kernels use on the engine's machine
too: `cpu_candidates` lists what an instruction set may use, and
kvseal.engines.cpu_packing asks vLLM which one it is.
"""

from __future__ import annotations

import torch

from kvseal.errors import LayoutError
from kvseal.layouts.base import DTYPES, KVGeometry, KVLayout
from kvseal.layouts.cpu_blocks import CpuBlockLayout
from kvseal.layouts.cpu_tiled import AMX, BFMMLA, CpuTiledLayout
from kvseal.layouts.cpu_transposed import CpuTransposedLayout
from kvseal.layouts.gpu_packed import GpuPackedLayout
from kvseal.layouts.gpu_split import GpuSplitLayout

CPU_FORMAT = "NL_X_NB_NH_BS_CS"
GPU_PACKED_FORMATS = ("NL_X_NB_BS_NH_CS", "NL_X_NB_NH_BS_CS")
GPU_SPLIT_FORMATS = (
    "NL_X_TWO_NB_BS_NH_HS",
    "NL_X_NB_TWO_BS_NH_HS",
    "NL_X_TWO_NB_NH_BS_HS",
    "NL_X_NB_TWO_NH_BS_HS",
)
VECTOR_ISAS = ("vec", "vec16", "neon", "rvv", "vxe", "vsx")
CPU_ISAS = (*VECTOR_ISAS, "amx")
"""Instruction sets of vLLM 0.28.0's CPU attention, by its own names."""


def cpu_candidates(isa: str, geometry: KVGeometry) -> list[CpuBlockLayout]:
    """Return the layouts that `isa` may use for `geometry`, likeliest first.

    Raises:
        LayoutError: when there is none.
    """
    if isa in VECTOR_ISAS:
        transposed = CpuTransposedLayout(geometry, isa)
        if isa == "neon" and geometry.dtype == torch.bfloat16:
            # Which of the two depends on how vLLM was compiled.
            return [CpuTiledLayout(geometry, isa, BFMMLA), transposed]
        return [transposed]
    if isa == "amx" and geometry.dtype == torch.bfloat16:
        return [CpuTiledLayout(geometry, isa, AMX)]
    raise LayoutError(
        "no CPU layout is known for this instruction set and dtype",
        option="instruction set of vLLM's CPU attention",
        value=f"{isa} with {DTYPES[geometry.dtype]}",
        expected=", ".join(CPU_ISAS) + " (amx with bfloat16 only)",
        remedy="report it with the vLLM version; nothing was read or written",
    )


def layout_for(
    engine_kv_format: str,
    *,
    device: str,
    geometry: KVGeometry,
    cpu_layout: CpuBlockLayout | None = None,
) -> KVLayout:
    """Return the layout of tensors in `engine_kv_format`.

    Args:
        engine_kv_format: as in `/status` of the LMCache server.
        device: `cpu` or `cuda`, where the engine's KV cache is.
        geometry: sizes and element type of that cache.
        cpu_layout: on `cpu`, the packing that vLLM's operator confirmed.

    Raises:
        LayoutError: for a format, or a combination, that is not known.
    """
    if device == "cpu" and engine_kv_format == CPU_FORMAT:
        if cpu_layout is None or cpu_layout.geometry != geometry:
            raise LayoutError(
                "a CPU layout was asked for without vLLM's own packing for this geometry",
                value=None if cpu_layout is None else cpu_layout.name,
                expected="the result of kvseal.engines.cpu_packing.confirmed_layout",
            )
        return cpu_layout
    if device == "cuda" and engine_kv_format in GPU_PACKED_FORMATS:
        return GpuPackedLayout(geometry)
    if device == "cuda" and engine_kv_format in GPU_SPLIT_FORMATS:
        return GpuSplitLayout(geometry)
    known = (CPU_FORMAT,) if device == "cpu" else (*GPU_PACKED_FORMATS, *GPU_SPLIT_FORMATS)
    raise LayoutError(
        f"no layout is known for this KV cache format on device {device!r}",
        option="engine_kv_format",
        value=engine_kv_format,
        expected=", ".join(known) if device in {"cpu", "cuda"} else "device cpu or cuda",
        remedy="use a vLLM and LMCache version that docs/upstream-notes.md lists as run",
    )
