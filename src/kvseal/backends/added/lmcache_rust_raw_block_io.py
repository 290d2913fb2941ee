# SPDX-License-Identifier: Apache-2.0
"""Stands in for the Rust extension of LMCache's `raw_block` adapter: reads and writes a device.

LMCache's wheels don't bring the extension and no package index has it. What is
here is its interface as far as LMCache uses it with the engine `posix`; index,
slots and checkpoints are LMCache's own Python. Loaded by LMCache under the
extension's name; a real extension that is found first takes its place.
"""

from __future__ import annotations

import os
from typing import Any


class RawBlockDevice:
    """A device or file, opened for positioned reads and writes through the page cache."""

    def __init__(self, path: str, *, writable: bool, io_engine: str, **_: Any) -> None:
        if io_engine != "posix":
            raise RuntimeError(f"this stand-in knows the engine posix, not {io_engine}")
        self._descriptor = os.open(path, os.O_RDWR if writable else os.O_RDONLY)

    def size_bytes(self) -> int:
        """Return the device's size."""
        return os.lseek(self._descriptor, 0, os.SEEK_END)

    def fixed_buffer_status(self) -> tuple[bool, int]:
        """Return that no buffers are registered with the kernel, and how many bytes of them."""
        return False, 0

    def pwrite_from_buffer(
        self, offset: int, buffer: Any, payload_bytes: int, total_bytes: int
    ) -> None:
        """Write the payload, and zeros behind it up to `total_bytes`.

        Raises:
            OSError: not all was written.
        """
        data = bytes(memoryview(buffer).cast("B")[:payload_bytes]).ljust(total_bytes, b"\0")
        if os.pwrite(self._descriptor, data, offset) != total_bytes:
            raise OSError(f"short write at {offset}")

    def pread_into(self, offset: int, buffer: Any, payload_bytes: int, total_bytes: int) -> None:
        """Read the payload into the buffer.

        Raises:
            OSError: the device ends before.
        """
        target = memoryview(buffer).cast("B")[:payload_bytes]
        if os.preadv(self._descriptor, [target], offset) != payload_bytes:
            raise OSError(f"short read at {offset}")

    def close(self) -> None:
        """Write everything out and close."""
        os.fsync(self._descriptor)
        os.close(self._descriptor)
