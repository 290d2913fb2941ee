# SPDX-License-Identifier: Apache-2.0
"""The Redis reader's own logic, with a client that only answers; real servers: written/."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from kvseal.audit.classify import Found, Shape
from kvseal.audit.stores.resp import RespStore
from kvseal.errors import OptionError, StoreError


class RedisError(Exception):
    """Stands for the client's own."""


class Client:
    """A server whose keys are `values`; None is a key that was evicted since it was listed."""

    values: dict[bytes, Any] = {}  # noqa: RUF012 - set by each test
    asked: list[Any] = []  # noqa: RUF012
    options: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, **options: Any) -> None:
        Client.options, Client.asked = options, []
        self.closed = False

    def scan(self, cursor: int, match: bytes | None, count: int) -> tuple[int, list[bytes]]:
        Client.asked.append((cursor, match))
        keys = sorted(self.values)
        return (cursor + 1) * (cursor < len(keys)), keys[cursor : cursor + 1]

    def getrange(self, key: bytes, first: int, last: int) -> bytes:
        return self.values[key][first : last + 1]

    def pipeline(self, transaction: bool) -> Any:
        assert not transaction
        return Pipeline(self.values)

    def close(self) -> None:
        self.closed = True


class Pipeline:
    def __init__(self, values: dict[bytes, Any]) -> None:
        self.values, self.answers = values, []

    def strlen(self, key: bytes) -> None:
        value = self.values[key]
        wrong = isinstance(value, (list, RedisError))
        self.answers.append(RedisError("WRONGTYPE") if wrong else len(value or b""))

    def type(self, key: bytes) -> None:
        kinds = {bytes: b"string", list: b"list", type(None): b"none"}
        value = self.values[key]
        self.answers.append(value if isinstance(value, RedisError) else kinds[type(value)])

    def execute(self, raise_on_error: bool) -> list[Any]:
        assert not raise_on_error
        return self.answers


@pytest.fixture(autouse=True)
def client(monkeypatch: pytest.MonkeyPatch) -> type[Client]:
    module = ModuleType("redis")
    module.Redis, module.RedisError = Client, RedisError  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "redis", module)
    return Client


def test_sizes_types_and_evicted_keys(client: Any) -> None:
    client.values = {b"a": b"kv", b"b": b"", b"c": None, b"d": ["x"], b"\xff": b"kvk"}
    assert list(RespStore("h:1")) == [
        Found("a", 2),
        Found("b", 0),
        Found("d", 0, Shape.NO_BYTES),
        Found("\udcff", 3),
    ]


def test_a_prefix_is_no_pattern_and_is_taken_off(client: Any) -> None:
    client.values = {b"p*[?]^-\\@m@x": b"kv"}
    store = RespStore("h:1", "p*[?]^-\\")
    (found,) = store
    assert found == Found("m@x", 2)
    assert client.asked[0] == (0, b"p\\*\\[\\?\\]\\^\\-\\\\@*")
    assert store.read(found, 1, 5) == b"v"


def test_an_answer_that_is_an_error_ends_the_reading(client: Any) -> None:
    client.values = {b"a": RedisError("LOADING")}
    with pytest.raises(StoreError, match="LOADING"):
        list(RespStore("h:1"))


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [("h:1", "h", 1), ("[::1]:6379", "::1", 6379), ("a.b:65535", "a.b", 65535)],
)
def test_addresses(client: Any, address: str, host: str, port: int) -> None:
    client.values = {}
    assert list(RespStore(address, "", {"LMCACHE_RESP_PASSWORD": "hunter2"})) == []
    assert (client.options["host"], client.options["port"]) == (host, port)
    assert client.options["password"] == "hunter2"
    assert client.options["username"] is None


@pytest.mark.parametrize("address", ["", "h", ":1", "h:0", "h:65536", "h:x", "::1:1", "u:pw@h:1"])
def test_no_address(address: str) -> None:
    with pytest.raises(OptionError) as caught:
        RespStore(address)
    assert "pw" not in str(caught.value)
