# SPDX-License-Identifier: Apache-2.0
"""Events of a verification: a builder each, a published schema, and the one reader and writer."""

import inspect
import json

import jsonschema
import pytest

from kvseal.canonical import token_ids_sha256
from kvseal.errors import EvidenceError
from kvseal.records import builders, verification
from kvseal.records.events import EVENTS as RUN_EVENTS
from kvseal.records.fields import fits
from kvseal.records.history import (
    HistoryWriter,
    check_line,
    line_schema,
    parse_history,
    read_history,
)
from kvseal.records.schemas import load_schema
from kvseal.records.verification import EVENTS, TABLE
from kvseal.store import LineFile

KEY = {"target": "lmcache", "probe": "raw-9-x1", "kind": "reuse", "repetition": 1}
ONE_OF_EACH = [
    verification.verification_started(
        request={"suite": "smoke"}, contract={"name": "cpu"}, kvseal_version="0.1.0", host={}
    ),
    verification.manifest(
        probes=[{"id": "raw-9-x1"}], generations_planned={"total": 3}, geometry={}, sampling={}
    ),
    verification.environment(details={"vllm": "0.28.0"}),
    verification.target_started(target="control", engine={"enable_prefix_caching": False}),
    verification.answer(
        **KEY, prompt_token_ids=[1, 2], token_ids=[5, 6], cached_tokens=None,
        server_hit_tokens=None, finish_reason=None, top2=[[(5, -0.5), (9, -1.5)], None],
    ),
    verification.answer_missing(**KEY, reason="the engine was gone"),
    verification.probe_completed(target="mp", probe="raw-9-x1"),
    verification.engine_warning(target="lmcache", line="WARNING: recompute"),
    verification.disqualified(target="lmcache", reason="degraded"),
    verification.target_finished(target="native", status=-9, log="logs/native.log"),
    verification.error(where="start", message="no GPU"),
    verification.interrupted(signal="SIGTERM"),
    verification.verification_finished(),
]  # fmt: skip


def test_each_event_has_a_builder_of_its_name():
    own = {
        name
        for name, function in inspect.getmembers(verification, inspect.isfunction)
        if function.__module__ == verification.__name__
    }
    assert own == set(EVENTS)
    assert [event["event"] for event in ONE_OF_EACH] == list(EVENTS)


def test_what_is_written_is_read_and_fits_the_published_schema(tmp_path):
    with LineFile(tmp_path / "h") as file:
        writer = HistoryWriter(file, TABLE)
        for event in ONE_OF_EACH:
            writer.append(event)
    history = read_history(tmp_path / "h", TABLE)
    assert [{"event": event.name, **event.fields} for event in history.events] == [
        json.loads(json.dumps(event)) for event in ONE_OF_EACH
    ]
    validator = jsonschema.Draft202012Validator(load_schema("verification-history.v1"))
    for line in (tmp_path / "h").read_text().splitlines():
        validator.validate(json.loads(line))


def test_the_published_schema_is_the_table():
    assert load_schema("verification-history.v1") == line_schema(TABLE), (
        "write json.dumps(line_schema(kvseal.records.verification.TABLE), indent=2) to the file"
    )


def test_a_table_refuses_the_events_of_the_other():
    line = {"seq": 0, "at": "2026-11-30T12:00:00Z"}
    with pytest.raises(EvidenceError, match="unknown event"):
        check_line(line | builders.run_finished(), "line", TABLE)
    with pytest.raises(EvidenceError, match="unknown event"):
        parse_history(json.dumps(line | verification.verification_finished()).encode() + b"\n")
    # What both have is held to the table's own fields.
    assert "target" in EVENTS["error"]
    assert "target" not in RUN_EVENTS["error"]


def test_an_answer_is_recorded_with_the_digest_of_what_was_submitted():
    event = ONE_OF_EACH[4]
    assert event["prompt_token_ids_sha256"] == token_ids_sha256([1, 2])
    assert event["top2"] == [[[5, -0.5], [9, -1.5]], None]


def test_no_event_has_room_for_a_time():
    fields = {field for event in EVENTS.values() for field in event}
    assert not [field for field in fields if "second" in field or "time" in field]


@pytest.mark.parametrize(
    ("field", "value", "right"),
    [
        ("answer.target", "control", True),
        ("answer.target", "other", False),
        ("answer.target", None, False),
        ("error.target", None, True),
        ("error.target", "other", False),
        ("answer.kind", "warm", False),
        ("answer.top2", [], True),
        ("answer.top2", [[[1, -0.5], [2, -1]], None], True),
        ("answer.top2", [[[1, -0.5]]], False),
        ("answer.top2", [[[1, -0.5], [2, -1], [3, -2]]], False),
        ("answer.top2", [[[1, -0.5], [2]]], False),
        ("answer.top2", [[[1, -0.5], [2, "-1"]]], False),
        ("target_finished.status", -9, True),
        ("target_finished.status", "0", False),
    ],
)
def test_a_field_takes_what_it_must_and_nothing_else(field, value, right):
    event, name = field.split(".")
    assert fits(value, EVENTS[event][name]) is right
