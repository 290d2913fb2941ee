# SPDX-License-Identifier: Apache-2.0
"""More than a million generated names without a collision or a misread (about 10 s of CPU)."""

from __future__ import annotations

import base64
import random
import time

from kvseal.errors import EvidenceError
from kvseal.identity import parse_server_model_name, server_model_name, split

NAMES = 1_100_000
SECONDS = 30
PIECES = (
    "#", "##", "##t", "##q", "##query", "##tv", "##TV1-", "##tv1-", "tv1-", "##tv2-", "-SEP-",
    "-->", "@", "/", "\\", ".", "-", "_", "~", "%", " ", "\n", "\x00", "é", "e\u0301", "日",
    "\u200b", "＃＃tv1-", "\U0001f600", "ﬀ", "İ", "org", "model", "query", "r1", "q1", "m",
)  # fmt: skip
ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"


def test_a_million_names() -> None:
    chance = random.Random(20261130)  # noqa: S311
    started = time.process_time()
    # Few variants, and near ones, so that a dropped or moved character collides.
    bits = [base64.b32encode(chance.randbytes(20)).decode().lower() for _ in range(20)]
    bits += [text[:place] + letter + text[place + 1 :]
             for text in bits[:4] for place in range(32) for letter in chance.sample(ALPHABET, 2)
             ]  # fmt: skip
    variants = ["", *{f"{letter}1{text}" for letter in "rqpg" for text in bits}]
    # Hashes of 64 bits, as the texts of a million keys would take half a gigabyte.
    keys: set[int] = set()
    names: set[int] = set()
    made = refused = 0
    while made < NAMES:
        model = "".join(chance.choices(PIECES, k=chance.randint(0, 6)))
        if chance.random() < 0.2:
            # A model named like a key of another: what a forger would try.
            model += "##tv1-" + chance.choice(variants) + chance.choice(("", "##query", "x"))
        if "##tv" in model.lower() or model.endswith("##query"):
            refused += 1
            _ordinary_never(model)
            continue
        for _ in range(4):
            key = (model, chance.choice(variants), chance.random() < 0.5)
            name = server_model_name(key[0], key[1], query=key[2])
            assert parse_server_model_name(name) == key, "misread"
            keys.add(hash(key))
            names.add(hash(name))
            made += 1
    assert len(names) == len(keys), "two keys with one name, or one key with two"
    assert len(names) > NAMES // 2, "too few different names"
    assert refused > NAMES // 100, "too few forgeries"
    assert time.process_time() - started < SECONDS


def _ordinary_never(model: str) -> None:
    """A name that holds the mark is refused, or is the key of a variant; never an ordinary one."""
    if "##tv" not in model.lower():
        return
    try:
        found, variant = split(model)
    except EvidenceError:
        return
    assert variant
    assert model == f"{found}##tv1-{variant}"
