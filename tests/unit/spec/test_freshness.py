# SPDX-License-Identifier: Apache-2.0
"""Done means: this spec, whole files, PASS. Every other state is work, and says why."""

import json

import pytest

from kvseal.canonical import sha256_hex
from kvseal.spec import freshness


@pytest.fixture
def done(any_with, tmp_path):
    """A spec whose results are all there, and the folder of its latest run."""
    spec = any_with(RESULTS_ROOT=str(tmp_path / "r"), WORK_ROOT=str(tmp_path / "w"))
    run = tmp_path / "r" / "runs" / "one"
    (run / "logs").mkdir(parents=True)
    (tmp_path / "r" / "latest").symlink_to("runs/one")
    (run / "spec.json").write_text(spec.dumps())
    (run / "result.json").write_text('{"verdict": "PASS"}')
    (run / "logs" / "vllm.log").write_text("log")
    files = {}
    for name in ("spec.json", "result.json", "logs/vllm.log"):
        data = (run / name).read_bytes()
        files[name] = {"sha256": sha256_hex(data), "bytes": len(data)}
    (run / "files.json").write_text(json.dumps(files))
    return spec, run


def test_all_done(done):
    assert freshness.reason_to_work(done[0]) is None


def test_another_spec(done, any_with):
    spec, _ = done
    other = any_with(RESULTS_ROOT=spec.roots.results, WORK_ROOT=spec.roots.work, SEED=9)
    assert "another configuration" in freshness.reason_to_work(other)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("logs/vllm.log", "changed", "logs/vllm.log"),
        ("logs/vllm.log", None, "logs/vllm.log"),
        ("result.json", None, "no result"),
        ("result.json", "{", "result.json"),
        ("files.json", None, "files.json can't be read"),
        ("files.json", "[]", "no JSON object"),
        ("files.json", '{"x": 1}', "x of the latest"),
        ("spec.json", None, "spec.json can't be read"),
    ],
)
def test_damaged(done, name, text, reason):
    spec, run = done
    (run / name).unlink()
    if text is not None:
        (run / name).write_text(text)
    assert reason in freshness.reason_to_work(spec)


@pytest.mark.parametrize("verdict", ["FAIL", "INCONCLUSIVE", None])
def test_only_pass_is_done(done, verdict):
    spec, run = done
    text = json.dumps({"verdict": verdict})
    (run / "result.json").write_text(text)
    files = json.loads((run / "files.json").read_text())
    files["result.json"]["sha256"] = sha256_hex(text.encode())
    (run / "files.json").write_text(json.dumps(files))
    assert str(verdict) in freshness.reason_to_work(spec)


def test_build_only(any_with, tmp_path):
    spec = any_with(RUN=False, WORK_ROOT=str(tmp_path / "w"), CACHE_ROOT=str(tmp_path / "c"))
    assert freshness.reason_to_work(spec) == "not built yet"
    stamp = tmp_path / "w" / freshness.BUILD_STAMP
    stamp.parent.mkdir()
    stamp.write_text('{"spec_sha256": "0"}')
    assert "another configuration" in freshness.reason_to_work(spec)
    stamp.write_text(json.dumps({"spec_sha256": spec.sha256()}))
    assert "gone" in freshness.reason_to_work(spec)
    (tmp_path / "c" / spec.environment.path.rpartition("/")[2]).mkdir(parents=True)
    assert freshness.reason_to_work(spec) is None
