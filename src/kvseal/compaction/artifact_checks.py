# SPDX-License-Identifier: Apache-2.0
"""Looks into the arrays of an artifact for kvseal.identity, which knows neither torch nor numpy.

Works on torch tensors on any device and on numpy arrays, one slice of the
leading axis at a time, so that no copy of a whole cache is made. Changes
nothing. `check_before_store` is what stands between a transform and a store.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from kvseal.compaction.tensors import FLOAT_DTYPES
from kvseal.errors import TransformError
from kvseal.identity.artifact import KVArtifact
from kvseal.identity.checks import check_artifact
from kvseal.identity.parts import Format


class TensorReader:
    """The ArrayReader of kvseal.identity for torch tensors and numpy arrays."""

    def is_finite(self, array: Any) -> bool:
        """Return whether no element is NaN or infinite; integers always are finite."""
        for part in _slices(array):
            if not part.dtype.is_floating_point:
                return True
            # Elements of eight bits have no order of their own in torch.
            low, high = torch.aminmax(part if part.dtype in FLOAT_DTYPES else part.float())
            if not bool(torch.isfinite(low) & torch.isfinite(high)):
                return False
        return True

    def chunks(self, array: Any) -> Iterator[bytes]:
        """Yield the elements in row order, little-endian, a slice of the first axis at a time."""
        for part in _slices(array):
            rows = part.detach().contiguous().cpu().reshape(-1)
            raw = rows.view(torch.uint8).reshape(-1, rows.element_size())
            if sys.byteorder == "big":
                raw = raw.flip(1)
            yield raw.numpy().tobytes()


def check_before_store(
    artifact: KVArtifact,
    source_token_ids: Sequence[int],
    *,
    source_variant: str = "",
    expected_format: Format | None = None,
) -> None:
    """Refuse what kvseal.identity.check_artifact refuses, of torch or numpy arrays.

    Raises:
        TransformError: naming the first part that is wrong.
    """
    check_artifact(
        artifact,
        source_token_ids,
        reader=TensorReader(),
        source_variant=source_variant,
        expected_format=expected_format,
    )


def _slices(array: Any) -> Iterator[torch.Tensor]:
    if len(array.shape) < 2 or 0 in array.shape:
        raise TransformError(
            "an array of KV holds nothing",
            option="keys, values or packed",
            value=list(array.shape),
            expected="two axes or more, none of length 0",
        )
    for part in array:
        if isinstance(part, torch.Tensor):
            yield part
        else:
            # torch takes no read-only memory; a slice is small enough to copy.
            yield torch.from_numpy(part if part.flags.writeable else part.copy())
