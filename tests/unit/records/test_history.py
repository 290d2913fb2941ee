# SPDX-License-Identifier: Apache-2.0
"""history.jsonl: written line by line, read back exactly, refused where it is damaged."""

import json
import runpy
import threading
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pytest

from kvseal.errors import EvidenceError
from kvseal.records import builders
from kvseal.records.history import HistoryWriter, line_schema, parse_history, read_history
from kvseal.records.schemas import load_schema
from kvseal.store import LineFile

build = SimpleNamespace(**runpy.run_path(str(Path(__file__).parent / "builder.py")))
LINE = {"seq": 0, "at": "2026-11-30T12:00:00.000Z", "event": "interrupted", "signal": "SIGINT"}


def parse(*lines):
    return parse_history("".join(json.dumps(line) + "\n" for line in lines).encode(), "h")


def test_what_is_written_is_read(tmp_path):
    events = build.passing_events(build.make_spec())
    history = build.write_history(tmp_path / "h", events)
    assert history == read_history(tmp_path / "h")
    assert [{"event": event.name, **event.fields} for event in history.events] == events
    assert [event.seq for event in history.events] == list(range(len(events)))
    assert not history.truncated


def test_every_written_line_is_on_disk_at_once(tmp_path):
    with LineFile(tmp_path / "h") as file:
        HistoryWriter(file).append(builders.interrupted(signal="SIGINT"))
        assert read_history(tmp_path / "h").events[0]["signal"] == "SIGINT"


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ({"event": "interrupted"}, "lacks field signal"),
        (builders.engines_started(vllm={"x": float("nan")}, lmcache={}), "can't be written"),
    ],
)
def test_the_writer_refuses_a_wrong_event_and_goes_on(tmp_path, event, message):
    with LineFile(tmp_path / "h") as file:
        writer = HistoryWriter(file)
        with pytest.raises(EvidenceError, match=message):
            writer.append(event)
        writer.append(builders.run_finished())
    assert [event.name for event in read_history(tmp_path / "h").events] == ["run_finished"]


def test_an_event_the_sink_refused_leaves_no_gap():
    class Full:
        def __init__(self):
            self.lines, self.refuse = [], True

        def append(self, line):
            if self.refuse:
                raise OSError("no room")
            self.lines.append(line)

    sink = Full()
    writer = HistoryWriter(sink)
    with pytest.raises(OSError, match="no room"):
        writer.append(builders.run_finished())
    sink.refuse = False
    writer.append(builders.run_finished())
    assert json.loads(sink.lines[0])["seq"] == 0


def test_appends_of_several_threads_stay_whole(tmp_path):
    with LineFile(tmp_path / "h") as file:
        writer = HistoryWriter(file)

        def work():
            for _ in range(20):
                writer.append(builders.error(where="w" * 300, message="m" * 300))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(read_history(tmp_path / "h").events) == 80


def test_a_last_line_without_its_end_is_told_apart_not_read():
    whole = (json.dumps(LINE) + "\n").encode()
    history = parse_history(whole + b'{"seq":1,"at":')
    assert len(history.events) == 1
    assert history.truncated
    assert not parse_history(whole).truncated


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"event": "cache_clear"}, "unknown event"),
        ({"extra": 1}, "unknown field extra"),
        ({"signal": 2}, "field signal of event interrupted is wrong"),
        ({"at": "2026-11-30 12:00"}, "field at is wrong"),
        ({"at": "2026-11-30T12:00:00+01:00"}, "field at is wrong"),
        ({"seq": -1}, "field seq is wrong"),
        ({"seq": 5}, "missing or out of place"),
    ],
)
def test_a_wrong_line_is_refused_with_its_number(change, message):
    with pytest.raises(EvidenceError, match=f"h line 1: .*{message}"):
        parse(LINE | change)


@pytest.mark.parametrize("text", [b"[]\n", b"{}\n", b"nonsense\n", b'{"seq":0,"seq":0}\n', b"\n"])
def test_what_is_no_event_is_refused(text):
    with pytest.raises(EvidenceError, match="line 1"):
        parse_history(text)


def test_a_missing_line_in_the_middle_is_noticed():
    with pytest.raises(EvidenceError, match="line 2: an event is missing"):
        parse(LINE, LINE | {"seq": 2})


def test_an_unreadable_file_is_an_evidence_error(tmp_path):
    with pytest.raises(EvidenceError, match="can't be read"):
        read_history(tmp_path / "none")


def test_the_published_schema_is_the_table():
    assert load_schema("history.v1") == line_schema(), (
        "write json.dumps(kvseal.records.history.line_schema(), indent=2) to the schema file"
    )


def test_the_schema_takes_a_passing_history_and_refuses_a_wrong_line(tmp_path):
    validator = jsonschema.Draft202012Validator(load_schema("history.v1"))
    jsonschema.Draft202012Validator.check_schema(load_schema("history.v1"))
    build.write_history(tmp_path / "h", build.passing_events(build.make_spec()))
    for line in (tmp_path / "h").read_text().splitlines():
        validator.validate(json.loads(line))
    assert not validator.is_valid(LINE | {"extra": 1})
