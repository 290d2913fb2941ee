# SPDX-License-Identifier: Apache-2.0
"""GPU layouts against LMCache's own gather: it is what makes an SDK tensor of engine memory."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch lives in the engine environment")
pytest.importorskip("lmcache", reason="LMCache lives in the engine environment")

from lmcache import lmcache_native  # noqa: E402
from lmcache.v1.gpu_connector import utils as lmcache_utils  # noqa: E402
from lmcache.v1.multiprocess.transfer_context import base as lmcache_transfer  # noqa: E402

from kvseal.layouts import KVGeometry, layout_for  # noqa: E402

LAYERS, HEADS, SIZE, BLOCK, BLOCKS = 3, 2, 64, 16, 6
GEOMETRY = KVGeometry(LAYERS, HEADS, SIZE, BLOCK, torch.float16)


def paged(engine_kv_format: str, keys: Any, values: Any) -> Any:
    """One layer's `[blocks, block, heads, size]` keys and values in an engine's own shape."""
    match engine_kv_format:
        case "NL_X_NB_BS_NH_CS":
            return torch.cat((keys, values), -1)
        case "NL_X_NB_NH_BS_CS":
            return torch.cat((keys, values), -1).transpose(1, 2)
        case "NL_X_TWO_NB_BS_NH_HS":
            return torch.stack((keys, values))
        case "NL_X_NB_TWO_BS_NH_HS":
            return torch.stack((keys, values), 1)
        case "NL_X_TWO_NB_NH_BS_HS":
            return torch.stack((keys, values)).transpose(2, 3)
        case _:
            return torch.stack((keys, values), 1).transpose(2, 3)


@pytest.mark.parametrize(
    "engine_kv_format",
    [
        "NL_X_NB_BS_NH_CS",
        "NL_X_NB_NH_BS_CS",
        "NL_X_TWO_NB_BS_NH_HS",
        "NL_X_NB_TWO_BS_NH_HS",
        "NL_X_TWO_NB_NH_BS_HS",
        "NL_X_NB_TWO_NH_BS_HS",
    ],
)
def test_what_lmcache_gathers_is_taken_apart(
    engine_kv_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(5)
    shape = (2, LAYERS, BLOCKS, BLOCK, HEADS, SIZE)
    keys, values = torch.randn(shape, generator=generator).half()
    caches = {
        f"l{i}": paged(engine_kv_format, keys[i], values[i]).contiguous() for i in range(LAYERS)
    }
    wanted = getattr(lmcache_native.EngineKVFormat, engine_kv_format)
    # Detection looks at the platform, which is a CPU here: say what a GPU's engine declares.
    monkeypatch.setattr(
        lmcache_utils, "normalize_kv_and_discover_format", lambda kv, *_, **__: (wanted, kv)
    )
    order = [4, 0, 5, 2]

    [gathered] = lmcache_transfer.gather_paged_kv_to_cpu(
        caches, order, blocks_per_chunk=len(order), engine_kv_format=wanted
    )

    layout = layout_for(engine_kv_format, device="cuda", geometry=GEOMETRY)
    read_keys, read_values = layout.unpack(gathered)
    expected = (LAYERS, len(order) * BLOCK, HEADS, SIZE)
    assert torch.equal(read_keys, keys[:, order].reshape(expected))
    assert torch.equal(read_values, values[:, order].reshape(expected))
    assert torch.equal(layout.pack(read_keys, read_values).reshape(gathered.shape), gathered)
