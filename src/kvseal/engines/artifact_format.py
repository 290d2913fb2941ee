# SPDX-License-Identifier: Apache-2.0
"""Is KV of a manifest's format what a running engine can use? Asked before a store.

The engine's geometry is what was read of it, one rank that holds every head. An
artifact of a tensor-parallel engine, gathered or not, is of another format: its
own engine splits what this one would read whole. Model, revision and rotary
embedding an engine does not tell; whoever knows them passes an expected format
to the checks of the artifact. Called by kvseal.engines.sealed.
"""

from __future__ import annotations

from kvseal.engines.geometry import EngineGeometry
from kvseal.errors import TransformError
from kvseal.identity.parts import Format


def check_engine_format(form: Format, geometry: EngineGeometry, kv_layout: str) -> None:
    """Refuse a format that differs from an engine's, whose layout is named `kv_layout`.

    Raises:
        TransformError: naming the first field that differs.
    """
    kv = geometry.kv
    for name, expected in (
        ("tensor_parallel", geometry.tensor_parallel),
        ("kv_layout", kv_layout),
        ("dtype", str(kv.dtype).removeprefix("torch.")),
        ("layers", kv.layers),
        ("kv_heads", kv.kv_heads),
        ("head_size", kv.head_size),
    ):
        found = getattr(form, name)
        if found != expected:
            raise TransformError(
                "an artifact is of another format than this engine's KV cache; nothing was stored",
                option=f"format.{name}",
                value=found,
                expected=str(expected),
                remedy="transform KV that was read from this engine, with all of its heads",
            )
