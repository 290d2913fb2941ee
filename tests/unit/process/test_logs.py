# SPDX-License-Identifier: Apache-2.0
"""The tail of a log is short, and safe to print."""

from pathlib import Path

from kvseal.process import log_tail


def test_last_lines_without_escapes_and_progress_bars(tmp_path: Path) -> None:
    log = tmp_path / "l"
    log.write_bytes(
        b"first\n\x1b[31mred\x1b[0m\n\n 10%\r 50%\r100% done\n\xff bad \x07bell\r\nlast"
    )
    assert log_tail(log, 4) == ["red", "100% done", "\ufffd bad bell", "last"]


def test_a_huge_log_is_not_read_whole(tmp_path: Path) -> None:
    log = tmp_path / "l"
    log.write_bytes(b"x" * 1_000_000 + b"\nend\n")
    assert log_tail(log, 2, width=10) == ["x" * 9 + "…", "end"]


def test_a_missing_log_says_so(tmp_path: Path) -> None:
    assert "can't be read" in log_tail(tmp_path / "none")[0]
