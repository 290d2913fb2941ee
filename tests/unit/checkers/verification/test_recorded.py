# SPDX-License-Identifier: Apache-2.0
"""A fixture made of a run: that run matches it, any other figure does not, and no path is in it."""

import copy
import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvseal.checkers.verification.acceptance import compare
from kvseal.checkers.verification.fixture import parse_fixture
from kvseal.checkers.verification.recorded import fixture_of
from kvseal.errors import EvidenceError

build = SimpleNamespace(**runpy.run_path(str(Path(__file__).parent / "builder.py")))
MODEL = {"requested": "/home/me/m", "path": "/home/me/m", "revision": f"sha256:{'a' * 64}"}


def events(**request):
    """A run that fails on one probe, with what the fixture takes from the recorded machine."""
    made = build.passing_events(**({"model": MODEL} | request))
    made[0]["host"] = {"cpu_model": {"value": "A CPU", "source": "/proc/cpuinfo"}}
    build.one(made, "environment")["details"] = {
        "distributions": {"vllm": "0.28.0", "torch": "2.11.0"}
    }
    once = build.PAIR[0].id
    build.give(build.answer_of(made, "lmcache", once, "reuse", 1), 11, 7, 13, 14)
    return made


def held(report, document):
    return compare(
        parse_fixture(document), report["targets"], report["probes"], report["exit_status"],
        complete=report["complete"],
    )  # fmt: skip


def test_a_run_matches_the_fixture_made_of_it():
    report = build.report(events())
    document = fixture_of(report, name="own")
    assert held(report, document) == {"fixture": "own", "matched": True, "differences": []}
    assert document["targets"] == {"native": "pass", "lmcache": "fail"}
    assert document["exit_status"] == 1
    probe = document["probes"][0]
    assert (probe["tokens"], probe["reuse_count"], probe["format"]) == (513, 1, "raw")
    assert probe["expected"]["lmcache"] == {
        "verdict": "fail", "cached_tokens": [0, 512], "first_difference_control": ["equal", 1],
    }  # fmt: skip


ANSWERS = [
    (place, event["target"])
    for place, event in enumerate(events())
    if event["event"] == "answer" and event["target"] != "control"
]


@pytest.mark.parametrize(("place", "target"), ANSWERS)
@pytest.mark.parametrize("figure", ["cached_tokens", "token_ids"])
def test_every_figure_of_every_answer_is_asserted(place, target, figure):
    document = fixture_of(build.report(events()), name="own")
    changed = copy.deepcopy(events())
    if figure == "cached_tokens":
        changed[place]["cached_tokens"] += 16
    else:
        build.give(changed[place], 9, 9, 9, 9)
    found = held(build.report(changed), document)
    assert not found["matched"]
    name = "first_difference_control" if figure == "token_ids" else figure
    assert (target, name) in {(entry["target"], entry["what"]) for entry in found["differences"]}


def test_it_says_where_it_was_recorded_and_no_path():
    document = fixture_of(build.report(events()), name="own")
    assert document["recorded"] == {
        "machine": "A CPU",
        "date": "2026-11-30",
        "versions": {"torch": "2.11.0", "vllm": "0.28.0"},
    }
    assert document["model"] == f"a directory, files sha256:{'a' * 64}"
    assert "/" not in json.dumps(document)


def test_a_model_of_the_hub_is_named_with_its_commit():
    hub = {"requested": "org/m", "path": "/cache/m", "revision": "c" * 40}
    document = fixture_of(build.report(events(model=hub)), name="own")
    assert document["model"] == f"org/m at {'c' * 40}"


def test_a_gpu_goes_before_the_cpu():
    made = events()
    build.one(made, "target_started", target="control")["engine"] = {"device": {"name": "A GPU"}}
    assert fixture_of(build.report(made), name="own")["recorded"]["machine"] == "A GPU"


@pytest.mark.parametrize("count", [0, 1, 9, len(events()) - 1])
def test_a_run_without_its_end_is_refused(count):
    with pytest.raises(EvidenceError, match="only a whole run"):
        fixture_of(build.report(events()[:count]), name="own")


def test_a_run_without_a_target_is_refused():
    with pytest.raises(EvidenceError, match="targets: 0"):
        fixture_of(build.report(build.passing_events(targets=())), name="own")
