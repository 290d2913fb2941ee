# SPDX-License-Identifier: Apache-2.0
"""Each fault changes the object it is given as it says, and no other."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from kvseal.errors import StoreError
from kvseal.faults.stored_objects import FAULTS, FolderObjects, _resp_value

ONE, OTHER, THIRD = (bytes([value]) * 6000 for value in (1, 2, 3))


@pytest.fixture
def objects(tmp_path: Path) -> FolderObjects:
    (tmp_path / "below").mkdir()
    for name, data in (("below/one", ONE), ("other", OTHER), ("third", THIRD)):
        (tmp_path / f"{name}.data").write_bytes(data)
    (tmp_path / "unfinished.tmp").write_bytes(b"")
    return FolderObjects(tmp_path)


AFTER = {
    "cut": ONE[:-1],
    "halved": ONE[:3000],
    "emptied": b"",
    "lengthened": ONE + bytes(4096),
    "bit_flipped": ONE[:2000] + b"\5" + ONE[2001:],
    "zeroed": bytes(6000),
    "swapped": OTHER,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_does_what_it_says_and_nothing_else(objects: FolderObjects, fault: str) -> None:
    FAULTS[fault](objects, "below/one.data", "other.data")
    if fault == "lost":
        assert sorted(objects.names()) == ["other.data", "third.data"]
    else:
        assert objects.read("below/one.data") == AFTER[fault]
    assert objects.read("other.data") == (ONE if fault == "swapped" else OTHER)
    assert objects.read("third.data") == THIRD


def test_every_fault_is_tried() -> None:
    assert set(AFTER) | {"lost"} == set(FAULTS)


def test_a_name_is_found_by_its_parts_or_refused(objects: FolderObjects) -> None:
    assert objects.named("below", "one") == "below/one.data"
    for parts in (("data",), ("fourth",)):
        with pytest.raises(StoreError, match="not one object"):
            objects.named(*parts)


def test_answers_of_a_resp_server_are_read() -> None:
    answer = io.BytesIO(b"*2\r\n$3\r\na\r\n\r\n$-1\r\n:7\r\n+OK\r\n-ERR no\r\n")
    assert [_resp_value(answer) for _ in range(3)] == [[b"a\r\n", None], 7, b"OK"]
    with pytest.raises(StoreError, match="refuses"):
        _resp_value(answer)
