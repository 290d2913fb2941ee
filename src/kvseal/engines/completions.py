# SPDX-License-Identifier: Apache-2.0
"""Ask a vLLM server for one greedy completion and time it from outside.

Prompts and answers are exact token IDs, never text that a tokenizer might read
in another way. Called by the drivers; starts and stops nothing.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import requests

from kvseal.errors import EngineError, OptionError

VARIANT_KEY = "lmcache.variant"
VARIANT_TOKENS_KEY = "lmcache.variant_tokens"
"""Both of kv_transfer_params; read by LMCache as kvseal edits it."""
WATCH_SECONDS = 0.5


@dataclass(frozen=True)
class Completion:
    """One answer. Times are seconds on this client's monotonic clock.

    `ttft_seconds` runs from sending the request to the first generated token,
    `decode_seconds` from that token to the last. `hit_tokens` is vLLM's own
    count of prompt tokens whose KV it did not compute, None when not reported.
    """

    token_ids: list[int]
    text: str
    finish_reason: str | None
    prompt_tokens: int
    hit_tokens: int | None
    ttft_seconds: float
    decode_seconds: float
    total_seconds: float


@dataclass(frozen=True)
class CompletionClient:
    """Greedy completions from the vLLM server at `base_url`.

    `watch` is called while an answer is waited for, and raises when waiting is
    vain: a vLLM whose cache server has died keeps a request for minutes.
    """

    base_url: str
    model: str
    watch: Callable[[], None]
    timeout_seconds: float = 600.0

    def complete(
        self,
        prompt_token_ids: list[int],
        *,
        max_tokens: int,
        cache_salt: str = "",
        seed: int = 0,
        ignore_eos: bool = False,
        variant: str = "",
        variant_tokens: int = 0,
    ) -> Completion:
        """Generate up to `max_tokens` tokens at temperature 0.

        `variant` names transformed KV that the prompt begins with; empty is ordinary.
        `variant_tokens` is how many tokens of it must be found, in whole chunks: with
        fewer, nothing of it is used and the prompt is computed.

        Raises:
            OptionError: `variant_tokens` is negative, or given without a variant.
            EngineError: when the server can't be reached, answers with an error,
                or ends its stream without saying why it stopped.
        """
        if variant_tokens < 0 or (variant_tokens and not variant):
            raise OptionError(
                "only of a variant can a number of tokens be required",
                option="variant_tokens",
                value=variant_tokens,
                expected="0, or the tokens of the variant that is named",
            )
        body: dict[str, Any] = {
            "model": self.model,
            "prompt": prompt_token_ids,
            "max_tokens": max_tokens,
            "temperature": 0,
            "seed": seed,
            "ignore_eos": ignore_eos,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
        }
        if cache_salt:
            body["cache_salt"] = cache_salt
        if variant:
            tokens = {VARIANT_TOKENS_KEY: variant_tokens} if variant_tokens else {}
            body["kv_transfer_params"] = {VARIANT_KEY: variant, **tokens}
        outcome: queue.SimpleQueue[Completion | Exception] = queue.SimpleQueue()
        # A daemon: once `watch` has raised, it ends with the engine it waits for.
        threading.Thread(target=self._ask_into, args=(outcome, body), daemon=True).start()
        while True:
            try:
                answer = outcome.get(timeout=WATCH_SECONDS)
            except queue.Empty:
                self.watch()
                continue
            if isinstance(answer, Exception):
                # A dead server is the better explanation of a broken answer.
                self.watch()
                raise answer
            return answer

    def _ask_into(
        self, outcome: queue.SimpleQueue[Completion | Exception], body: dict[str, Any]
    ) -> None:
        try:
            outcome.put(self._ask(body))
        except Exception as error:  # noqa: BLE001  (raised again by the thread that waits)
            outcome.put(error)

    def _ask(self, body: dict[str, Any]) -> Completion:
        started = time.monotonic()
        try:
            with requests.post(
                f"{self.base_url}/v1/completions",
                json=body,
                stream=True,
                timeout=self.timeout_seconds,
            ) as response:
                if response.status_code != requests.codes.ok:
                    raise EngineError(
                        f"vLLM refused a completion with status {response.status_code}: "
                        f"{response.text[:500]}"
                    )
                return _collect(response.iter_lines(), started)
        except requests.RequestException as error:
            raise EngineError(
                f"vLLM at {self.base_url} broke off a completion: {error}",
                remedy="read logs/vllm.log in the run folder",
            ) from error


def _collect(lines: Any, started: float) -> Completion:
    token_ids: list[int] = []
    text: list[str] = []
    finish_reason: str | None = None
    usage: dict[str, Any] = {}
    first = last = started
    for line in lines:
        if not line.startswith(b"data: ") or line == b"data: [DONE]":
            continue
        event = json.loads(line[len(b"data: ") :])
        if "error" in event:
            raise EngineError(f"vLLM reported an error in its stream: {event['error']}")
        usage = event.get("usage") or usage
        for choice in event.get("choices", ()):
            new_ids = choice.get("token_ids") or []
            if new_ids:
                last = time.monotonic()
                first = first if token_ids else last
                token_ids.extend(new_ids)
            text.append(choice.get("text") or "")
            finish_reason = choice.get("finish_reason") or finish_reason
    if finish_reason is None or not usage:
        raise EngineError(
            "vLLM ended its stream without a finish reason",
            value=f"{len(token_ids)} tokens received",
            remedy="read logs/vllm.log in the run folder",
        )
    if finish_reason == "error":
        raise EngineError("vLLM ended a completion with finish reason 'error'")
    details = usage.get("prompt_tokens_details") or {}
    return Completion(
        token_ids=token_ids,
        text="".join(text),
        finish_reason=finish_reason,
        prompt_tokens=usage["prompt_tokens"],
        hit_tokens=details.get("cached_tokens"),
        ttft_seconds=first - started,
        decode_seconds=last - first,
        total_seconds=time.monotonic() - started,
    )
