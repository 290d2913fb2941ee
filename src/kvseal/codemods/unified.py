# SPDX-License-Identifier: Apache-2.0
"""The unified diff kept with a patch record, in the form `git apply` takes.

Pure text in, text out; `patchset` calls it.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

NO_NEWLINE = "\n\\ No newline at end of file\n"


def unified_diff(files: Mapping[str, tuple[bytes | None, bytes]]) -> str:
    """Return the diff from the first to the second bytes of each file, None for a new file.

    Paths are relative to site-packages and get git's `a/` and `b/`.
    """
    return "".join(_one(path, before, after) for path, (before, after) in sorted(files.items()))


def _one(path: str, before: bytes | None, after: bytes) -> str:
    head = f"diff --git a/{path} b/{path}\n"
    if before is None:
        head += "new file mode 100644\n"
    lines = difflib.unified_diff(
        _lines(before or b""),
        _lines(after),
        "/dev/null" if before is None else f"a/{path}",
        f"b/{path}",
    )
    return head + "".join(line if line.endswith("\n") else line + NO_NEWLINE for line in lines)


def _lines(data: bytes) -> list[str]:
    # Only "\n" ends a line of a diff; str.splitlines would also cut at form feeds.
    parts = data.decode("utf-8").split("\n")
    return [part + "\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])
