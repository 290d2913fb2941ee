# SPDX-License-Identifier: Apache-2.0
"""Reader of a Redis or Valkey server that the adapters resp and valkey keep their entries in.

Sends SCAN, STRLEN, TYPE and GETRANGE and nothing that changes a key; what the client
itself sends is HELLO, AUTH and CLIENT SETINFO. User and password come from
LMCACHE_RESP_USERNAME and LMCACHE_RESP_PASSWORD, as LMCache's own. One server is
one node: name each node of a cluster. SCAN can show a key twice while the
server's table grows; it shows every key that was there all the time.

Source: LMCache 0.5.4 and 0.5.6, l2_adapters/resp_l2_adapter.py,
valkey_l2_adapter.py `_wire_key` (`<key_prefix>@<native text>`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from kvseal.audit.classify import Found, Shape
from kvseal.audit.key_text import FIELD
from kvseal.errors import OptionError, PrerequisiteError, StoreError

USER_VARIABLE = "LMCACHE_RESP_USERNAME"
PASSWORD_VARIABLE = "LMCACHE_RESP_PASSWORD"  # noqa: S105 - a name
BATCH = 1000
"""Keys that are asked for at a time: what the server is busy with in one go."""
TIMEOUT_SECONDS = 30.0
_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:/@\[\]]+)):([0-9]{1,5})")


class RespStore:
    """One server.

    `address` is HOST:PORT; with `prefix` only that deployment's keys are looked at.

    Raises:
        OptionError: the address or the prefix is none.
    """

    kind = "resp"
    file_names = False

    def __init__(
        self, address: str, prefix: str = "", environment: Mapping[str, str] = os.environ
    ) -> None:
        match = _ADDRESS.fullmatch(address)
        if match is None or not 0 < int(match[3]) < 65536:
            raise OptionError(
                "no address of a server",
                option="--resp",
                value=address if FIELD not in address else "(not shown)",
                expected="HOST:PORT, [HOST]:PORT for IPv6",
                remedy=f"user and password go into {USER_VARIABLE} and {PASSWORD_VARIABLE}",
            )
        if FIELD in prefix:
            raise OptionError(
                "no prefix of a deployment",
                option="--resp-prefix",
                value=prefix,
                expected=f"a text without {FIELD}, as the valkey adapter's key_prefix",
            )
        self.name = f"{address} {prefix}".rstrip()
        self._host, self._port = match[1] or match[2], int(match[3])
        self._prefix = f"{prefix}{FIELD}".encode() if prefix else b""
        self._environment = environment
        self._client: Any = None

    def __iter__(self) -> Iterator[Found]:
        """Yield all keys, without the prefix, in no order."""
        redis = _library()
        client = self._client = redis.Redis(
            host=self._host,
            port=self._port,
            username=self._environment.get(USER_VARIABLE) or None,
            password=self._environment.get(PASSWORD_VARIABLE) or None,
            socket_timeout=TIMEOUT_SECONDS,
            socket_connect_timeout=TIMEOUT_SECONDS,
        )
        pattern = _escaped(self._prefix) + b"*" if self._prefix else None
        try:
            cursor = 0
            while True:
                cursor, keys = client.scan(cursor, match=pattern, count=BATCH)
                if keys:
                    yield from self._sized(redis, client, keys)
                if cursor == 0:
                    return
        except redis.RedisError as error:
            raise self._unreadable(error) from None
        finally:
            client.close()

    def read(self, found: Found, offset: int, size: int) -> bytes:
        """Return bytes of a value; none where it is gone."""
        key = self._prefix + found.name.encode("utf-8", "surrogateescape")
        try:
            answer: bytes = self._client.getrange(key, offset, offset + size - 1)
        except _library().RedisError as error:
            raise self._unreadable(error) from None
        return answer

    def _unreadable(self, error: Exception) -> StoreError:
        return StoreError(
            f"the server can't be read: {error}",
            option="--resp",
            value=self.name,
            expected="a Redis or Valkey server that answers SCAN and STRLEN",
            remedy=f"start it; if it wants a password, set {PASSWORD_VARIABLE}",
        )

    def _sized(self, redis: Any, client: Any, keys: list[bytes]) -> Iterator[Found]:
        lengths = _asked(client, "strlen", keys)
        # 0 is also what a key has that was evicted meanwhile; an error, another type.
        open_keys = [key for key, length in zip(keys, lengths, strict=True) if not _known(length)]
        types = dict(zip(open_keys, _asked(client, "type", open_keys), strict=True))
        for key, length in zip(keys, lengths, strict=True):
            name = key.removeprefix(self._prefix).decode("utf-8", "surrogateescape")
            if _known(length):
                yield Found(name, length)
            elif types[key] == b"string":
                yield Found(name, 0)
            elif isinstance(types[key], redis.RedisError):
                raise types[key]
            elif types[key] != b"none":
                yield Found(name, 0, Shape.NO_BYTES)


def _asked(client: Any, command: str, keys: list[bytes]) -> list[Any]:
    if not keys:
        return []
    pipeline = client.pipeline(transaction=False)
    for key in keys:
        getattr(pipeline, command)(key)
    answers: list[Any] = pipeline.execute(raise_on_error=False)
    return answers


def _known(length: Any) -> bool:
    return isinstance(length, int) and length > 0


def _escaped(text: bytes) -> bytes:
    return re.sub(rb"([*?\[\]^\\-])", rb"\\\1", text)


def _library() -> Any:
    try:
        import redis
    except ImportError:
        raise PrerequisiteError(
            "a Redis server can't be read without the redis package",
            option="--resp",
            expected="a Python with the package redis",
            remedy="run this with the engine environment's Python, where LMCache brought it",
        ) from None
    return redis
