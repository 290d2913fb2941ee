# SPDX-License-Identifier: Apache-2.0
"""What the verifier and an engine's process say to each other.

One JSON object a message, over multiprocessing.connection on a Unix socket:
`{"op": …, …}` there, `{"ok": true, …}` or `{"ok": false, "error": …}` back.
Imported on both sides; standard library only.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from typing import Any

ADDRESS_VARIABLE = "KVSEAL_OFFLINE_ADDRESS"
TOP_LOGPROBS = 2
"""Best tokens whose log-probabilities are kept: the chosen one and its runner-up."""


@dataclass(frozen=True)
class EngineArguments:
    """What a vLLM engine is built from. `kv_transfer` None means no connector at all.

    `gpu_memory_fraction` is None on a CPU, where vLLM takes its cache size from
    the environment.
    """

    model: str
    tokenizer: str
    dtype: str
    block_size_tokens: int
    max_model_len_tokens: int
    gpu_memory_fraction: float | None
    seed: int
    prefix_caching: bool
    kv_transfer: dict[str, Any] | None = None


@dataclass(frozen=True)
class Question:
    """One prompt. `scope` names the cache scope it may share with others.

    `scope` travels as vLLM's cache salt, and in `kv_transfer_params` for a
    connector that looks at no salt.
    """

    token_ids: list[int]
    max_tokens: int
    seed: int
    scope: str
    kv_transfer_params: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """Generated token IDs with what vLLM says of them.

    `prompt_token_ids` are those it says it was given. `cached_tokens` is None
    where vLLM reports no count. `top2` has, for each generated token, the best
    tokens as [ID, log-probability], best first; None where one was no number.
    """

    prompt_token_ids: list[int]
    token_ids: list[int]
    cached_tokens: int | None
    finish_reason: str | None
    top2: list[list[list[Any]] | None]


def send(connection: Connection, **message: Any) -> None:
    """Send one message."""
    connection.send_bytes(json.dumps(message).encode())


def receive(connection: Connection) -> dict[str, Any]:
    """Wait for one message.

    Raises:
        EOFError, OSError: the other side has gone.
    """
    message: dict[str, Any] = json.loads(connection.recv_bytes())
    return message


def json_values(value: Any) -> Any:
    """Return `value` as JSON can hold it: what it can't hold, infinities included, as its text."""
    if isinstance(value, dict):
        return {str(key): json_values(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_values(item) for item in value]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    return str(value)


def plain(value: Any) -> dict[str, Any]:
    """Return one of the classes above as JSON values."""
    return asdict(value)
