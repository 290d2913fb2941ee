# SPDX-License-Identifier: Apache-2.0
"""Acceptance fixtures are read exactly or refused by the field that is wrong."""

import copy
import json
from pathlib import Path

import pytest

from kvseal.checkers.verification.fixture import (
    KNOWN,
    known_fixture,
    load_fixture,
    parse_fixture,
)
from kvseal.errors import OptionError

L4 = known_fixture("l4-lmcache-0.5.4")


@pytest.mark.parametrize("name", KNOWN)
def test_each_fixture_that_comes_along_is_one_and_is_called_so(name):
    assert parse_fixture(known_fixture(name)).name == name


def test_the_l4_fixture_says_what_its_source_says():
    fixture = parse_fixture(L4)
    assert fixture.targets == {"lmcache": "fail", "native": "pass"}
    assert fixture.exit_status == 1
    assert [(probe.tokens, probe.reuse_count) for probe in fixture.probes] == [
        (511, 1), (512, 1), (513, 1), (1500, 3),
    ]  # fmt: skip
    assert sum(1 + probe.reuse_count for probe in fixture.probes) == 10
    for probe in fixture.probes:
        assert probe.format is None
        assert probe.expected["lmcache"].verdict == "fail"
        assert probe.expected["native"].verdict == "pass"
    for probe in fixture.probes[:3]:
        assert probe.expected["lmcache"].first_difference_control == (None, 2)
    assert fixture.probes[3].expected["lmcache"].cached_tokens == (0, 1280, 1280, 1280)
    assert fixture.probes[3].expected["native"].cached_tokens == (0, 1488, 1488, 1488)


def test_a_file_is_read_with_its_document(tmp_path):
    path = tmp_path / "f.json"
    path.write_text(json.dumps(L4))
    assert load_fixture(path) == (parse_fixture(L4), L4)


def test_the_h200_fixture_asserts_every_figure_and_names_no_path():
    document = known_fixture("h200-lmcache-0.5.4")
    fixture = parse_fixture(document)
    assert fixture.targets == {"lmcache": "fail", "native": "pass"}
    shape = [(probe.tokens, probe.reuse_count) for probe in fixture.probes]
    assert shape == [(511, 1), (512, 1), (513, 1), (1500, 3)]
    for probe in fixture.probes:
        assert probe.format == "chat"
        for expected in probe.expected.values():
            assert None not in (expected.verdict, *expected.cached_tokens)
            assert None not in expected.first_difference_control
    assert fixture.probes[3].expected["lmcache"].first_difference_control == ("equal", 0, 0, 0)
    assert "/" not in json.dumps(document)


@pytest.mark.parametrize("name", KNOWN)
def test_a_name_is_enough_for_a_fixture_that_comes_along(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_fixture(Path(name))[1] == known_fixture(name)
    (tmp_path / name).mkdir()
    assert load_fixture(Path(name))[1] == known_fixture(name)


def test_a_file_of_a_known_name_wins(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = L4 | {"name": "my own"}
    Path(KNOWN[0]).write_text(json.dumps(own))
    assert load_fixture(Path(KNOWN[0])) == (parse_fixture(own), own)
    Path(KNOWN[0]).write_text("{")
    with pytest.raises(OptionError, match="not valid JSON"):
        load_fixture(Path(KNOWN[0]))


def test_what_is_neither_file_nor_name_is_refused_with_the_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in (Path("l5"), tmp_path / KNOWN[0]):
        with pytest.raises(OptionError, match=f"{KNOWN[0]} or {KNOWN[1]}") as caught:
            load_fixture(path)
        assert caught.value.option == "--fixture"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "can't be read"),
        ("{", "not valid JSON"),
        ('{"a": 1, "a": 2}', "duplicate key"),
        ("[]", "wrong at the fixture"),
        ("{}", "wrong at the fixture"),
    ],
)
def test_a_file_that_is_none_is_refused_by_option(tmp_path, text, message):
    path = tmp_path / "f.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(OptionError, match=message) as caught:
        load_fixture(path)
    assert caught.value.option == "--fixture"
    assert caught.value.exit_status == 2
    assert "docs/formats" in str(caught.value)


def test_an_unknown_name_is_refused_with_those_there_are():
    with pytest.raises(OptionError, match=r"l4-lmcache-0\.5\.4"):
        known_fixture("l5")


LMCACHE = ("probes", 3, "expected", "lmcache")


@pytest.mark.parametrize(
    ("path", "value", "where"),
    [
        (("schema",), "kvseal.verification-fixture.v2", "schema"),
        (("name",), "", "name"),
        (("extra",), 1, "the fixture"),
        (("recorded", "extra"), 1, "recorded"),
        (("recorded", "machine"), None, "recorded.machine"),
        (("recorded", "date"), 5, "recorded.date"),
        (("recorded", "versions"), {"vllm": 1}, "recorded.versions"),
        (("model",), 7, "model"),
        (("targets",), {}, "targets"),
        (("targets",), {"other": "pass"}, "targets"),
        (("targets", "native"), "control_match", "targets.native"),
        (("probes",), [], "probes"),
        (("probes", 0, "tokens"), 0, r"probes\[0\].tokens"),
        (("probes", 0, "tokens"), True, r"probes\[0\].tokens"),
        (("probes", 0, "reuse_count"), "1", r"probes\[0\].reuse_count"),
        (("probes", 0, "format"), "both", r"probes\[0\].format"),
        (("probes", 0, "note"), "x", r"probes\[0\]"),
        (("probes", 0, "expected", "mp"), {}, r"probes\[0\].expected"),
        ((*LMCACHE, "verdict"), "failed", r"probes\[3\].expected.lmcache.verdict"),
        ((*LMCACHE, "hits"), 1, r"probes\[3\].expected.lmcache"),
        ((*LMCACHE, "cached_tokens"), [0, 1280], "cached_tokens"),
        ((*LMCACHE, "cached_tokens"), [0, -1, 0, 0], "cached_tokens"),
        ((*LMCACHE, "cached_tokens"), ["equal", 0, 0, 0], "cached_tokens"),
        ((*LMCACHE, "first_difference_control"), [0, "same", 0, 0], "first_difference_control"),
        ((*LMCACHE, "first_difference_control"), 2, "first_difference_control"),
        (("exit_status",), 3, "exit_status"),
        (("exit_status",), True, "exit_status"),
    ],
)
def test_a_wrong_field_is_refused_by_its_place(path, value, where):
    document = copy.deepcopy(L4)
    inner = document
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    with pytest.raises(OptionError, match=f"wrong at .*{where}"):
        parse_fixture(document)


def test_null_equal_and_an_index_are_three_things():
    document = copy.deepcopy(L4)
    document["probes"][3]["expected"]["lmcache"]["first_difference_control"] = [
        "equal", 0, None, 15,
    ]  # fmt: skip
    expected = parse_fixture(document).probes[3].expected["lmcache"]
    assert expected.first_difference_control == ("equal", 0, None, 15)
