# SPDX-License-Identifier: Apache-2.0
"""Write and read history.jsonl: one event a line, each on disk before the next begins.

A line carries `seq` (0, 1, 2 …), `at` (RFC 3339, UTC, milliseconds) and `event`
besides the event's own fields. Which events there are is said by a table: that
of a run (kvseal.records.events) unless another is given. The reader refuses
what the table does not know and says where; the one damage it accepts is a last
line without its end, which is what a killed writer leaves.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Protocol

from kvseal.canonical import loads_strict
from kvseal.errors import EvidenceError
from kvseal.records.events import TABLE
from kvseal.records.fields import EventTable, fits

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
ENVELOPE = ("seq", "at", "event")


@dataclass(frozen=True)
class Event:
    """One line of a history; `event["index"]` reads a field."""

    seq: int
    at: str
    name: str
    fields: Mapping[str, Any]

    def __getitem__(self, field: str) -> Any:
        return self.fields[field]


@dataclass(frozen=True)
class History:
    """All whole lines of a history, and whether the last one was broken off."""

    events: tuple[Event, ...]
    truncated: bool = False

    def named(self, name: str) -> list[Event]:
        """Return the events called `name`, in order."""
        return [event for event in self.events if event.name == name]


def utc_now() -> str:
    """Return the time as RFC 3339 with milliseconds and Z."""
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    return now.replace("+00:00", "Z")


class LineSink(Protocol):
    """Where lines go; kvseal.store.LineFile is one."""

    def append(self, line: str) -> None:
        """Keep one line, which holds no line end, before returning."""
        ...


class HistoryWriter:
    """Numbers, dates and checks events of `table` on their way to `sink`.

    The sink keeps each line on disk before the next one is asked for, and takes
    back one that found no room.
    """

    def __init__(self, sink: LineSink, table: EventTable = TABLE) -> None:
        self._sink = sink
        self._table = table
        self._seq = 0
        # A signal handler may report an interruption in the middle of an append.
        self._lock = threading.RLock()

    def append(self, event: Mapping[str, Any]) -> None:
        """Write one event, made by the builders that belong to the table.

        Raises:
            EvidenceError: when the event does not have exactly its fields, or a
                number in it is no JSON number.
            Whatever the sink raises; the event then is not in the history.
        """
        with self._lock:
            line = {"seq": self._seq, "at": utc_now(), **event}
            check_line(line, f"event {self._seq}", self._table)
            try:
                text = json.dumps(line, ensure_ascii=False, allow_nan=False)
            except ValueError as error:
                raise EvidenceError(f"event {self._seq} can't be written: {error}") from None
            self._sink.append(text)
            self._seq += 1


def read_history(path: Path, table: EventTable = TABLE) -> History:
    """Read a history file and hold it to `table`.

    Raises:
        EvidenceError: when it can't be read or a whole line is not an event,
            naming the file and line.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise EvidenceError(
            f"the history can't be read: {error.strerror}", option=str(path)
        ) from None
    return parse_history(data, str(path), table)


def parse_history(data: bytes, name: str = "history.jsonl", table: EventTable = TABLE) -> History:
    """Parse the bytes of a history; `name` stands in errors."""
    *lines, rest = data.split(b"\n")
    events = []
    for number, text in enumerate(lines, 1):
        where = f"{name} line {number}"
        try:
            line = loads_strict(text)
        except EvidenceError as error:
            raise EvidenceError(f"{where}: {error.message}") from None
        check_line(line, where, table)
        if line["seq"] != number - 1:
            raise EvidenceError(
                f"{where}: an event is missing or out of place",
                value=line["seq"],
                expected=f"seq {number - 1}",
            )
        fields = {key: value for key, value in line.items() if key not in ENVELOPE}
        events.append(Event(line["seq"], line["at"], line["event"], fields))
    return History(tuple(events), truncated=bool(rest))


def check_line(line: Any, where: str, table: EventTable = TABLE) -> None:
    """Hold one parsed line to the table of events.

    Raises:
        EvidenceError: naming `where` and the field that is wrong.
    """
    if not isinstance(line, Mapping) or not {"seq", "at", "event"} <= set(line):
        raise EvidenceError(f"{where}: not an event", expected="an object with seq, at and event")
    if not isinstance(line["event"], str) or line["event"] not in table.events:
        raise EvidenceError(
            f"{where}: unknown event", value=line["event"], expected=" or ".join(table.events)
        )
    if not fits(line["seq"], {"type": "integer", "minimum": 0}):
        raise EvidenceError(f"{where}: field seq is wrong", value=line["seq"], expected="0, 1, 2 …")
    if not (isinstance(line["at"], str) and TIME.fullmatch(line["at"])):
        raise EvidenceError(
            f"{where}: field at is wrong", value=line["at"], expected="RFC 3339 in UTC with Z"
        )
    wanted = table.events[line["event"]]
    present = set(line) - set(ENVELOPE)
    for field in sorted(present ^ set(wanted)):
        raise EvidenceError(
            f"{where}: event {line['event']} {'has unknown' if field in present else 'lacks'} "
            f"field {field}",
            expected=", ".join(wanted) or "no field",
        )
    for field, schema in wanted.items():
        if not fits(line[field], schema):
            raise EvidenceError(
                f"{where}: field {field} of event {line['event']} is wrong",
                value=line[field],
                expected=json.dumps(schema),
            )


def line_schema(table: EventTable = TABLE) -> dict[str, Any]:
    """Return the JSON Schema of one line; the published schema of a table is this, written out."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": table.schema_id,
        "title": table.title,
        "oneOf": [
            {
                "type": "object",
                "additionalProperties": False,
                "required": [*ENVELOPE, *fields],
                "properties": {
                    "seq": {"type": "integer", "minimum": 0},
                    "at": {"type": "string", "pattern": f"^{TIME.pattern}$"},
                    "event": {"const": name},
                    **fields,
                },
            }
            for name, fields in table.events.items()
        ],
    }
