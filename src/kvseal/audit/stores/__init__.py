# SPDX-License-Identifier: Apache-2.0
"""Readers of L2 stores: each lists what is there, reads it when asked, and can do nothing else.

A reader has `kind`, `name` for people (never a credential), `file_names` (are
names those of the fs adapters?) and iterates over what it finds, once, in
memory that does not grow. It raises StoreError, naming itself, when it can't
go on. Made by kvseal.cli.audit, walked by kvseal.audit.run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from kvseal.audit.classify import Found


class Store(Protocol):
    """What every reader is."""

    kind: str
    name: str
    file_names: bool

    def __iter__(self) -> Iterator[Found]:
        """Yield everything in the store.

        Raises:
            StoreError: the store can't be read, or not to its end.
            PrerequisiteError: a package that the reader needs is not installed.
        """

    def read(self, found: Found, offset: int, size: int) -> bytes:
        """Return up to `size` bytes of `found`; none where it is gone. While iterating alone.

        Raises:
            StoreError: it can't be read.
        """
