# SPDX-License-Identifier: Apache-2.0
"""A compacted cache whose parts disagree does not come to be."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="no torch: run in the engine environment")

from kvseal.compaction.compacted import Compacted  # noqa: E402
from kvseal.errors import TransformError  # noqa: E402

GOOD = {
    "keys": torch.zeros(2, 3, 1, 4),
    "values": torch.zeros(2, 3, 1, 4),
    "retained_positions": torch.tensor([1, 4, 7]),
    "new_positions": torch.arange(3),
    "token_ids": (5, 5, 9),
    "source_tokens": 8,
}


def test_good() -> None:
    assert Compacted(**GOOD).retained_tokens == 3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("keys", torch.zeros(2, 3, 4)),
        ("keys", torch.zeros(2, 3, 1, 4, dtype=torch.int8)),
        ("values", torch.zeros(2, 3, 1, 5)),
        ("values", torch.zeros(2, 3, 1, 4).half()),
        ("token_ids", (5, 5)),
        ("retained_positions", torch.tensor([1, 4])),
        ("retained_positions", torch.tensor([1, 4, 4])),
        ("retained_positions", torch.tensor([4, 1, 7])),
        ("retained_positions", torch.tensor([-1, 4, 7])),
        ("retained_positions", torch.tensor([1, 4, 8])),
        ("retained_positions", torch.tensor([1.0, 4.0, 7.0])),
        ("new_positions", torch.tensor([0, 0, 1])),
        ("new_positions", torch.arange(3, dtype=torch.int32)),
    ],
)
def test_refused(name: str, value: Any) -> None:
    with pytest.raises(TransformError) as caught:
        Compacted(**{**GOOD, name: value})
    assert caught.value.option == name
