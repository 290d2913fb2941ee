# SPDX-License-Identifier: Apache-2.0
"""A run with the figures of the recorded L4 matches its fixture; any other figure is named."""

import copy
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvseal.checkers.verification.fixture import known_fixture
from kvseal.records.schemas import validate

build = SimpleNamespace(**runpy.run_path(str(Path(__file__).parent / "builder.py")))
one, answer_of, give = build.one, build.answer_of, build.give
L4 = known_fixture("l4-lmcache-0.5.4")
BOUNDARY = [build.probe(tokens, 1, shape="chat") for tokens in (511, 512, 513)]
LONG = build.probe(1500, 3, shape="chat")
PROBES = [*BOUNDARY, LONG]


def recorded(fixture=L4):
    """A history with the figures of the L4: reuse differs at token 2, or at 5 on the long probe."""
    events = build.passing_events(
        PROBES,
        ("lmcache", "native"),
        suite="acceptance",
        fixture={"path": "f", "sha256": "0" * 64, "name": fixture["name"], "document": fixture},
    )
    for probe in BOUNDARY:
        give(answer_of(events, "lmcache", probe.id, "reuse", 1), 11, 12, 7, 8)
    for repetition in (1, 2, 3):
        give(answer_of(events, "lmcache", LONG.id, "reuse", repetition), 9, 8, 7, 6)
    return events


def named(report):
    return {
        (entry["target"], entry["probe"], entry["answer"], entry["what"])
        for entry in report["acceptance"]["differences"]
    }


def test_the_recorded_run_matches_and_still_ends_with_1():
    report = build.report(recorded())
    validate(report, "efim.kv-reuse-verification.v1")
    assert report["acceptance"] == {
        "fixture": "l4-lmcache-0.5.4", "matched": True, "differences": [],
    }  # fmt: skip
    assert report["verdict"] == "FAIL"
    assert report["exit_status"] == 1
    assert report["generations"]["completed"] == {
        "control": 4, "lmcache": 10, "native": 10, "total": 24,
    }  # fmt: skip
    lmcache, native = report["targets"]
    assert [probe["verdict"] for probe in lmcache["probes"]] == ["fail"] * 4
    assert [probe["verdict"] for probe in native["probes"]] == ["pass"] * 4


@pytest.mark.parametrize("target", ["lmcache", "native"])
@pytest.mark.parametrize("place", range(4))
def test_another_count_of_cached_tokens_is_named(target, place):
    events = recorded()
    kind = "reuse" if place else "cold"
    answer_of(events, target, LONG.id, kind, place)["cached_tokens"] = 16
    report = build.report(events)
    assert report["acceptance"]["matched"] is False
    assert (target, LONG.id, place, "cached_tokens") in named(report)
    (entry,) = [e for e in report["acceptance"]["differences"] if e["what"] == "cached_tokens"]
    assert entry["found"] == 16
    assert entry["expected"] == L4["probes"][3]["expected"][target]["cached_tokens"][place]


@pytest.mark.parametrize("probe", BOUNDARY, ids=lambda probe: probe.id)
def test_another_place_of_the_first_difference_is_named(probe):
    events = recorded()
    give(answer_of(events, "lmcache", probe.id, "reuse", 1), 11, 7, 13, 14)
    report = build.report(events)
    assert named(report) == {("lmcache", probe.id, 1, "first_difference_control")}
    assert report["exit_status"] == 1


@pytest.mark.parametrize("probe", BOUNDARY, ids=lambda probe: probe.id)
def test_no_difference_where_one_was_recorded_is_named(probe):
    events = recorded()
    give(answer_of(events, "lmcache", probe.id, "reuse", 1), *build.ANSWER)
    report = build.report(events)
    assert named(report) == {
        ("lmcache", probe.id, None, "verdict"),
        ("lmcache", probe.id, 1, "first_difference_control"),
    }
    assert {entry["found"] for entry in report["acceptance"]["differences"]} == {"pass", "equal"}


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.id)
def test_a_native_answer_that_differs_is_named(probe):
    events = recorded()
    give(answer_of(events, "native", probe.id, "reuse", 1), 1, 2, 3, 4)
    assert named(build.report(events)) >= {
        ("native", probe.id, None, "verdict"),
        ("native", None, None, "verdict"),
    }


def test_another_exit_status_is_named():
    events = recorded()
    for probe in PROBES:
        for repetition in range(1, probe.reuse_count + 1):
            give(answer_of(events, "lmcache", probe.id, "reuse", repetition), *build.ANSWER)
    report = build.report(events)
    assert report["exit_status"] == 0
    assert {(None, None, None, "exit_status"), ("lmcache", None, None, "verdict")} <= named(report)
    assert report["acceptance"]["matched"] is False


@pytest.mark.parametrize("count", [*range(0, len(recorded()) - 1, 5), len(recorded()) - 1])
def test_a_run_cut_off_never_matches(count):
    report = build.report(recorded()[:count])
    validate(report, "efim.kv-reuse-verification.v1")
    assert report["acceptance"] is None or report["acceptance"]["matched"] is False


def test_probes_and_targets_that_the_fixture_does_not_have_are_named():
    fixture = copy.deepcopy(L4)
    fixture["probes"][0]["tokens"] = 510
    report = build.report(recorded(fixture))
    assert named(report) == {(None, None, None, "probe"), (None, BOUNDARY[0].id, None, "probe")}
    fixture = copy.deepcopy(L4)
    del fixture["targets"]["native"]
    for probe in fixture["probes"]:
        del probe["expected"]["native"]
    assert named(build.report(recorded(fixture))) == {("native", None, None, "verdict")}


def test_a_format_that_is_given_must_be_met():
    for shape, matched in (("chat", True), ("raw", False)):
        fixture = copy.deepcopy(L4)
        fixture["probes"][0]["format"] = shape
        assert build.report(recorded(fixture))["acceptance"]["matched"] is matched


def test_equal_is_asserted_and_null_is_not():
    fixture = copy.deepcopy(L4)
    expected = fixture["probes"][0]["expected"]["native"]
    expected["first_difference_control"] = ["equal", "equal"]
    expected["verdict"] = None
    events = recorded(fixture)
    assert build.report(events)["acceptance"]["matched"] is True
    give(answer_of(events, "native", BOUNDARY[0].id, "reuse", 1), 1, 2, 3, 4)
    report = build.report(events)
    assert ("native", BOUNDARY[0].id, 1, "first_difference_control") in named(report)
    assert ("native", BOUNDARY[0].id, None, "verdict") not in named(report)


def test_probes_are_told_apart_by_format_and_reuse_count():
    """Two of one length and format, and one that may be of either: each finds its own."""
    probes = [
        build.probe(511, 2, shape="raw"),
        build.probe(511, 1, shape="chat"),
        build.probe(511, 1, shape="raw"),
    ]

    def expected(hits):
        return {"native": {"verdict": "pass", "cached_tokens": hits,
                           "first_difference_control": None}}  # fmt: skip

    fixture = {
        "schema": "kvseal.verification-fixture.v1", "name": "f", "model": "any",
        "recorded": {"machine": "m", "date": None, "versions": {}},
        "targets": {"native": "pass"}, "exit_status": 0,
        "probes": [
            {"tokens": 511, "reuse_count": 1, "format": None, "expected": expected([0, 496])},
            {"tokens": 511, "reuse_count": 1, "format": "chat", "expected": expected([0, 496])},
            {"tokens": 511, "reuse_count": 2, "format": None, "expected": expected([0, 496, 496])},
        ],
    }  # fmt: skip
    events = build.passing_events(
        probes, ["native"], suite="acceptance", fixture={"document": fixture}
    )
    report = build.report(events)
    assert report["exit_status"] == 0
    assert report["acceptance"] == {"fixture": "f", "matched": True, "differences": []}
