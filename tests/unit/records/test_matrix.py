# SPDX-License-Identifier: Apache-2.0
"""Events of a matrix run: a builder each, a published schema, and the one reader and writer."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from kvseal.canonical import digest, token_ids_sha256
from kvseal.errors import EvidenceError
from kvseal.records import matrix_builders as new
from kvseal.records.events import EVENTS as RUN_EVENTS
from kvseal.records.fields import fits
from kvseal.records.history import HistoryWriter, check_line, line_schema, read_history
from kvseal.records.matrix import AFTERS, BACKENDS, EVENTS, KINDS, MIXED_REQUIRED, TABLE
from kvseal.records.schemas import load_schema
from kvseal.store import LineFile
from kvseal.workload import matrix as workload

PLACE = {"case": "same-transform", "backend": "mp", "after": "none"}
ONE_OF_EACH = [
    new.run_started(spec_sha256="0" * 64, host={}, driver="matrix"),
    new.environment(
        kvseal_version="0.1.0", vllm_version=None, lmcache_version=None, torch_version=None,
        lmcache_revision=None, model_revision=None, details={},
    ),
    new.engines_started(backend="mp", after="none", engine="main", vllm={"a": 1}, lmcache={}),
    new.artifact(
        name="snapkv-a", kind="snapkv", token_ids=[3, 1], source_tokens=9, variant="q1",
        manifest={"scope": {}}, manifest_sha256="1" * 64, payload_sha256="2" * 64,
    ),
    new.control(prompt=[3, 1, 4], output_token_ids=[5], text="t"),
    new.witness(artifact="snapkv-a", prompt=[3, 1, 4], output_token_ids=[6], top2_margin=0.5),
    new.cell(**PLACE, cache_salt="s"),
    new.not_applicable(**PLACE, reason="there is no server"),
    new.stored(
        **PLACE, artifact="snapkv-a", variant="q1", cache_salt="s", tokens=2, refusal=None
    ),
    new.asked(
        **PLACE, step=0, artifact="snapkv-a", prompt=[3, 1, 4], artifact_tokens=2, variant="q1",
        cache_salt="s", refusal=None, output_token_ids=(5, 6), payload_sha256=None,
        hit_tokens_vllm=2, hit_tokens_server=None,
    ),
    new.observed(**PLACE, step=1, what="files", value="absent"),
    new.emptied(backend="fs", objects_before=3, objects_after=0),
    new.backend_unusable(backend="resp", message="no redis-server", remedy="install one"),
    new.restarted(backend="process", what="both"),
    new.mixed(
        index=0, engine="plain", kind="literal", artifact="mixed-0", required="any",
        prompt=[3, 1, 4], artifact_tokens=2, variant="", cache_salt="s", output_token_ids=[5],
        hit_tokens_vllm=None,
    ),
    new.error(where="store", message="m"),
    new.interrupted(signal="SIGTERM"),
    new.run_finished(),
]  # fmt: skip


def event(name: str) -> dict[str, Any]:
    return next(entry for entry in ONE_OF_EACH if entry["event"] == name)


def test_each_event_has_a_builder_of_its_name() -> None:
    made = {
        name for name, _ in inspect.getmembers(new, inspect.isfunction) if not name.startswith("_")
    }
    assert made == set(EVENTS) == set(new.__all__)
    assert [entry["event"] for entry in ONE_OF_EACH] == list(EVENTS)


def test_what_is_written_is_read_and_fits_the_published_schema(tmp_path: Path) -> None:
    with LineFile(tmp_path / "h") as file:
        writer = HistoryWriter(file, TABLE)
        for entry in ONE_OF_EACH:
            writer.append(entry)
    history = read_history(tmp_path / "h", TABLE)
    assert [{"event": found.name, **found.fields} for found in history.events] == [
        json.loads(json.dumps(entry)) for entry in ONE_OF_EACH
    ]
    validator = jsonschema.Draft202012Validator(load_schema("matrix-history.v1"))
    for line in (tmp_path / "h").read_text().splitlines():
        validator.validate(json.loads(line))


def test_the_published_schema_is_the_table() -> None:
    assert load_schema("matrix-history.v1") == line_schema(TABLE), (
        "write json.dumps(line_schema(kvseal.records.matrix.TABLE), indent=2) to the file"
    )


def test_the_words_are_those_of_the_table_of_cases() -> None:
    assert (BACKENDS, AFTERS) == (workload.BACKENDS, workload.AFTERS)
    assert {kind.kind for kind in workload.ARTIFACTS.values()} == set(KINDS)
    assert set(MIXED_REQUIRED) == {"hit", "miss", "any"}


def test_a_matrix_history_is_none_of_a_comparison() -> None:
    line = {"seq": 0, "at": "2026-11-30T12:00:00Z"}
    with pytest.raises(EvidenceError, match="unknown event"):
        check_line(line | event("cell"), "line")
    with pytest.raises(EvidenceError, match="driver"):
        check_line(line | event("run_started"), "line")
    with pytest.raises(EvidenceError, match="driver"):
        check_line(
            line | new.run_started(spec_sha256="0" * 64, host={}, driver="compare"), "line", TABLE
        )


def test_what_both_histories_have_they_have_alike() -> None:
    for name in ("environment", "error", "interrupted", "run_finished"):
        assert EVENTS[name] == RUN_EVENTS[name]


@pytest.mark.parametrize("name", ["control", "asked", "mixed"])
def test_a_prompt_is_recorded_by_digest_and_length(name: str) -> None:
    assert event(name)["prompt_sha256"] == digest([3, 1, 4])
    assert event(name)["prompt_tokens"] == 3


def test_a_witness_is_of_the_same_prompt_digest() -> None:
    assert event("witness")["prompt_sha256"] == event("control")["prompt_sha256"]


def test_an_artifact_has_the_digest_that_its_manifest_has() -> None:
    assert event("artifact")["token_ids_sha256"] == token_ids_sha256([3, 1])
    assert event("artifact")["tokens"] == 2


def test_lists_are_copied_and_none_stays_none() -> None:
    assert event("asked")["output_token_ids"] == [5, 6]
    assert event("asked")["payload_sha256"] is None


@pytest.mark.parametrize(
    ("field", "value", "right"),
    [
        ("cell.backend", "mp", True),
        ("cell.backend", "l3", False),
        ("cell.after", "none", True),
        ("restarted.what", "none", False),
        ("restarted.what", "both", True),
        ("engines_started.backend", "", True),
        ("engines_started.engine", "other", False),
        ("asked.output_token_ids", None, True),
        ("asked.output_token_ids", [-1], False),
        ("asked.hit_tokens_server", None, True),
        ("asked.hit_tokens_server", -1, False),
        ("asked.refusal", None, True),
        ("asked.step", None, False),
        ("artifact.manifest", None, True),
        ("artifact.manifest", [], False),
        ("artifact.manifest_sha256", "a" * 63, False),
        ("witness.top2_margin", None, True),
        ("witness.top2_margin", -0.5, False),
        ("mixed.required", "any", True),
        ("mixed.required", "refused", False),
        ("mixed.hit_tokens_vllm", None, True),
    ],
)
def test_a_field_takes_what_it_must_and_nothing_else(field: str, value: Any, right: bool) -> None:
    name, _, key = field.partition(".")
    assert fits(value, EVENTS[name][key]) is right
