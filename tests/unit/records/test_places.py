# SPDX-License-Identifier: Apache-2.0
"""A verification is found from its report, its evidence folder or its run folder."""

from pathlib import Path

from kvseal.records.places import Places


def test_a_report_has_its_evidence_beside_it():
    places = Places.of(Path("/r/run.json"))
    assert places == Places(Path("/r/run.json"), Path("/r/run.evidence"))
    assert places.history == Path("/r/run.evidence/history.jsonl")
    assert places.logs == Path("/r/run.evidence/logs")


def test_only_the_last_suffix_of_a_report_is_replaced():
    assert Places.of(Path("/r/lmcache-0.5.4.json")).folder == Path("/r/lmcache-0.5.4.evidence")
    assert Places.of(Path("/r/run")).folder == Path("/r/run.evidence")


def test_a_run_folder_holds_both(tmp_path):
    assert Places.of(tmp_path) == Places(tmp_path / "result.json", tmp_path)


def test_an_evidence_folder_has_its_report_beside_it(tmp_path):
    folder = tmp_path / "lmcache-0.5.4.evidence"
    folder.mkdir()
    assert Places.of(folder) == Places(tmp_path / "lmcache-0.5.4.json", folder)


def test_a_run_folder_may_be_called_evidence(tmp_path):
    folder = tmp_path / "run.evidence"
    folder.mkdir()
    (folder / "result.json").write_text("{}")
    assert Places.of(folder) == Places(folder / "result.json", folder)
