# SPDX-License-Identifier: Apache-2.0
"""What may cross the line between the verifier and an engine's process."""

from __future__ import annotations

import json
import math
import os
from enum import Enum, IntEnum
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest

from kvseal.engines.offline import protocol
from kvseal.engines.offline.protocol import (
    Answer,
    EngineArguments,
    Question,
    json_values,
    plain,
    receive,
    send,
)


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Odd:
    def __str__(self) -> str:
        return "an odd object"


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (None, None),
        (True, True),
        (False, False),
        (0, 0),
        (2**70, 2**70),
        ("text", "text"),
        (0.5, 0.5),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (math.nan, "nan"),
        ((1, (2, [math.inf])), [1, [2, ["inf"]]]),
        ({1: {"a": math.nan}, None: 2, "b": (0.5,)}, {"1": {"a": "nan"}, "None": 2, "b": [0.5]}),
        ({True: 1}, {"True": 1}),
        (Odd(), "an odd object"),
        ([Odd()], ["an odd object"]),
        (Path("/a/b"), "/a/b"),
        (Colour.RED, "Colour.RED"),
        (Level.HIGH, 3),
        (b"bytes", "b'bytes'"),
        ({1}, "{1}"),
        (1 + 2j, "(1+2j)"),
        ([], []),
        ({}, {}),
    ],
)
def test_values_that_json_can_hold(value: object, found: object) -> None:
    made = json_values(value)
    assert made == found
    assert type(made) is type(found) or isinstance(value, Level)
    json.dumps(made, allow_nan=False)


def test_values_are_copies() -> None:
    given: dict[str, Any] = {"list": [1, 2], "dict": {"a": 1}}
    made = json_values(given)
    made["list"].append(3)
    made["dict"]["b"] = 2
    assert given == {"list": [1, 2], "dict": {"a": 1}}


MESSAGES: list[Any] = [
    EngineArguments("/m", "/t", "float16", 16, 512, 0.45, 0, True, {"kv_connector": "C"}),
    EngineArguments("/m", "/t", "float32", 16, 512, None, 0, False),
    Question([1, 2], 16, 0, "tenant.run.scope", {"lmcache.tag.kvseal_scope": "s"}),
    Question([], 1, 0, ""),
    Answer([1, 2], [3], 0, "length", [[[3, -0.5], [4, -1.5]], None]),
    Answer([], [], None, None, []),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_comes_out_as_it_went_in(message: Any) -> None:
    here, there = Pipe()
    with here, there:
        send(here, op="any", body=plain(message), text="\u00e4\n\u2028")
        received = receive(there)
    assert received["op"] == "any"
    assert received["text"] == "\u00e4\n\u2028"
    assert type(message)(**received["body"]) == message


def test_messages_keep_apart() -> None:
    here, there = Pipe()
    with here, there:
        for number in range(3):
            send(here, number=number)
        assert [receive(there)["number"] for _ in range(3)] == [0, 1, 2]


def test_the_other_side_has_gone() -> None:
    here, there = Pipe()
    there.close()
    with here:
        with pytest.raises(EOFError):
            receive(here)
        with pytest.raises(OSError, match="pipe"):
            send(here, op="answer")


def test_a_message_broken_off() -> None:
    here, there = Pipe()
    with here:
        os.write(there.fileno(), b"\0\0\0\x10{")
        there.close()
        with pytest.raises((EOFError, OSError)):
            receive(here)


def test_defaults_and_names() -> None:
    assert protocol.ADDRESS_VARIABLE == "KVSEAL_OFFLINE_ADDRESS"
    assert protocol.TOP_LOGPROBS == 2
    assert MESSAGES[1].kv_transfer is None
    assert MESSAGES[3].kv_transfer_params == {}
