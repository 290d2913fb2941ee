# SPDX-License-Identifier: Apache-2.0
"""Run on a real vLLM 0.28.0: the one of KVSEAL_TEST_ENGINE_PYTHON, or of this interpreter."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kvseal.codemods import patchset
from kvseal.codemods.environment import Environment
from kvseal.codemods.vllm_block_hash_variant import CODEMOD, EDITS, MODULE_FILE

PYTHON = os.environ.get("KVSEAL_TEST_ENGINE_PYTHON", sys.executable)
FIND = (
    "import importlib.util as u; s = u.find_spec('vllm'); "
    "print(s.submodule_search_locations[0] if s else '')"
)


@pytest.fixture
def installed() -> Path:
    """The site-packages of a real vLLM 0.28.0."""
    found = subprocess.run([PYTHON, "-c", FIND], capture_output=True, text=True, check=True)
    folder = found.stdout.strip()
    if not folder:
        pytest.skip(f"{PYTHON} has no vLLM; KVSEAL_TEST_ENGINE_PYTHON may name one that has")
    site_packages = Path(folder).parent
    if not list(site_packages.glob("vllm*-0.28.0.dist-info")):
        pytest.skip(f"the vLLM in {site_packages} is not 0.28.0")
    return site_packages


@pytest.fixture
def environment(installed: Path, tmp_path: Path) -> Environment:
    """The files that are edited, in an environment of their own."""
    copy = tmp_path / "env/lib/python3.11/site-packages"
    for path in EDITS:
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(installed / path, copy / path)
    (info,) = installed.glob("vllm*-0.28.0.dist-info")
    shutil.copytree(info, copy / info.name)
    return Environment.find(tmp_path / "env")


def files(environment: Environment) -> dict[str, bytes]:
    root = environment.site_packages
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_it_applies_once_and_reverts(environment: Environment) -> None:
    before = files(environment)
    assert patchset.apply(environment, [CODEMOD]).changed
    after = files(environment)
    assert {p for p in after if after[p] != before.get(p)} == {*EDITS, MODULE_FILE}
    assert not patchset.apply(environment, [CODEMOD]).changed
    patchset.revert(environment, [CODEMOD])
    assert files(environment) == before


DRIVE = """
import importlib.util, itertools, json, sys
from types import SimpleNamespace as NS
import vllm.v1.core.kv_cache_utils as edited
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256, sha256_cbor
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.engine.core import EngineCore
from vllm.v1.engine.input_processor import InputProcessor
from vllm.v1.request import Request
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.pooling.embed.protocol import EmbeddingCompletionRequest
import vllm.lora.request

spec = importlib.util.spec_from_file_location("stock_kv_cache_utils", sys.argv[1])
stock = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(stock)
edited.init_none_hash(sha256)
stock.init_none_hash(sha256)
stock.NONE_HASH = edited.NONE_HASH
V, OTHER = "q1" + "b" * 32, "r1" + "c" * 32

def request(params=None, salt=None, lora=None, module=edited, mm=(), **more):
    sampling = SamplingParams(
        max_tokens=4, extra_args=None if params is None else {"kv_transfer_params": params})
    return Request(
        request_id="r", prompt_token_ids=list(range(12)), sampling_params=sampling,
        pooling_params=None, cache_salt=salt, lora_request=lora, mm_features=list(mm),
        block_hasher=module.get_request_block_hasher(4, sha256_cbor), **more)

def hashes(*args, **kwargs):
    value = request(*args, **kwargs)
    return [h.hex() for h in value.block_hashes]

def refused(call):
    try:
        call()
    except ValueError as error:
        return str(error)
    return ""

out = {}
named = {"lmcache.variant": V}
lora = NS(lora_name="lora", lora_int_id=1)
place = NS(offset=0, length=2, get_num_embeds=lambda: 2)
image = NS(identifier="lmcache.variant", mm_position=place)
out["ordinary"] = [
    hashes(p, salt, a, module=edited, mm=m) == hashes(p, salt, a, module=stock, mm=m)
    for p in (None, {}, {"lmcache.variant": ""}, {"do_remote_prefill": False})
    for salt in (None, "t") for a in (None, lora) for m in ((), (image,))]
every = [hashes(), hashes(named), hashes({"lmcache.variant": OTHER}), hashes(named, "t"),
         hashes(None, "t"), hashes(None, V), hashes(None, "lmcache.variant"),
         hashes(None, str(("lmcache.variant", V))), hashes(None, "lmcache.variant" + V),
         hashes(None, lora=NS(lora_name=V)), hashes(None, lora=NS(lora_name="lmcache.variant")),
         hashes(None, V, NS(lora_name="lmcache.variant")), hashes(mm=(image,)),
         hashes(None, mm=(NS(identifier=V, mm_position=place),))]
variants = every[1:4]
ordinary = {h for one in (every[0], *every[4:]) for h in one}
# No block of a chain, not only the first.
out["apart"] = len({h for one in variants for h in one}) == 9
out["no block shared"] = not ordinary & {h for one in variants for h in one}
out["same again"] = hashes(named) == hashes(dict(named))
value = request(named)
value.append_output_token_ids([7] * 4)
out["generated"] = [len(value.block_hashes), value.block_hashes[-1].hex() not in every[0]]
out["extra keys"] = [
    edited.generate_block_hash_extra_keys(value, i, i + 4, 0)[0] for i in (0, 4, 12)]
out["reads prefix cache"] = [not request(p).skip_reading_prefix_cache for p in (None, named)]
bad = [{"lmcache.variant": x} for x in ("x", None, 3, V + "a", V.upper())]
bad += [{"lmcache.Variant": V}, {"lmcache_variant": V}]
out["request refuses"] = [bool(refused(lambda: request(p))) for p in bad]
out["streamed"] = refused(lambda: request(named, resumable=True))
out["salt"] = refused(lambda: request(None, "##tv1-" + V))

def core(connector):
    engine = object.__new__(EngineCore)
    engine.__dict__.update(mm_receiver_cache=None, request_block_hasher=None,
                           scheduler=NS(get_kv_connector=lambda: connector))
    return engine

def prepared(connector, params):
    sampling = SamplingParams(max_tokens=1, extra_args={"kv_transfer_params": params})
    fields = dict(request_id="r", prompt_token_ids=[1, 2], mm_features=None,
                  sampling_params=sampling, pooling_params=None, arrival_time=0.0,
                  lora_request=None, cache_salt=None, data_parallel_rank=None)
    return refused(lambda: core(connector).preprocess_add_request(EngineCoreRequest(**fields)))

def full(request):
    raise ValueError("server too old")
seen = []
out["engine"] = [prepared(None, {}), prepared(None, named), prepared(NS(), named),
                 prepared(NS(admit_transform_variant=full), named),
                 prepared(NS(admit_transform_variant=seen.append), named),
                 prepared(NS(admit_transform_variant=seen.append), {}),
                 [one.transform_variant for one in seen]]

def processed(extra_args, salt=None, lora=None, resumable=False):
    processor = object.__new__(InputProcessor)
    processor.__dict__.update(
        vllm_config=NS(parallel_config=NS(data_parallel_size=1, data_parallel_size_local=1,
                                          local_engines_only=False)),
        model_config=NS(max_model_len=64), generation_config_fields={},
        renderer=NS(get_eos_token_id=lambda: None, tokenizer=None))
    for name in ("_validate_params", "_validate_lora", "_validate_model_inputs"):
        setattr(processor, name, lambda *a, **k: None)
    prompt = {"type": "token", "prompt_token_ids": [1, 2], "arrival_time": 0.0}
    if salt:
        prompt["cache_salt"] = salt
    return refused(lambda: processor.process_inputs(
        "r", prompt, SamplingParams(max_tokens=1, extra_args=extra_args), ("generate",),
        lora_request=lora, resumable=resumable))

out["inputs taken"] = [processed(None), processed({"kv_transfer_params": named}, "t"),
                       processed({"kv_transfer_params": {}}, resumable=True)]
out["inputs refused"] = [
    *(processed({"kv_transfer_params": p}) for p in bad), processed(named),
    processed({"lmcache_variant": V}), processed(None, "a##tv1-" + V),
    processed({"kv_transfer_params": named}, resumable=True),
    processed(None, lora=NS(lora_name="##tv1-" + V))]

def body(cls, **fields):
    return refused(lambda: cls.model_validate(dict(model="m", **fields)))
chat = dict(messages=[{"role": "user", "content": "x"}])
out["bodies taken"] = [body(CompletionRequest, prompt="x", kv_transfer_params=named),
                       body(ChatCompletionRequest, **chat, kv_transfer_params=named),
                       body(CompletionRequest, prompt="x", use_beam_search=True),
                       body(EmbeddingCompletionRequest, input="x")]
out["bodies refused"] = [
    body(CompletionRequest, prompt="x", kv_transfer_params=bad[0]),
    body(CompletionRequest, prompt="x", kv_transfer_params=named, use_beam_search=True),
    body(ChatCompletionRequest, **chat, kv_transfer_params=named, use_beam_search=True),
    body(EmbeddingCompletionRequest, input="x", kv_transfer_params=named),
    body(CompletionRequest, prompt="x", cache_salt="##tv1-" + V)]
print(json.dumps(out))
"""


def run_on(environment: Environment, installed: Path, tmp_path: Path) -> Any:
    """Run DRIVE on a tree of links to the installed vLLM, with the edited files in it."""
    tree = tmp_path / "tree"
    shutil.copytree(
        installed / "vllm",
        tree / "vllm",
        copy_function=os.symlink,
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    for path in (*EDITS, MODULE_FILE):
        (tree / path).unlink(missing_ok=True)
        shutil.copy(environment.site_packages / path, tree / path)
    done = subprocess.run(
        [PYTHON, "-c", DRIVE, str(installed / "vllm/v1/core/kv_cache_utils.py")],
        env={**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def test_variants_are_apart_and_bad_ones_fail_their_request(
    environment: Environment, installed: Path, tmp_path: Path
) -> None:
    patchset.apply(environment, [CODEMOD])
    out = run_on(environment, installed, tmp_path)
    tag = ["lmcache.variant", "q1" + "b" * 32]
    assert all(out["ordinary"]) and len(out["ordinary"]) == 32
    assert out["apart"] and out["no block shared"] and out["same again"]
    assert out["generated"] == [4, True]
    assert out["extra keys"] == [[tag], [tag], [tag]]
    assert out["reads prefix cache"] == [True, False]
    assert out["request refuses"] == [True] * 7
    assert "streamed" in out["streamed"] and "reserved" in out["salt"]
    ordinary, without, unaware, refusing, taking, other, admitted = out["engine"]
    assert ordinary == taking == other == ""
    assert "no KV connector" in without and "no KV connector" in unaware
    assert refusing == "server too old"
    assert admitted == [tag[1]]
    assert out["inputs taken"] == [""] * 3
    assert all(out["inputs refused"]) and len(out["inputs refused"]) == 12
    assert out["bodies taken"] == [""] * 4
    assert all(out["bodies refused"]) and len(out["bodies refused"]) == 5
