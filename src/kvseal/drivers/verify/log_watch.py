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
MOST_WARNINGS = 100


@dataclass
class LogWatch:
    """Reads one engine's log. `disqualifying` maps words to what they mean."""

    path: Path
    disqualifying: Mapping[str, str]
    _position: int = 0
    _rest: bytes = b""
    _before: str = ""
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
                    # The end of a traceback stands in the line before.
                    reasons.append(f"{meaning}: {self._before.strip()} {line}")
            if _LEVEL.search(line) and _TOPIC.search(line) and self._room(line):
                warnings.append(line)
            self._before = line
        return warnings, reasons

    def _room(self, line: str) -> bool:
        return len(self._told) < MOST_WARNINGS and self._new(re.sub(r"[0-9]+", "0", line))

    def _new(self, what: str) -> bool:
        if what in self._told:
            return False
        self._told.add(what)
        return True
