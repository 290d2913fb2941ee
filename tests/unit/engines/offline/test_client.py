# SPDX-License-Identifier: Apache-2.0
"""An engine's process as the verifier sees it: it answers, refuses, dies, hangs, and is gone.

The process is real and hangs below a real supervisor; only the engine in it is not.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from kvseal.engines.offline import client
from kvseal.engines.offline.client import OfflineEngine, offline_environment, started_offline
from kvseal.engines.offline.protocol import Answer, EngineArguments, Question
from kvseal.errors import EngineError
from kvseal.process.leftovers import RUN_VARIABLE, run_processes

REAL_HOST = client._RUN_HOST
HOST = Path(__file__).with_name("fake_host.py")
DIE, VANISH, SILENT, FAIL, CLOSE, TORN, LEAVE_AFTER = range(900, 907)
RUN_ID = f"kvsealtest{os.getpid()}"
NAME = "control engine"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the stand-in, and wait for nothing as long as for an engine."""
    runs = f"import sys; sys.path.insert(0, sys.argv[1]); exec(open({str(HOST)!r}).read())"
    monkeypatch.setattr(client, "_RUN_HOST", runs)
    monkeypatch.setattr(client, "ANSWER_SECONDS", 20.0)
    monkeypatch.setattr(client, "STOP_SECONDS", 10.0)
    monkeypatch.setattr(client, "POLL_SECONDS", 0.05)


def arguments(**changes: Any) -> EngineArguments:
    values: dict[str, Any] = {
        "model": "/m", "tokenizer": "/t", "dtype": "float32", "block_size_tokens": 16,
        "max_model_len_tokens": 512, "gpu_memory_fraction": None, "seed": 3,
        "prefix_caching": True,
    }  # fmt: skip
    return EngineArguments(**{**values, **changes})


def question(first: int = 11, **changes: Any) -> Question:
    values: dict[str, Any] = {"token_ids": [first, 5], "max_tokens": 4, "seed": 2, "scope": "s.1"}
    return Question(**{**values, **changes})


@contextmanager
def started(
    tmp_path: Path, *, start_seconds: float = 20.0, **changes: Any
) -> Iterator[OfflineEngine]:
    with started_offline(
        NAME,
        arguments(**changes),
        environment={"SAMPLE": "given"},
        log=tmp_path / "logs" / "control.log",
        run_id=RUN_ID,
        start_seconds=start_seconds,
    ) as engine:
        yield engine


def gone(tmp_path: Path) -> bool:
    log = str((tmp_path / "logs" / "control.log").resolve())
    return not run_processes(RUN_VARIABLE, RUN_ID, log)


def test_it_answers(tmp_path: Path) -> None:
    with started(tmp_path, kv_transfer={"kv_connector": "C"}) as engine:
        assert engine.described["arguments"] == {
            "model": "/m", "tokenizer": "/t", "dtype": "float32", "block_size_tokens": 16,
            "max_model_len_tokens": 512, "gpu_memory_fraction": None, "seed": 3,
            "prefix_caching": True, "kv_transfer": {"kv_connector": "C"},
        }  # fmt: skip
        assert engine.described["infinite"] == "inf"
        assert engine.described["environment"]["SAMPLE"] == "given"
        assert engine.described["environment"][RUN_VARIABLE] == RUN_ID
        assert engine.ask(question()) == Answer(
            [11, 5], [11, 4, 2], 16, "length", [None, [[11, -0.5], [2, -1.5]]]
        )
        assert engine.ask(question(1)).cached_tokens is None
        assert engine.status is None
        assert not gone(tmp_path)
    assert engine.status == 0
    assert gone(tmp_path)
    log = (tmp_path / "logs" / "control.log").read_text(encoding="utf-8")
    assert log.count("asked in scope s.1\n") == 2


def test_an_error_is_told_and_the_engine_lives_on(tmp_path: Path) -> None:
    with started(tmp_path) as engine:
        with pytest.raises(EngineError, match="control engine failed: RuntimeError: no room") as e:
            engine.ask(question(FAIL))
        assert "control.log" in str(e.value)
        assert engine.ask(question(12)).token_ids == [12, 4, 2]
    assert engine.status == 0


@pytest.mark.parametrize(
    ("first", "ending", "status"),
    [(DIE, "exit status 7", 7), (VANISH, "killed by SIGKILL", -9), (TORN, "exit status 8", 8)],
)
def test_it_dies_in_the_middle_of_an_answer(
    tmp_path: Path, first: int, ending: str, status: int
) -> None:
    with started(tmp_path) as engine:
        engine.ask(question())
        begin = time.monotonic()
        with pytest.raises(EngineError, match=f"control engine has ended: {ending}") as caught:
            engine.ask(question(first))
        assert time.monotonic() - begin < 10
        assert "asked in scope" in str(caught.value), "its last log lines"
    assert engine.status == status
    assert gone(tmp_path)


def test_it_dies_between_two_answers(tmp_path: Path) -> None:
    """Nothing can be sent any more then, which is no error of a socket to the user."""
    with started(tmp_path) as engine:
        assert engine.ask(question(LEAVE_AFTER)).token_ids[0] == LEAVE_AFTER
        time.sleep(0.5)
        for _ in range(2):
            with pytest.raises(EngineError, match="control engine has ended: exit status 9"):
                engine.ask(question())
    assert engine.status == 9


def test_it_closes_its_connection_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "STOP_SECONDS", 0.2)
    monkeypatch.setattr(client, "END_SECONDS", 0.3)
    with (
        started(tmp_path) as engine,
        pytest.raises(EngineError, match="control engine closed its connection") as caught,
    ):
        engine.ask(question(CLOSE))
    assert "control.log" in str(caught.value)
    assert engine.status is None
    assert gone(tmp_path)


def test_it_gives_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "STOP_SECONDS", 0.2)
    with started(tmp_path) as engine:
        monkeypatch.setattr(client, "ANSWER_SECONDS", 0.5)
        begin = time.monotonic()
        with pytest.raises(EngineError, match="control engine gives no answer") as caught:
            engine.ask(question(SILENT))
        assert 0.5 <= time.monotonic() - begin < 5
        assert caught.value.value == "0.5 s"
        assert "control.log" in str(caught.value.remedy)
    assert gone(tmp_path)


def test_it_hangs_when_told_to_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "STOP_SECONDS", 0.3)
    with started(tmp_path, tokenizer="hangs") as engine:
        engine.ask(question())
    assert engine.status is None, "it did not end by itself"
    assert gone(tmp_path)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("broken", "control engine failed: ValueError: no such model"),
        ("deadly", "control engine has ended: exit status 3"),
    ],
)
def test_it_can_t_be_built(tmp_path: Path, model: str, says: str) -> None:
    with pytest.raises(EngineError, match=says) as caught, started(tmp_path, model=model):
        pytest.fail("entered without an engine")
    assert ("last words of the engine" in str(caught.value)) == (model == "deadly")
    assert gone(tmp_path)


def test_it_takes_too_long_to_be_built(tmp_path: Path) -> None:
    with (
        pytest.raises(EngineError, match="gives no answer") as caught,
        started(tmp_path, model="silent", start_seconds=0.5),
    ):
        pytest.fail("entered without an engine")
    assert caught.value.value == "0.5 s"
    assert gone(tmp_path)


def test_a_host_that_can_t_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_RUN_HOST", "import kvseal_no_such_module")
    with (
        pytest.raises(EngineError, match="has ended: exit status 1") as caught,
        started(tmp_path),
    ):
        pytest.fail("entered without an engine")
    assert "kvseal_no_such_module" in str(caught.value)


def test_a_host_that_never_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_RUN_HOST", "import time; time.sleep(600)")
    with (
        pytest.raises(EngineError, match="gives no answer"),
        started(tmp_path, start_seconds=0.5),
    ):
        pytest.fail("entered without an engine")
    assert gone(tmp_path)


def test_an_error_in_the_block_ends_the_engine_and_stays_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="ours"), started(tmp_path):
        raise KeyError("ours")
    assert gone(tmp_path)


@pytest.mark.skipif(find_spec("vllm") is not None, reason="an engine would really be built")
def test_the_real_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_RUN_HOST", REAL_HOST)
    with (
        pytest.raises(EngineError, match="failed: ModuleNotFoundError: No module named 'vllm'"),
        started(tmp_path),
    ):
        pytest.fail("entered without an engine")
    assert "Traceback" in (tmp_path / "logs" / "control.log").read_text(encoding="utf-8")


COMMON = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "LMCACHE_TRACK_USAGE": "false",
    "LMCACHE_LOG_LEVEL": "INFO",
    "VLLM_LOGGING_LEVEL": "INFO",
    "PYTHONHASHSEED": "0",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}


def test_variables_on_a_cpu() -> None:
    assert offline_environment("cpu", cpu_kv_gib=3, visible_devices="0") == {
        **COMMON,
        "VLLM_CPU_KVCACHE_SPACE": "3",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "TORCHDYNAMO_DISABLE": "1",
        "LMCACHE_MP_TRANSFER_MODE": "lmcache_driven",
    }


@pytest.mark.parametrize(
    ("devices", "more"),
    [(None, {}), ("1", {"CUDA_VISIBLE_DEVICES": "1"}), ("", {"CUDA_VISIBLE_DEVICES": ""})],
)
def test_variables_on_a_gpu(devices: str | None, more: dict[str, str]) -> None:
    found = offline_environment("cuda", cpu_kv_gib=3, visible_devices=devices)
    assert found == {**COMMON, **more}
