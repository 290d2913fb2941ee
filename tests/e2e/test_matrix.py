# SPDX-License-Identifier: Apache-2.0
"""The matrix as a user types it, for real: on two LMCaches with identity, and on stock without.

Every case on the one LMCache, in the profile's backends; on the other in backends that
last, also after a restart of both servers. The other restarts and tiers and longer mixed
traffic are for longer runs. `scripts/check.py` hands over a fresh copy of the checkout,
and afterwards uses the environment of the configuration that the last test leaves.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kvseal import store
from kvseal.process import leftovers
from kvseal.records.schemas import validate
from kvseal.workload.matrix import AFTERS, BACKENDS, CASES

if TYPE_CHECKING:
    from conftest import Command, Configure

PROFILE = "defconfig-lmcache-snapkv-matrix-cpu"
ROOT = "WORKFLOW_KNLP_LMCACHE_SNAPKV_MATRIX"
MIXED = 60
SHORT = {
    "RESTART_ENGINE": False,
    "RESTART_SERVER": False,
    "RESTART_BOTH": False,
    "MIXED_REQUESTS": MIXED,
    "LMCACHE_VERSION": "0.5.4",
    "STOCK": False,
}
NEWER = SHORT | {
    "LMCACHE_VERSION": "0.5.6",
    "BACKEND_MP": False,
    "BACKEND_NATIVE": False,
    "BACKEND_RESP": True,
    "RESTART_BOTH": True,
    "MIXED_REQUESTS": 0,
}
NEWER_TIERS = ("fs", "resp")
STOCK = SHORT | {
    "STOCK": True,
    "BACKEND_PROCESS": False,
    "BACKEND_NATIVE": False,
    "BACKEND_FS": False,
    "MIXED_REQUESTS": 0,
}
DISEASE = "literal-retained-tokens"


@dataclasses.dataclass(frozen=True)
class Run:
    """One `make`: its exit status and output, the run folder, the result in it."""

    status: int
    output: str
    folder: Path
    result: dict[str, Any]

    @property
    def cells(self) -> list[tuple[str, dict[str, Any]]]:
        """Every judged cell with the name of its case."""
        return [(row["case"], cell) for row in self.result["rows"] for cell in row["cells"]]


@pytest.fixture(scope="module")
def results(checkout: Path) -> Path:
    return checkout / "results" / "lmcache-snapkv-matrix"


@pytest.fixture(scope="module")
def run(make: Command, configure: Configure, results: Path) -> Any:
    """Return a function that starts from the profile, changes options and runs `make`."""

    def call(options: dict[str, Any]) -> Run:
        configured = make(PROFILE)
        assert configured.returncode == 0, configured.stdout + configured.stderr
        configure(ROOT, options)
        before = set(results.glob("runs/*"))
        started = time.monotonic()
        done = make(timeout=5400)
        print(done.stdout[-8000:], done.stderr[-3000:])
        print(f"make: {time.monotonic() - started:.0f} s")
        (folder,) = set(results.glob("runs/*")) - before
        result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        return Run(done.returncode, done.stdout + done.stderr, folder, result)

    return call


@pytest.fixture(scope="module")
def first(run: Any) -> Run:
    """The profile, in short."""
    return run(SHORT)


@pytest.fixture(scope="module")
def newer(run: Any) -> Run:
    """The newer LMCache."""
    return run(NEWER)


@pytest.fixture(scope="module")
def stock(run: Any) -> Run:
    """LMCache's server without identity."""
    return run(STOCK)


@pytest.fixture(params=["first", "newer"])
def sealed(request: pytest.FixtureRequest) -> Run:
    """Each run with identity."""
    return request.getfixturevalue(request.param)


@pytest.fixture(params=["first", "newer", "stock"])
def each(request: pytest.FixtureRequest) -> Run:
    """Each run."""
    return request.getfixturevalue(request.param)


def test_the_first_one_is_up_to_date_afterwards(first: Run, results: Path, make: Command) -> None:
    """Stands first, as the other runs need other configurations."""
    before = sorted(results.glob("runs/*"))
    done = make()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "up to date" in done.stdout
    assert sorted(results.glob("runs/*")) == before
    assert (results / "latest").resolve() == first.folder
    assert json.loads((results / "results.json").read_text(encoding="utf-8")) == first.result


def test_everyone_gets_what_he_names_and_nobody_anything_else(sealed: Run) -> None:
    assert (sealed.result["verdict"], sealed.status) == ("PASS", 0), sealed.result["reasons"]
    assert sealed.result["reasons"] == []
    assert sealed.result["identity"] == "variant"
    counts = sealed.result["counts"]
    assert counts["unsafe_hits"] == 0
    assert counts["cells"] == counts["passed"] == len(sealed.cells)
    assert counts["cells"] + counts["not_run"] == len(CASES) * len(BACKENDS) * len(AFTERS)


def test_every_case_ran_and_every_backend_was_hit_and_missed(first: Run) -> None:
    assert {case for case, _ in first.cells} == {case.name for case in CASES}
    seen = Counter((cell["backend"], cell["after"], cell["required"]) for _, cell in first.cells)
    for backend in first.result["backends"]:
        assert seen[backend, "none", "hit"] > 0, backend
        assert seen[backend, "none", "miss"] > 0, backend


def test_after_a_restart_of_both_there_is_what_was_on_disk(newer: Run) -> None:
    seen = Counter((cell["backend"], cell["after"], cell["required"]) for _, cell in newer.cells)
    tiers = {(tier, after) for tier in NEWER_TIERS for after in ("none", "both")}
    assert {(b, a) for b, a, _ in seen} == {("process", "none"), *tiers}
    assert seen["process", "none", "hit"] > 0
    for tier in NEWER_TIERS:
        assert seen[tier, "both", "hit"] > 0, tier
        assert seen[tier, "both", "miss"] > 0, tier


def test_it_ran_on_the_packages_that_were_chosen(first: Run, newer: Run) -> None:
    for done, version in ((first, "0.5.4"), (newer, "0.5.6")):
        assert done.result["versions"]["lmcache_version"] == version
        assert done.result["versions"]["vllm_version"].startswith("0.28.0")


def test_mixed_requests_are_counted(first: Run, newer: Run, stock: Run) -> None:
    mixed = first.result["mixed"]
    assert mixed["planned"] == mixed["requests"] == mixed["passed"] == MIXED
    assert mixed["hits_required"] > 0 and mixed["misses_required"] > 0
    assert mixed["hits_seen"] >= mixed["hits_required"]
    assert newer.result["mixed"]["planned"] == stock.result["mixed"]["planned"] == 0


def test_stock_serves_transformed_kv_to_whoever_sends_its_tokens(stock: Run) -> None:
    """FAIL is status 1 of the run, which ends `make` with make's own 2."""
    assert (stock.result["verdict"], stock.status) == ("FAIL", 2)
    assert "exit status: 1" in stock.output
    assert stock.result["identity"] == "none"
    assert stock.result["counts"]["unsafe_hits"] > 0
    outcomes = {case: cell["outcome"] for case, cell in stock.cells}
    assert outcomes[DISEASE] == "unsafe_hit"
    assert outcomes["ordinary-same-prefix"] == "passed"
    assert {cell["backend"] for _, cell in stock.cells} == {"mp"}


def test_results_follow_their_published_schema(each: Run) -> None:
    validate(each.result, "matrix-result.v1")


def test_run_folders_came_back_whole(each: Run) -> None:
    files = store.verify_manifest(each.folder)
    assert not files.missing, files.lines()
    assert not files.changed, files.lines()
    for name in ("report.html", "report.md", "report.json", "environment.json", "patches.diff"):
        assert (each.folder / name).stat().st_size > 0
    for name in ("vllm-mp-*.log", "vllm-control.log", "lmcache-mp-*.log"):
        logs = list(each.folder.glob(f"logs/{name}"))
        assert logs and all(log.stat().st_size > 0 for log in logs)


def test_nothing_is_left_running(each: Run) -> None:
    left = leftovers(each.folder.name)
    assert not left, left.lines()


def test_check_comes_to_the_same_verdict(each: Run, kvseal: Command) -> None:
    done = kvseal("check", each.folder)
    assert done.returncode == (1 if each.result["verdict"] == "FAIL" else 0), done.stdout
    assert each.result["verdict"] in done.stdout
    again = kvseal("check", "--json", each.folder)
    assert json.loads(again.stdout)["result"] == each.result


def test_a_hit_that_is_made_up_is_found(first: Run, kvseal: Command, tmp_path: Path) -> None:
    copied = tmp_path / first.folder.name
    shutil.copytree(first.folder, copied)
    lines = (copied / "history.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    number, event = next(
        (number, event)
        for number, event in enumerate(map(json.loads, lines))
        if event["event"] == "asked" and (event["case"], event["backend"]) == (DISEASE, "mp")
    )
    tokens = event["artifact_tokens"]
    changed = event | {"hit_tokens_vllm": tokens, "hit_tokens_server": tokens}
    lines[number] = json.dumps(changed, separators=(",", ":")) + "\n"
    (copied / "history.jsonl").write_text("".join(lines), encoding="utf-8")
    store.write_manifest(copied)  # whoever makes up a hit would do that too
    done = kvseal("check", "--json", copied)
    assert done.returncode == 1, done.stdout + done.stderr
    codes = {reason["code"] for reason in json.loads(done.stdout)["reasons"]}
    assert codes >= {"hit.unsafe", "result.differs"}


def test_going_back_builds_nothing_anew(
    first: Run, stock: Run, make: Command, configure: Configure
) -> None:
    assert make(PROFILE).returncode == 0
    configure(ROOT, SHORT)
    back = make("lmcache-snapkv-matrix-build")
    assert back.returncode == 0, back.stdout + back.stderr
    again = make("lmcache-snapkv-matrix-build")
    assert again.returncode == 0, again.stdout + again.stderr
    assert "changed=0" in again.stdout
