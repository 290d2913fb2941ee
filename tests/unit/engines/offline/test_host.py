# SPDX-License-Identifier: Apache-2.0
"""The parts of an engine's process that need no engine: the loop, and what it leaves out."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kvseal.engines.offline import host
from kvseal.engines.offline.host import _best, _environment, serve
from kvseal.engines.offline.protocol import (
    ADDRESS_VARIABLE,
    Answer,
    EngineArguments,
    Question,
    plain,
    receive,
    send,
)

ARGUMENTS = EngineArguments("/m", "/t", "float32", 16, 512, None, 0, False)
QUESTION = Question([5, 6], 4, 0, "scope")


def step(*entries: tuple[int, float, int]) -> dict[int, Any]:
    """One step as vLLM gives it: token, log-probability, rank."""
    return {token: SimpleNamespace(logprob=value, rank=rank) for token, value, rank in entries}


@pytest.mark.parametrize(
    ("entries", "best"),
    [
        ([(7, -0.5, 1), (9, -1.5, 2)], [[7, -0.5], [9, -1.5]]),
        ([(9, -1.5, 2), (7, -0.5, 1)], [[7, -0.5], [9, -1.5]]),
        ([(3, -9.0, 40), (7, -0.5, 1), (9, -1.5, 2)], [[7, -0.5], [9, -1.5]]),
        ([(7, -0.5, 1), (9, -0.5, 1)], [[7, -0.5], [9, -0.5]]),
        ([(7, 0.0, 1), (9, -math.inf, 2)], None),
        ([(7, math.nan, 1), (9, -1.0, 2)], None),
        ([(7, -0.5, 1), (9, -1.5, 2), (3, -math.inf, 40)], [[7, -0.5], [9, -1.5]]),
        ([(7, -0.5, 1)], None),
        ([], None),
    ],
)
def test_the_two_best_tokens(
    entries: list[tuple[int, float, int]], best: list[list[float]] | None
) -> None:
    assert _best(step(*entries)) == best


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("VLLM_LOGGING_LEVEL", "INFO", "INFO"),
        ("LMCACHE_CHUNK_SIZE", "64", "64"),
        ("CUDA_VISIBLE_DEVICES", "", ""),
        ("PYTHONHASHSEED", "0", "0"),
        ("TORCHDYNAMO_DISABLE", "1", "1"),
        ("VLLM_API_KEY", "hidden", "(left out)"),
        ("LMCACHE_REMOTE_PASSWORD", "hidden", "(left out)"),
        ("LMCACHE_Secret", "hidden", "(left out)"),
        ("VLLM_CREDENTIALS", "hidden", "(left out)"),
        ("LMCACHE_TOKEN", "hidden", "(left out)"),
        ("HF_TOKEN", "hidden", None),
        ("PATHLESS", "hidden", None),
        ("MY_VLLM_", "hidden", None),
    ],
)
def test_variables_in_a_report(
    name: str, value: str, shown: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    found = _environment()
    assert found.get(name) == shown
    assert "hidden" not in found.values()
    assert list(found) == sorted(found)


class Engine:
    """Answers as told."""

    made: list[EngineArguments]
    stopped: int

    def __init__(self, arguments: EngineArguments) -> None:
        self.made.append(arguments)
        if arguments.model == "broken":
            raise ValueError("no such model")

    def describe(self) -> dict[str, Any]:
        return {"executor": "none"}

    def answer(self, question: Question) -> Answer:
        if question.scope == "broken":
            raise RuntimeError("x" * 5000)
        return Answer(question.token_ids, [1], 0, "length", [None])

    def stop(self) -> None:
        type(self).stopped += 1


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds after which the process would end itself, once it was told to stop."""
    seconds: list[float] = []
    monkeypatch.setattr(host, "_leave_within", seconds.append)
    monkeypatch.setattr(Engine, "made", [], raising=False)
    monkeypatch.setattr(Engine, "stopped", 0, raising=False)
    monkeypatch.setattr(host, "Engine", Engine)
    return seconds


@pytest.fixture
def verifier(
    left: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., dict[str, Any]]]:
    """Ask the loop, which runs in a thread here; it has ended when the test has."""
    address = str(tmp_path / "engine")
    monkeypatch.setenv(ADDRESS_VARIABLE, address)
    with Listener(address, family="AF_UNIX") as listener:
        ended: list[None] = []
        thread = threading.Thread(target=lambda: ended.append(serve()), daemon=True)
        thread.start()
        connection: Connection = listener.accept()
        assert ADDRESS_VARIABLE not in os.environ, "no child of an engine can call in its place"

        def ask(op: str, **message: Any) -> dict[str, Any]:
            send(connection, op=op, **message)
            if op == "stop":
                thread.join(10)
                return {"alive": thread.is_alive()}
            return receive(connection)

        yield ask
        connection.close()
        thread.join(10)
        assert ended == [None], "the loop ends with the verifier, and without an error"


Ask = Callable[..., dict[str, Any]]


def test_an_engine_is_built_asked_and_stopped(verifier: Ask, left: list[float]) -> None:
    assert verifier("start", arguments=plain(ARGUMENTS)) == {
        "ok": True,
        "engine": {"executor": "none"},
    }
    assert Engine.made == [ARGUMENTS]
    assert verifier("answer", question=plain(QUESTION)) == {
        "ok": True,
        "answer": plain(Answer([5, 6], [1], 0, "length", [None])),
    }
    assert Engine.stopped == 0
    assert verifier("stop") == {"alive": False}
    assert Engine.stopped == 1
    assert left == [host.LEAVE_SECONDS]


def test_it_can_be_stopped_before_it_is_built(verifier: Ask, left: list[float]) -> None:
    assert verifier("stop") == {"alive": False}
    assert (Engine.stopped, left) == (0, [host.LEAVE_SECONDS])


def test_errors_are_told_and_the_loop_goes_on(verifier: Ask) -> None:
    broken = EngineArguments("broken", "/t", "float32", 16, 512, None, 0, False)
    assert verifier("start", arguments=plain(broken)) == {
        "ok": False,
        "error": "ValueError: no such model",
    }
    assert verifier("answer", question=plain(QUESTION)) == {
        "ok": False,
        "error": "unexpected 'answer'",
    }
    assert verifier("sing")["error"] == "unexpected 'sing'"
    verifier("start", arguments=plain(ARGUMENTS))
    reply = verifier("answer", question=plain(Question([1], 1, 0, "broken")))
    assert reply["ok"] is False
    assert reply["error"].startswith("RuntimeError: xxx")
    assert len(reply["error"]) == 2000
    assert verifier("answer", question=plain(QUESTION))["ok"] is True


def test_the_end_comes_before_the_verifier_loses_patience() -> None:
    from kvseal.engines.offline.client import STOP_SECONDS

    assert host.LEAVE_SECONDS < STOP_SECONDS
