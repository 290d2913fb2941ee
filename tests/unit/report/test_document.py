# SPDX-License-Identifier: Apache-2.0
"""report.json holds each run's result whole."""

import json
import runpy
from pathlib import Path
from types import SimpleNamespace

from kvseal.records.schemas import validate
from kvseal.report.document import document
from kvseal.report.run_folder import read_run

BUILDER = Path(__file__).parents[1] / "records" / "builder.py"
build = SimpleNamespace(**runpy.run_path(str(BUILDER)))


def test_each_run_stands_in_it_with_its_result(tmp_path):
    runs = [read_run(build.run_folder(tmp_path / name)) for name in ("a", "b")]
    made = json.loads(json.dumps(document(runs)))
    assert made["schema"] == "kvseal.report.v1"
    assert [entry["run"] for entry in made["runs"]] == ["a", "b"]
    for entry in made["runs"]:
        validate(entry["result"], "compare-result.v1")
        assert entry["sentence"].startswith("These figures hold")
        assert entry["patches"]["codemods"][0]["name"] == "vllm_query_export"
