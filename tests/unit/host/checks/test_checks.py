# SPDX-License-Identifier: Apache-2.0
"""Every check must pass on a good machine and fail on one that lacks just its thing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kvseal.errors import OptionError
from kvseal.host.checks import CHECKS, Outcome, Status, run_checks
from kvseal.host.fact import Fact
from kvseal.host.facts import HostFacts
from kvseal.host.machine import Space
from kvseal.host.nvidia import Gpu
from kvseal.host.roots import Root
from kvseal.spec.runspec import RunSpec

GIB = 1 << 30
MakeSpec = Callable[..., RunSpec]
MakeFacts = Callable[..., HostFacts]


def gpu(**changes: Any) -> tuple[Gpu, ...]:
    fields: dict[str, Any] = {
        "index": 0,
        "uuid": "GPU-abc",
        "name": "NVIDIA A100",
        "memory_total_bytes": 80 * GIB,
        "memory_free_bytes": 79 * GIB,
        "driver": "580.65.06",
        "compute_capability": (8, 0),
    }
    return (Gpu(**(fields | changes)),)


def root(name: str, **changes: Any) -> Fact[Root]:
    fields: dict[str, Any] = {
        "path": f"/data/{name}",
        "existing": "/data",
        "free_bytes": 500 * GIB,
        "device": 1,
        "noexec": False,
        "problem": "",
    }
    return Fact(Root(**(fields | changes)), "invented")


def roots(**changed: dict[str, Any]) -> dict[str, Fact[Root]]:
    return {name: root(name, **changed.get(name, {})) for name in ("work", "results", "cache")}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("source", ["index", "git"])
def test_a_good_machine_passes_everything(
    make_facts: MakeFacts, make_spec: MakeSpec, device: str, source: str
) -> None:
    outcomes = run_checks(make_facts(), make_spec(device, **{"lmcache.source": source}))
    assert [item for item in outcomes if item.status is not Status.PASS] == []
    assert not any(item.remedies for item in outcomes)
    assert all(item.found and item.needed for item in outcomes)


# (device, changed facts, changed spec, name of the one check that must fail, word of its remedy)
FAILURES: list[tuple[str, dict[str, Any], dict[str, Any], str, str]] = [
    ("cpu", {"system": "Darwin"}, {}, "operating system", "Linux"),
    ("cpu", {"cpu_flags": ("sse2", "fma")}, {}, "CPU instruction set", "avx2"),
    ("cpu", {"architecture": "aarch64", "cpu_flags": ("fp",)}, {}, "CPU instruction set", "asimd"),
    ("cpu", {"architecture": "riscv64"}, {}, "CPU instruction set", "wheels"),
    ("cuda", {"architecture": "ppc64le"}, {}, "CPU instruction set", "wheels"),
    ("cpu", {"memory": Space(16 * GIB, 8 * GIB)}, {}, "host memory", "L1_SIZE_GB"),
    (
        "cpu",
        {"memory": Space(16 * GIB, 15 * GIB)},
        {"vllm.cpu_kv_gib": 8},
        "host memory",
        "CPU_KV_GB",
    ),
    ("cuda", {"memory": Space(16 * GIB, 10 * GIB)}, {}, "host memory", "L1_SIZE_GB"),
    (
        "cuda",
        {"shared_memory": Space(64 << 20, 64 << 20)},
        {},
        "shared memory in /dev/shm",
        "--shm-size",
    ),
    (
        "cpu",
        {"shared_memory": Space(64 * GIB, 3 * GIB)},
        {},
        "shared memory in /dev/shm",
        "segments",
    ),
    ("cpu", {"shared_memory": None}, {}, "shared memory in /dev/shm", "tmpfs"),
    ("cpu", {"roots": roots(work={"problem": "no right"})}, {}, "work root", "WORK_ROOT"),
    ("cpu", {"roots": roots(results={"problem": "no right"})}, {}, "results root", "RESULTS_ROOT"),
    ("cpu", {"roots": roots(cache={"noexec": True})}, {}, "cache root", "CACHE_ROOT"),
    (
        "cpu",
        {"roots": roots(cache={"free_bytes": 9 * GIB, "device": 2})},
        {},
        "disk for cache",
        "CACHE_ROOT",
    ),
    (
        "cuda",
        {"roots": roots(cache={"free_bytes": 9 * GIB, "device": 2})},
        {},
        "disk for cache",
        "CACHE_ROOT",
    ),
    (
        "cpu",
        {
            "roots": roots(
                work={"free_bytes": GIB, "device": 2}, results={"free_bytes": GIB, "device": 2}
            )
        },
        {},
        "disk for work and results",
        "WORK_ROOT",
    ),
    (
        "cpu",
        {"ports": {8000: Fact("process 7 (nginx), listening on 0.0.0.0", "invented")}},
        {"vllm.port": 8000},
        "port for vllm.port",
        "VLLM_PORT",
    ),
    ("cpu", {"running_python": "3.9.2"}, {}, "Python for kvseal", "newer Python"),
    ("cpu", {}, {"python": {"version": "3.14"}}, "Python for the engines", "PYTHON"),
    ("cpu", {"glibc": "2.17"}, {}, "C library", "newer distribution"),
    ("cpu", {"glibc": None}, {}, "C library", "newer distribution"),
    ("cpu", {"cxx_compiler": None}, {"lmcache.source": "git"}, "C++ compiler", "g++"),
    ("cpu", {"git": None}, {"lmcache.source": "git"}, "git", "install git"),
    ("cuda", {"c_compiler": None}, {}, "C compiler", "gcc"),
    ("cuda", {"nvcc": "12.4"}, {"lmcache.source": "git"}, "CUDA compiler", "CUDA 13"),
    ("cuda", {"driver": None}, {}, "NVIDIA driver", "install NVIDIA driver 580"),
    ("cuda", {"gpus": gpu()}, {"vllm.visible_devices": "0,3"}, "visible GPUs", "VISIBLE_DEVICES"),
    ("cuda", {"gpus": gpu(compute_capability=(7, 0))}, {}, "compute capability", "another GPU"),
    (
        "cuda",
        {"gpus": gpu(compute_capability=(7, 5))},
        {"vllm.dtype": "bfloat16"},
        "compute capability",
        "float16",
    ),
    ("cuda", {"gpus": gpu(memory_free_bytes=10 * GIB)}, {}, "GPU memory", "nvidia-smi"),
    (
        "cuda",
        {"gpus": gpu(memory_total_bytes=12 * GIB, memory_free_bytes=12 * GIB)},
        {},
        "GPU memory",
        "GPU_MEMORY_PERCENT",
    ),
]


@pytest.mark.parametrize(
    ("device", "facts", "spec", "name", "remedy"),
    FAILURES,
    ids=[f"{row[3]}-{number}" for number, row in enumerate(FAILURES)],
)
def test_each_check_fails_alone_and_says_what_to_do(
    make_facts: MakeFacts,
    make_spec: MakeSpec,
    *,
    device: str,
    facts: dict[str, Any],
    spec: dict[str, Any],
    name: str,
    remedy: str,
) -> None:
    outcomes = run_checks(make_facts(**facts), make_spec(device, **spec))
    failed = [item for item in outcomes if item.status is Status.FAIL]
    assert [item.name for item in failed] == [name]
    assert remedy in " ".join(failed[0].remedies)


def test_every_check_is_in_the_table_of_failures(
    make_facts: MakeFacts, make_spec: MakeSpec
) -> None:
    spec = make_spec("cuda", **{"vllm.port": 8000, "lmcache.source": "git"})
    names = {item.name for item in run_checks(make_facts(ports={8000: Fact("", "invented")}), spec)}
    covered = {row[3] for row in FAILURES} | {"CUDA runtime"}  # a test of its own below
    covered |= {"port for lmcache.port", "port for lmcache.http_port"}  # one function with vllm's
    assert {name for name in names if not name.startswith("disk for")} <= covered
    assert any(name.startswith("disk for") for name in covered)


@pytest.mark.parametrize(
    ("device", "facts", "spec", "name"),
    [
        ("cpu", {"cpu_flags": None}, {}, "CPU instruction set"),
        ("cpu", {"memory": None}, {}, "host memory"),
        ("cpu", {"engine_python": None}, {}, "Python for the engines"),
        ("cuda", {"cuda_version": None}, {}, "CUDA runtime"),
        ("cuda", {}, {"vllm.version": "0.99.0"}, "CUDA runtime"),
        ("cuda", {"gpus": gpu(compute_capability=None)}, {}, "compute capability"),
        ("cuda", {"gpus": gpu()}, {"vllm.visible_devices": "MIG-1"}, "visible GPUs"),
        ("cuda", {"nvcc": None}, {"lmcache.source": "git"}, "CUDA compiler"),
        ("cuda", {"driver": "tegra"}, {}, "NVIDIA driver"),
    ],
)
def test_what_the_machine_does_not_tell_is_unknown_and_no_failure(
    make_facts: MakeFacts,
    make_spec: MakeSpec,
    *,
    device: str,
    facts: dict[str, Any],
    spec: dict[str, Any],
    name: str,
) -> None:
    outcomes = run_checks(make_facts(**facts), make_spec(device, **spec))
    assert status(outcomes, name) is Status.UNKNOWN
    assert not [item for item in outcomes if item.status is Status.FAIL]


def status(outcomes: list[Outcome], name: str) -> Status:
    return next(item.status for item in outcomes if item.name == name)


def test_an_unknown_model_size_is_unknown_where_it_counts(
    make_facts: MakeFacts, make_spec: MakeSpec
) -> None:
    outcomes = run_checks(make_facts(model_parameters=None), make_spec())
    names = [item.name for item in outcomes if item.status is Status.UNKNOWN]
    assert names == ["GPU memory", "host memory", "disk for work and results and cache"]


@pytest.mark.parametrize(
    ("driver", "cuda", "driver_status", "cuda_status"),
    [
        ("580.65.06", (13, 0), Status.PASS, Status.PASS),
        ("590.10", (13, 1), Status.PASS, Status.PASS),
        ("575.51.03", (12, 9), Status.FAIL, Status.FAIL),
        ("470.82.01", (11, 4), Status.FAIL, Status.FAIL),
        # NVIDIA's forward compatibility package on a data-centre GPU.
        ("550.90.07", (13, 0), Status.PASS, Status.PASS),
    ],
)
def test_driver_and_runtime_against_the_wheel(
    make_facts: MakeFacts,
    make_spec: MakeSpec,
    *,
    driver: str,
    cuda: tuple[int, int],
    driver_status: Status,
    cuda_status: Status,
) -> None:
    outcomes = run_checks(make_facts(driver=driver, cuda_version=cuda), make_spec())
    assert status(outcomes, "NVIDIA driver") is driver_status
    assert status(outcomes, "CUDA runtime") is cuda_status


def test_a_gpu_is_chosen_by_index_uuid_or_its_beginning(
    make_facts: MakeFacts, make_spec: MakeSpec
) -> None:
    two = gpu() + gpu(index=1, uuid="GPU-abd", compute_capability=(7, 0))
    for devices, expected in [
        ("0", Status.PASS),
        ("1", Status.FAIL),
        ("GPU-abd", Status.FAIL),
        ("GPU-abc", Status.PASS),
        (" 0 , 1 ", Status.FAIL),
    ]:
        spec = make_spec(**{"vllm.visible_devices": devices})
        outcomes = run_checks(make_facts(gpus=two), spec)
        assert status(outcomes, "visible GPUs") is Status.PASS
        assert status(outcomes, "compute capability") is expected
    for devices in ("GPU-ab", "2", "", "x"):
        outcomes = run_checks(make_facts(gpus=two), make_spec(**{"vllm.visible_devices": devices}))
        assert status(outcomes, "visible GPUs") is Status.FAIL


def test_the_same_port_twice_and_the_holder_by_name(
    make_facts: MakeFacts, make_spec: MakeSpec
) -> None:
    free = {8000: Fact("", "invented")}
    spec = make_spec(**{"vllm.port": 8000, "lmcache.port": 8000})
    outcomes = run_checks(make_facts(ports=free), spec)
    assert status(outcomes, "port for vllm.port") is Status.FAIL
    assert status(outcomes, "port for lmcache.port") is Status.FAIL
    assert status(outcomes, "port for lmcache.http_port") is Status.PASS
    held = {8000: Fact("process 7 (nginx)", "invented")}
    outcomes = run_checks(make_facts(ports=held), make_spec(**{"vllm.port": 8000}))
    assert any("process 7 (nginx)" in item.found for item in outcomes)


def test_the_reference_model_counts_as_memory(make_facts: MakeFacts, make_spec: MakeSpec) -> None:
    tight = make_facts(memory=Space(32 * GIB, 12 * GIB))
    assert status(run_checks(tight, make_spec()), "host memory") is Status.PASS
    with_reference = make_spec(**{"snapkv.reference": True})
    assert status(run_checks(tight, with_reference), "host memory") is Status.FAIL


def test_an_environment_that_is_there_takes_no_more_disk(
    make_facts: MakeFacts, make_spec: MakeSpec
) -> None:
    full = roots(cache={"free_bytes": 5 * GIB, "device": 2})
    spec = make_spec()
    assert status(run_checks(make_facts(roots=full), spec), "disk for cache") is Status.FAIL
    ready = make_facts(roots=full, environment_ready=True)
    assert status(run_checks(ready, spec), "disk for cache") is Status.PASS


def test_a_root_that_cannot_be_looked_at_is_unknown(
    make_facts: MakeFacts, make_spec: MakeSpec
) -> None:
    there = roots()
    there["work"] = Fact(None, "invented", "Permission denied")
    assert status(run_checks(make_facts(roots=there), make_spec()), "work root") is Status.UNKNOWN


def test_a_device_without_checks_is_refused(make_facts: MakeFacts, make_spec: MakeSpec) -> None:
    with pytest.raises(OptionError, match="device"):
        run_checks(make_facts(), make_spec("tpu"))


def test_the_cpu_profile_asks_nothing_of_nvidia() -> None:
    assert {check.__name__ for check, devices in CHECKS if "cpu" not in devices} == {
        "driver",
        "cuda_runtime",
        "visible_devices",
        "compute_capability",
        "gpu_memory",
        "c_compiler",
        "nvcc",
    }
