# SPDX-License-Identifier: Apache-2.0
"""What a modifier that lies would hand over. Each must be refused before it is stored."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch

from kvseal.drivers.matrix.surface import Stored

LONG_SALT = "long-salt"
"""No lie of a modifier: the tenant's salt makes file names too long."""


def falsified(stored: Stored, lie: str) -> Stored:
    """Return what is given to the store in the place of `stored`."""
    return _LIES[lie](stored) if lie in _LIES else stored


def _positions(stored: Stored) -> Stored:
    """The first two positions change places: they don't increase."""
    told = stored.identity.retained_positions
    return _with(stored, retained_positions=told[4:8] + told[:4] + told[8:])


def _tokens(stored: Stored) -> Stored:
    """The first token ID is another one than the source has there."""
    first, *rest = stored.identity.logical_token_ids
    return _with(stored, logical_token_ids=(first + 1, *rest))


def _lengths(stored: Stored) -> Stored:
    """One token ID more than there are rows."""
    ids = stored.identity.logical_token_ids
    return _with(stored, logical_token_ids=(*ids, ids[-1]))


def _numbers(stored: Stored) -> Stored:
    """A value that is no number."""
    values = stored.made.values.clone()
    values[0, 0, 0, 0] = torch.nan
    made = dataclasses.replace(stored.made, values=values)
    return Stored(made, dataclasses.replace(stored.identity, values=values))


def _with(stored: Stored, **wrong: object) -> Stored:
    """The same with other claims."""
    return Stored(stored.made, dataclasses.replace(stored.identity, **wrong))  # type: ignore[arg-type]


_LIES: dict[str, Callable[[Stored], Stored]] = {
    "positions": _positions,
    "tokens": _tokens,
    "lengths": _lengths,
    "numbers": _numbers,
}
