# SPDX-License-Identifier: Apache-2.0
"""Reading vLLM's event stream: what is whole is an answer, everything else an error."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

pytest.importorskip("requests")

from kvseal.engines.completions import CompletionClient, _collect
from kvseal.errors import EngineError, OptionError


def lines(*events: dict[str, Any]) -> list[bytes]:
    return [b"data: " + json.dumps(event).encode() for event in events] + [b"", b"data: [DONE]"]


def token(ids: list[int], text: str, finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"token_ids": ids, "text": text, "finish_reason": finish}]}


USAGE = {
    "choices": [],
    "usage": {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4}},
}


def test_tokens_text_and_hits_of_a_whole_stream() -> None:
    found = _collect(lines(token([1], "a"), token([2, 3], "b", "length"), USAGE), 0.0)
    assert (found.token_ids, found.text, found.finish_reason) == ([1, 2, 3], "ab", "length")
    assert (found.prompt_tokens, found.hit_tokens) == (9, 4)


def test_hits_that_are_not_reported_are_unknown_not_zero() -> None:
    silent = {"choices": [], "usage": {"prompt_tokens": 9}}
    assert _collect(lines(token([1], "a", "stop"), silent), 0.0).hit_tokens is None


@pytest.mark.parametrize(
    "stream",
    [
        pytest.param([], id="nothing"),
        pytest.param(lines(token([1], "a")), id="no-finish-reason"),
        pytest.param(lines(token([1], "a", "length")), id="no-usage"),
        pytest.param(lines(token([1], "a", "error"), USAGE), id="finish-reason-error"),
        pytest.param(lines({"error": {"message": "load failed"}}), id="error-event"),
    ],
)
def test_a_stream_that_is_not_whole_is_an_error(stream: list[bytes]) -> None:
    with pytest.raises(EngineError):
        _collect(stream, 0.0)


def test_waiting_ends_when_the_watch_says_that_it_is_vain() -> None:
    """A server that accepts a request and never answers, as vLLM does without its cache server."""

    def watch() -> None:
        raise EngineError("the cache server has ended")

    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = CompletionClient(f"http://127.0.0.1:{silent.getsockname()[1]}", "model", watch)
        with pytest.raises(EngineError, match="the cache server has ended"):
            client.complete([1], max_tokens=1)


def test_the_variant_and_its_tokens_are_in_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    bodies: list[dict[str, Any]] = []

    def ask(_: CompletionClient, body: dict[str, Any]) -> None:
        bodies.append(body)

    monkeypatch.setattr(CompletionClient, "_ask", ask)
    client = CompletionClient("http://x", "model", lambda: None)
    client.complete([1], max_tokens=1)
    client.complete([1], max_tokens=1, variant="q1x")
    client.complete([1], max_tokens=1, variant="q1x", variant_tokens=64)
    assert [body.get("kv_transfer_params") for body in bodies] == [
        None,
        {"lmcache.variant": "q1x"},
        {"lmcache.variant": "q1x", "lmcache.variant_tokens": 64},
    ]
    for wrong in ({"variant_tokens": 64}, {"variant": "q1x", "variant_tokens": -1}):
        with pytest.raises(OptionError, match="variant_tokens"):
            client.complete([1], max_tokens=1, **wrong)
    assert len(bodies) == 3
