# SPDX-License-Identifier: Apache-2.0
"""Variables that every vLLM here is started with, as a server or as a library.

Standard library only: the verifier's parent imports no HTTP client for it.
"""

from __future__ import annotations


def engine_environment(
    device: str, *, cpu_kv_gib: int, visible_devices: str | None
) -> dict[str, str]:
    """Return them, beyond the inherited ones; `visible_devices` None leaves CUDA's variable."""
    environment = {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "LMCACHE_TRACK_USAGE": "false",
        "LMCACHE_LOG_LEVEL": "INFO",
        "VLLM_LOGGING_LEVEL": "INFO",
        # LMCache's chunk hash must not differ between processes.
        "PYTHONHASHSEED": "0",
        "VLLM_HOST_IP": "127.0.0.1",
    }
    if device == "cpu":
        environment |= {
            "VLLM_CPU_KVCACHE_SPACE": str(cpu_kv_gib),
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            # Only this mode registers the engine's memory layout with the
            # server, and only it captures queries; on CPU `auto` picks another.
            "LMCACHE_MP_TRANSFER_MODE": "lmcache_driven",
        }
    elif visible_devices is not None:
        environment["CUDA_VISIBLE_DEVICES"] = visible_devices
    return environment
