# SPDX-License-Identifier: Apache-2.0
"""What of an engine's log is told to the reader of a report, however the log arrives."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvseal.drivers.verify.log_watch import MOST_WARNINGS, LogWatch

WORDS = {
    "degraded mode": "the cache was given up",
    "Failed to retrieve": "a retrieve failed",
}

DEGRADED = """\
\x1b[32;20m[2026-11-30 16:23:18,885] LMCache INFO:\x1b[0m num_layer: 30, chunk_size: 64
\x1b[31;20m[2026-11-30 16:23:18,886] LMCache ERROR:\x1b[0m Components failed: Traceback (most recent call last):
  File "/site/lmcache/manager.py", line 94, in __init__
    engine = factory.engine()
             ^^^^^^^^^^^^^^^^
{ending}
. System will operate in degraded mode (recompute). \x1b[3m(manager.py:107:lmcache.v1.manager)\x1b[0m
\x1b[32;20m[2026-11-30 16:23:18,889] LMCache INFO:\x1b[0m initialized for role WORKER
"""  # noqa: E501
"""Shaped as LMCache 0.5.4 writes it on a CPU: the traceback stands in a sentence."""

SENTENCE = "System will operate in degraded mode (recompute). (manager.py:107:lmcache.v1.manager)"


class Log:
    """A log under way with its watch."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()
        self.watch = LogWatch(path, WORDS)

    def add(self, text: str | bytes) -> tuple[list[str], list[str]]:
        with self.path.open("ab") as file:
            file.write(text if isinstance(text, bytes) else text.encode())
        return self.watch.read()


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "engine.log")


@pytest.mark.parametrize(
    ("ending", "cause"),
    [
        ("RuntimeError: No connector for cpu.", "RuntimeError: No connector for cpu."),
        ("ValueError: No supported layout", "ValueError: No supported layout."),
        ("AssertionError", "AssertionError."),
        ("a.b.OddError: two\nlines of it", "a.b.OddError: two."),
        (
            "KeyError: 1\n\nDuring its handling:\n\nTraceback (most recent call last):\n"
            '  File "/site/b.py", line 1, in f\nOSError: the last one',
            "OSError: the last one.",
        ),
    ],
)
def test_the_reason_names_what_the_traceback_before_it_ended_in(
    log: Log, ending: str, cause: str
) -> None:
    _, reasons = log.add(DEGRADED.format(ending=ending))
    assert reasons == [f"the cache was given up: {cause} {SENTENCE}"]


def test_the_same_when_it_comes_in_pieces(log: Log) -> None:
    found = []
    for byte in DEGRADED.format(ending="RuntimeError: No connector for cpu.").encode():
        found += log.add(bytes([byte]))[1]
    assert found == [f"the cache was given up: RuntimeError: No connector for cpu. {SENTENCE}"]


def test_a_record_of_its_own_has_no_cause_in_another(log: Log) -> None:
    _, reasons = log.add(
        "Traceback (most recent call last):\n  File\nValueError: of something else\n"
        "[2026-11-30 16:23:18,886] LMCache ERROR: Failed to retrieve 3 chunks\n"
        "now in degraded mode\n"
    )
    assert reasons == [
        "a retrieve failed: [2026-11-30 16:23:18,886] LMCache ERROR: Failed to retrieve 3 chunks",
        "the cache was given up: now in degraded mode",
    ]


@pytest.mark.parametrize(
    "record",
    ["INFO 11-30 16:23:18 [core.py:1] ready", "[2026-11-30 16:23:18,889] LMCache DEBUG: x"],
)
def test_a_cause_ends_where_another_record_begins(log: Log, record: str) -> None:
    _, reasons = log.add(
        f"Traceback (most recent call last):\n  File\nValueError: old\n{record}\ndegraded mode\n"
    )
    assert reasons == ["the cache was given up: degraded mode"]


def test_a_traceback_that_has_not_ended_names_no_former_cause(log: Log) -> None:
    _, reasons = log.add(
        "Traceback (most recent call last):\n  File\nValueError: old\n"
        "Traceback (most recent call last):\n  raise Error('degraded mode')\n"
    )
    assert reasons == ["the cache was given up: raise Error('degraded mode')"]


def test_a_line_counts_once_it_is_whole(log: Log) -> None:
    assert log.add("WARNING lmcache: half of") == ([], [])
    assert log.add(" it, Degraded MODE") == ([], [])
    warnings, reasons = log.add("\nWARNING lmcache: begun")
    assert warnings == ["WARNING lmcache: half of it, Degraded MODE"]
    assert reasons == ["the cache was given up: WARNING lmcache: half of it, Degraded MODE"]
    assert log.add("") == ([], [])
    assert log.add(" and done\n") == (["WARNING lmcache: begun and done"], [])


def test_a_character_split_over_two_reads(log: Log) -> None:
    assert log.add("WARNING lmcache: \u00e9".encode()[:-1]) == ([], [])
    assert log.add(b"\xa9 whole\n")[0] == ["WARNING lmcache: \u00e9 whole"]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("WARNING [lmcache_connector.py:1] odd", True),
        ("[2026-11-30 16:23:24,778] LMCache WARNING: Skipping post_init", True),
        ("[2026-11-30 16:23:24,778] LMCache ERROR: no", True),
        ("CRITICAL KV_transfer broke", True),
        ("ERROR kv connector", True),
        ("ERROR KVConnectorBase", True),
        ("WARNING kv load", True),
        ("WARNING Initializing a Connector", True),
        ("[2026-11-30 16:23:24,778] LMCache INFO: fine", False),
        ("WARNING libtcmalloc is not found", False),
        ("LMCACHE_WARNINGS are not warnings", False),
        ("lmcache warning in lower case", False),
        ("INFO lmcache", False),
    ],
)
def test_warnings_about_the_cache_alone(log: Log, line: str, told: bool) -> None:
    assert log.add(f"{line}\n") == ([line] if told else [], [])


def test_the_same_warning_once_times_and_counters_apart(log: Log) -> None:
    warnings, _ = log.add(
        "[2026-11-30 16:23:24,778] LMCache WARNING: Pin count of object 17 is negative\n"
        "[2026-11-30 16:24:25,001] LMCache WARNING: Pin count of object 3 is negative\n"
        "[2026-11-30 16:24:25,001] LMCache WARNING: another\n"
    )
    assert [line.partition("WARNING: ")[2] for line in warnings] == [
        "Pin count of object 17 is negative",
        "another",
    ]
    again, _ = log.add("[2026-12-01 01:02:03,004] LMCache WARNING: Pin count of object 9 is "
                       "negative\n")  # fmt: skip
    assert again == []


def test_each_reason_once_and_several_in_one_line(log: Log) -> None:
    assert log.add("Failed to retrieve, so degraded mode\nFailed to retrieve again\n")[1] == [
        "the cache was given up: Failed to retrieve, so degraded mode",
        "a retrieve failed: Failed to retrieve, so degraded mode",
    ]
    assert log.add("degraded mode\n") == ([], [])


def word(number: int) -> str:
    return f"{chr(97 + number // 26)}{chr(97 + number % 26)}"


def test_a_flood_of_warnings_ends_and_hides_no_reason(log: Log) -> None:
    flood = "".join(f"WARNING lmcache {word(number)}\n" for number in range(MOST_WARNINGS + 50))
    warnings, reasons = log.add(f"{flood}ERROR lmcache: degraded mode\n")
    assert len(warnings) == MOST_WARNINGS == 100
    assert warnings[-1] == f"WARNING lmcache {word(MOST_WARNINGS - 1)}"
    assert reasons == ["the cache was given up: ERROR lmcache: degraded mode"]
    assert log.add("WARNING lmcache once more\n") == ([], [])


def test_nothing_in_the_log_is_nothing(log: Log) -> None:
    assert log.add("") == ([], [])
    assert log.add("\n\n \n") == ([], [])
