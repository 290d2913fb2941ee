# SPDX-License-Identifier: Apache-2.0
"""The process of one vLLM engine: builds it, describes it, answers until told to stop.

Scheduler and worker live in this very process, so the connector objects that
really work are at hand and their classes can be read after the start. Nothing
is compiled and no CUDA graph is captured: control and candidates must not
differ in what they warmed up. Run by kvseal.engines.offline.client.
"""

from __future__ import annotations

import math
import os
import re
import threading
from multiprocessing.connection import Client
from typing import Any, cast

from kvseal.engines.offline.protocol import (
    ADDRESS_VARIABLE,
    TOP_LOGPROBS,
    Answer,
    EngineArguments,
    Question,
    json_values,
    plain,
    receive,
    send,
)

_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)

LEAVE_SECONDS = 8.0
"""Orderly ends took 3 s. LMCache 0.5.4 inside the process was seen to keep it for good."""


class Engine:
    """One vLLM engine."""

    def __init__(self, arguments: EngineArguments) -> None:
        from vllm import LLM
        from vllm.config import KVTransferConfig

        options: dict[str, Any] = {}
        if arguments.kv_transfer is not None:
            options["kv_transfer_config"] = KVTransferConfig(**arguments.kv_transfer)
        if arguments.gpu_memory_fraction is not None:
            options["gpu_memory_utilization"] = arguments.gpu_memory_fraction
        self._llm: Any = LLM(
            arguments.model,
            tokenizer=arguments.tokenizer,
            dtype=arguments.dtype,
            block_size=arguments.block_size_tokens,
            max_model_len=arguments.max_model_len_tokens,
            # A prompt is one prefill step, so that no chunking differs between two answers.
            max_num_batched_tokens=arguments.max_model_len_tokens,
            enable_prefix_caching=arguments.prefix_caching,
            enforce_eager=True,
            seed=arguments.seed,
            **options,
        )

    def describe(self) -> dict[str, Any]:
        """Return the engine's effective configuration and what was really loaded."""
        import torch
        import vllm

        config = self._llm.llm_engine.vllm_config
        transfer = config.kv_transfer_config
        cache, model = config.cache_config, config.model_config
        described: dict[str, Any] = {
            "vllm": {"version": vllm.__version__, "file": vllm.__file__},
            "torch": {
                "version": torch.__version__,
                "file": torch.__file__,
                "cuda": torch.version.cuda,
            },
            "executor": _class_name(self._llm.llm_engine.engine_core.engine_core.model_executor),
            "model": {
                "path": str(model.model),
                "tokenizer": str(model.tokenizer),
                "dtype": str(model.dtype),
                "max_model_len": model.max_model_len,
                "enforce_eager": model.enforce_eager,
                "quantization": model.quantization,
                "seed": model.seed,
            },
            "cache": {
                "block_size": cache.block_size,
                "cache_dtype": str(cache.cache_dtype),
                "enable_prefix_caching": cache.enable_prefix_caching,
                "gpu_memory_utilization": cache.gpu_memory_utilization,
                "num_gpu_blocks": cache.num_gpu_blocks,
                "prefix_caching_hash_algo": str(cache.prefix_caching_hash_algo),
            },
            "parallel": {
                "tensor": config.parallel_config.tensor_parallel_size,
                "pipeline": config.parallel_config.pipeline_parallel_size,
            },
            "scheduler": {
                "max_num_batched_tokens": config.scheduler_config.max_num_batched_tokens,
                "max_num_seqs": config.scheduler_config.max_num_seqs,
            },
            "kv_transfer_config": None if transfer is None else _kv_transfer(transfer),
            "connector": self._connectors(),
            "sampling": self.sampling_fields(),
            "device": _device(),
            "environment": _environment(),
        }
        if transfer is not None:
            described["lmcache"] = _lmcache(transfer.kv_connector)
        return cast(dict[str, Any], json_values(described))

    def _connectors(self) -> dict[str, str | None]:
        """Classes of the connector objects at work, by the side they serve."""
        from vllm.distributed.kv_transfer import get_kv_transfer_group, has_kv_transfer_group

        core = self._llm.llm_engine.engine_core.engine_core
        scheduler = getattr(core.scheduler, "connector", None)
        worker = get_kv_transfer_group() if has_kv_transfer_group() else None
        return {
            "scheduler": None if scheduler is None else _class_name(scheduler),
            "worker": None if worker is None else _class_name(worker),
        }

    def sampling_fields(self) -> dict[str, Any]:
        """Return the sampling parameters as they take effect, but what a question sets."""
        sampling = self.sampling(Question([], 1, 0, ""))
        return {
            name: getattr(sampling, name)
            for name in sampling.__struct_fields__
            if not name.startswith("_") and name not in ("max_tokens", "seed", "extra_args")
        }

    def sampling(self, question: Question) -> Any:
        """Return the sampling parameters of a question: greedy, one candidate, fixed length."""
        from vllm import SamplingParams

        extra = {"kv_transfer_params": question.kv_transfer_params}
        return SamplingParams(
            n=1,
            temperature=0.0,
            max_tokens=question.max_tokens,
            seed=question.seed,
            # An early end of sequence would leave fewer tokens to compare.
            ignore_eos=True,
            logprobs=TOP_LOGPROBS,
            detokenize=False,
            extra_args=extra if question.kv_transfer_params else None,
        )

    def stop(self) -> None:
        """Shut scheduler, worker and connector down, so that a cache server loses its client."""
        self._llm.llm_engine.engine_core.shutdown()

    def answer(self, question: Question) -> Answer:
        """Generate for one prompt."""
        output = self._llm.generate(
            [{"prompt_token_ids": question.token_ids, "cache_salt": question.scope}],
            self.sampling(question),
            use_tqdm=False,
        )[0]
        (completion,) = output.outputs
        top2 = [_best(step) for step in completion.logprobs or []]
        return Answer(
            prompt_token_ids=list(output.prompt_token_ids),
            token_ids=list(completion.token_ids),
            cached_tokens=output.num_cached_tokens,
            finish_reason=completion.finish_reason,
            top2=top2,
        )


def _best(step: dict[int, Any]) -> list[list[Any]] | None:
    """The best tokens of one step with their log-probabilities, None where one is no number."""
    best = sorted(step.items(), key=lambda item: item[1].rank)[:TOP_LOGPROBS]
    if len(best) < TOP_LOGPROBS or not all(math.isfinite(entry.logprob) for _, entry in best):
        return None
    return [[token, entry.logprob] for token, entry in best]


def _class_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _kv_transfer(transfer: Any) -> dict[str, Any]:
    return {
        "kv_connector": transfer.kv_connector,
        "kv_connector_module_path": transfer.kv_connector_module_path,
        "kv_role": transfer.kv_role,
        "kv_load_failure_policy": transfer.kv_load_failure_policy,
        "kv_connector_extra_config": dict(transfer.kv_connector_extra_config or {}),
    }


def _lmcache(connector: str) -> dict[str, Any]:
    """LMCache's version, and for a connector inside this process its settings as it uses them."""
    import importlib.metadata

    import lmcache

    found = {"version": importlib.metadata.version("lmcache"), "file": lmcache.__file__}
    if connector == "LMCacheConnectorV1":
        from lmcache.integration.vllm.utils import lmcache_get_or_create_config

        return {**found, "effective": lmcache_get_or_create_config().to_dict()}
    return found


def _device() -> dict[str, Any]:
    import torch

    if not torch.cuda.is_available():
        return {"kind": "cpu", "capability": torch.backends.cpu.get_cpu_capability()}
    major, minor = torch.cuda.get_device_capability()
    return {
        "kind": "cuda",
        "name": torch.cuda.get_device_name(),
        "compute_capability": f"{major}.{minor}",
        "memory_bytes": torch.cuda.get_device_properties(0).total_memory,
    }


def _environment() -> dict[str, str]:
    """Variables that vLLM and LMCache read, without the values of those that sound secret."""
    return {
        name: "(left out)" if _SECRET.search(name) else value
        for name, value in sorted(os.environ.items())
        if name.startswith(("VLLM_", "LMCACHE_", "CUDA_VISIBLE", "PYTHONHASHSEED", "TORCH"))
    }


def _leave_within(seconds: float) -> None:
    """End this process in any case: a library's thread may not let the interpreter go."""
    timer = threading.Timer(seconds, os._exit, [0])
    timer.daemon = True
    timer.start()


def serve() -> None:
    """Answer the verifier until it says stop or is gone."""
    with Client(os.environ.pop(ADDRESS_VARIABLE), family="AF_UNIX") as connection:
        engine: Engine | None = None
        while True:
            try:
                message = receive(connection)
            except (EOFError, OSError):
                return
            try:
                if message["op"] == "start":
                    engine = Engine(EngineArguments(**message["arguments"]))
                    send(connection, ok=True, engine=engine.describe())
                elif message["op"] == "answer" and engine is not None:
                    answer = engine.answer(Question(**message["question"]))
                    send(connection, ok=True, answer=plain(answer))
                elif message["op"] == "stop":
                    if engine is not None:
                        engine.stop()
                    _leave_within(LEAVE_SECONDS)
                    return
                else:
                    send(connection, ok=False, error=f"unexpected {message['op']!r}")
            except Exception as error:  # noqa: BLE001  (told to the verifier, whatever it is)
                import traceback

                traceback.print_exc()
                send(connection, ok=False, error=f"{type(error).__name__}: {error}"[:2000])
