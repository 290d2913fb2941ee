# SPDX-License-Identifier: Apache-2.0
"""What an engine writes about its cache while it is asked: warnings, and words that disqualify.

A connector that gives up says so in the log and goes on recomputing, with
answers that are right and prove nothing. Read after each answer, from where the
last reading ended; the log itself stays beside the report.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kvseal.process.logs import plain_lines

_TOPIC = re.compile(r"lmcache|kv[_ ]?(connector|transfer|load)|connector", re.IGNORECASE)
_LEVEL = re.compile(r"\b(WARNING|ERROR|CRITICAL)\b")
_RECORD = re.compile(r"(\[[^]]*\] LMCache )?(DEBUG|INFO|WARNING|ERROR|CRITICAL)[: ]")
_TRACEBACK = "Traceback (most recent call last)"
MOST_WARNINGS = 100


@dataclass
class LogWatch:
    """Reads one engine's log. `disqualifying` maps words to what they mean."""

    path: Path
    disqualifying: Mapping[str, str]
    _position: int = 0
    _rest: bytes = b""
    _in_traceback: bool = False
    _raised: str = ""
    _told: set[str] = field(default_factory=set)

    def read(self) -> tuple[list[str], list[str]]:
        """Return new warnings about the cache, and new reasons why its engine can't count.

        Each reason is given once, and the same warning once, times and counters apart.
        """
        with self.path.open("rb") as file:
            file.seek(self._position)
            data = self._rest + file.read()
            self._position = file.tell()
        whole, _, self._rest = data.rpartition(b"\n")
        warnings, reasons = [], []
        for line in plain_lines(whole):
            for words, meaning in self.disqualifying.items():
                if words.lower() in line.lower() and self._new(words):
                    reasons.append(f"{meaning}: {self._with_cause(line)}")
            if _LEVEL.search(line) and _TOPIC.search(line) and self._room(line):
                warnings.append(line)
            self._follow(line)
        return warnings, reasons

    def _with_cause(self, line: str) -> str:
        """Return `line`; where it goes on after a traceback, with what that one ended in.

        LMCache writes a traceback into the middle of a sentence.
        """
        if not self._raised or _RECORD.match(line):
            return line.strip()
        return f"{self._raised.rstrip('. ')}. {line.lstrip('. ')}"

    def _follow(self, line: str) -> None:
        """Keep the exception that ends a traceback until another record begins."""
        if _TRACEBACK in line:
            self._in_traceback, self._raised = True, ""
        elif self._in_traceback and not line[0].isspace():
            self._in_traceback, self._raised = False, line
        elif _RECORD.match(line):
            self._raised = ""

    def _room(self, line: str) -> bool:
        return len(self._told) < MOST_WARNINGS and self._new(re.sub(r"[0-9]+", "0", line))

    def _new(self, what: str) -> bool:
        if what in self._told:
            return False
        self._told.add(what)
        return True
