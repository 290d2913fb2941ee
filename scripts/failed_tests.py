# SPDX-License-Identifier: Apache-2.0
"""Say again, at the very end, which tests failed and where.

A log of an hour is often seen by its last lines alone. Called by check.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

KEPT = 25
"""Lines of a test's traceback that are said; the last ones name the line and the error."""


def failed_tests(reports: Path) -> Iterator[str]:
    """Yield the lines that tell of each test that failed, from a folder of JUnit reports."""
    for report in sorted(reports.glob("*.xml")):
        for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314, pytest's own
            for kind in ("failure", "error"):
                for told in case.iterfind(kind):
                    yield f"--- {kind}: {case.get('classname')}::{case.get('name')}"
                    yield from (told.text or told.get("message") or "").splitlines()[-KEPT:]
