# SPDX-License-Identifier: Apache-2.0
"""A model on two ranks: LMCache's SDK would read the first alone, so it is refused by name.

The model is made here, with random weights and heads that two ranks can share.
"""

from __future__ import annotations

import dataclasses
import shutil
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from kvseal.engines.geometry import ModelShape
from kvseal.engines.lmcache import CacheServer, started_lmcache
from kvseal.engines.sdk import KVCacheSDK
from kvseal.engines.vllm import VLLMEndpoint as Endpoint
from kvseal.engines.vllm import lmcache_connector, serve_command, serve_environment
from kvseal.errors import LayoutError
from kvseal.models.directory import read_directory
from kvseal.models.resolve import resolve_model
from kvseal.process import EngineProcess, free_port, segment_name
from kvseal.spec.runspec import RunSpec

pytestmark = pytest.mark.engines

RUN = "kvseal-check-ranks"
START_SECONDS = 240


@pytest.fixture
def two_headed(spec: RunSpec, tmp_path: Path) -> Path:
    """A model directory with random weights, two KV heads and the packaged tokenizer."""
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path / "model"
    packaged = resolve_model(spec)
    config = LlamaConfig(
        vocab_size=packaged.config()["vocab_size"],
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=2048,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    for file in packaged.path.glob("*token*"):
        shutil.copy2(file, folder)
    return folder


def test_two_ranks_are_refused_before_anything_is_read(
    spec: RunSpec, two_headed: Path, tmp_path: Path
) -> None:
    from kvseal.cli.execution import prepare_process

    prepare_process()
    small = dataclasses.replace(
        spec, vllm=dataclasses.replace(spec.vllm, cpu_kv_gib=1, max_model_len_tokens=1024)
    )
    server = CacheServer.of(small)
    with started_lmcache(
        server,
        python=sys.executable,
        log=tmp_path / "lmcache.log",
        segment=segment_name(RUN),
        run_id=RUN,
    ) as lmcache:
        endpoint = Endpoint("127.0.0.1", free_port())
        connector = lmcache_connector(lmcache.endpoint)
        command = [
            *serve_command(small, sys.executable, two_headed, endpoint.port, connector),
            *("--tensor-parallel-size", "2"),
        ]
        with EngineProcess(
            "vLLM",
            command,
            env=serve_environment(small, shared_cores=True),
            log=tmp_path / "vllm.log",
            run_id=RUN,
        ) as vllm:
            lmcache.wait_ready()
            vllm.wait_ready(endpoint.ready, timeout_seconds=START_SECONDS, option="start timeout")
            with pytest.raises(LayoutError) as refused:
                KVCacheSDK(
                    url=lmcache.endpoint.url,
                    http_url=lmcache.endpoint.http_url,
                    model_name=str(two_headed),
                    shape=ModelShape.from_config(read_directory(two_headed, option="").config()),
                    device="cpu",
                )
    assert "world" in f"{refused.value.option}".lower() + refused.value.message
    assert refused.value.remedy
