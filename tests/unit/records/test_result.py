# SPDX-License-Identifier: Apache-2.0
"""result.json: every KNLP key, the published schema, and nothing from a clock."""

import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvseal.errors import EvidenceError
from kvseal.records.result import dataset_name
from kvseal.records.schemas import validate

build = SimpleNamespace(**runpy.run_path(str(Path(__file__).parent / "builder.py")))
SPEC = build.make_spec()

# Written out here on purpose: the keys that readers of KNLP's results use.
KNLP = {
    "schema_version", "created_at", "model", "dataset", "num_prompts", "prompt_tokens",
    "drop_ratio", "window_size", "lmcache_revision", "vllm_version", "lmcache_version",
    "torch_version", "model_revision", "baseline", "snapkv",
}  # fmt: skip


def result(events, truncated=False, spec=SPEC):
    return build.result(spec, build.history(events, truncated))


def test_a_passing_run_has_every_key_of_knlp_and_fits_the_schema():
    document = result(build.passing_events(SPEC))
    validate(document, "compare-result.v1")
    assert set(document) > KNLP
    assert document["schema_version"] == 1
    assert {"correct", "total", "output_tput"} <= set(document["baseline"]) & set(
        document["snapkv"]
    )
    assert document["drop_ratio"] == 0.5
    assert document["prompt_tokens"] == [268] * 4
    assert document["dataset"] == "needle+key_value"
    assert document["vllm_version"] == "0.28.0"
    assert document["created_at"] == f"2026-11-30T12:00:{len(build.passing_events(SPEC)) - 1}.000Z"


@pytest.mark.parametrize("count", range(len(build.passing_events(SPEC))))
def test_a_run_broken_off_anywhere_has_a_whole_result_that_is_no_pass(count):
    document = result(build.passing_events(SPEC)[:count], truncated=True)
    validate(document, "compare-result.v1")
    assert document["verdict"] == "INCONCLUSIVE"


def test_the_same_records_give_the_same_bytes():
    first, second = (json.dumps(result(build.passing_events(SPEC))) for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    "damage",
    [
        {"verdict": "OK"},
        {"extra": 1},
        {"created_at": "yesterday"},
        {"verdict": "FAIL"},  # a verdict without its reason
        {"spec_sha256": "ab"},
    ],
)
def test_the_schema_refuses_what_no_run_writes(damage):
    with pytest.raises(EvidenceError):
        validate(result(build.passing_events(SPEC)) | damage, "compare-result.v1")


@pytest.mark.parametrize(
    ("work", "name"),
    [
        ({"datasets": ["needle"]}, "needle"),
        ({"datasets": [], "dataset_file": "/d/a.jsonl"}, "/d/a.jsonl"),
        ({"datasets": [], "dataset_hub": "o/d", "dataset_revision": "a" * 40}, f"o/d@{'a' * 40}"),
    ],
)
def test_the_dataset_is_named_as_one_text(work, name):
    assert dataset_name(build.make_spec(workload=work)) == name
