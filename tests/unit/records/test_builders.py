# SPDX-License-Identifier: Apache-2.0
"""Every event has a builder, and a builder makes exactly its event."""

import inspect
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvseal.canonical import token_ids_sha256
from kvseal.errors import EvidenceError
from kvseal.records import builders
from kvseal.records.events import EVENTS
from kvseal.records.history import check_line

build = SimpleNamespace(**runpy.run_path(str(Path(__file__).parent / "builder.py")))


def test_each_event_has_a_builder_of_its_name():
    own = {name for name, _ in inspect.getmembers(builders, inspect.isfunction)}
    assert own - {"token_ids_sha256"} == set(EVENTS)


def test_what_the_builders_make_is_a_history():
    events = build.passing_events(build.make_spec())
    events += [
        builders.error(where="store", message="m"),
        builders.interrupted(signal="SIGINT"),
        builders.literal_prompt(token_ids=[1], source_tokens=9, compacted_tokens=4, text="t"),
        builders.literal_answer(
            cache="empty", output_token_ids=[2], text="u", hit_tokens_vllm=0, hit_tokens_server=0
        ),
    ]
    assert {event["event"] for event in events} == set(EVENTS)
    for event in events:
        check_line({"seq": 0, "at": "2026-11-30T12:00:00Z", **event}, "line")


def test_prompt_takes_length_and_digest_from_the_token_ids():
    event = builders.prompt(index=0, dataset="d", token_ids=[3, 1], expected=["x"], kind="needle")
    assert event["prompt_tokens"] == 2
    assert event["prompt_token_ids_sha256"] == token_ids_sha256([3, 1])


def test_transform_takes_count_and_digests_from_the_lists():
    event = builders.transform(
        index=0, source_tokens=4, tail_tokens=1, retained_positions=[0, 3],
        retained_token_ids=[9, 8], layout="l", transform_seconds=0, retrieve_seconds=0,
        store_seconds=0, stored_tokens=2,
    )  # fmt: skip
    assert event["retained_tokens"] == 2
    assert event["retained_positions_sha256"] == token_ids_sha256([0, 3])
    assert event["retained_token_ids_sha256"] == token_ids_sha256([9, 8])


def test_a_token_id_that_is_none_is_refused():
    with pytest.raises(EvidenceError, match="token IDs"):
        builders.prompt(index=0, dataset="d", token_ids=[-1], expected=[], kind="needle")
