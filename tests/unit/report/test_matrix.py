# SPDX-License-Identifier: Apache-2.0
"""A matrix in words and letters: the sentence, the grid, what failed and what was not run."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import runpy
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kvseal.checkers.matrix import REASONS
from kvseal.records import matrix_builders as new
from kvseal.report import matrix_grid as grids
from kvseal.report import matrix_words as words
from kvseal.report.matrix import MAX_GROUPS, console, document, html, markdown
from kvseal.report.matrix_folder import MatrixRun
from kvseal.workload.matrix import CASES

BUILDER = Path(__file__).parents[1] / "checkers" / "matrix" / "builder.py"
build = SimpleNamespace(**runpy.run_path(str(BUILDER)))
Events = list[dict[str, Any]]
LITERAL, OWN = "literal-retained-tokens", "same-transform"
SPEC = build.make_spec(backends=("mp", "fs"), restarts=("server",))


@functools.cache
def recorded(chosen: Any) -> Events:
    return list(build.passing_events(chosen))


def passing(chosen: Any = SPEC) -> Events:
    return [dict(event) for event in recorded(chosen)]


def failing() -> Events:
    """Two cells with an unsafe hit, one with a wrong answer."""
    events = passing()
    for backend in ("mp", "fs"):
        build.find(events, "asked", case=LITERAL, backend=backend, after="none").update(
            hit_tokens_vllm=192, hit_tokens_server=192
        )
    build.find(events, "asked", case=OWN, step=1)["output_token_ids"] = [2, 9]
    return events


@functools.cache
def result(kind: str = "passing") -> dict[str, Any]:
    events = {"passing": passing, "failing": failing}[kind]()
    found: dict[str, Any] = json.loads(json.dumps(build.judged(SPEC, events)))
    return found


def run_of(events: Events, spec: Any = SPEC) -> MatrixRun:
    found = json.loads(json.dumps(build.judged(spec, events)))
    record = {"codemods": [{"name": "c", "distribution": "d", "version": "1", "summary": "s"}]}
    return MatrixRun(Path("/runs/r-1"), found, record, "-old < 1\n", ("note.txt",))


def test_the_sentence_of_a_pass_says_what_was_shown() -> None:
    text = words.sentence(result())
    assert text.startswith("Every request got the KV that it names and no other: all ")
    assert "none of 12 requests that two engines sent to one server together" in text


def test_without_mixed_requests_nothing_is_said_of_them() -> None:
    quiet = build.make_spec(backends=("process",), restarts=(), mixed_requests=0)
    found = build.judged(quiet, passing(quiet))
    assert found["verdict"] == "PASS"
    assert "together" not in words.sentence(found)
    assert words.mixed_rows(found) == []


def test_the_sentence_of_a_failure_counts_and_names_the_worst() -> None:
    text = words.sentence(result("failing"))
    assert text.startswith("KV is not kept apart: 2 unsafe hits, 1 wrong answer in ")
    assert f"The first: {LITERAL} on mp: step 0: the server loaded 192 tokens" in text


def test_the_sentence_of_stock_says_so() -> None:
    found = result("failing") | {"identity": "none"}
    assert words.sentence(found).startswith("Without transform identity KV is not kept apart: ")


def test_a_failed_mixed_request_is_counted_apart() -> None:
    events = passing()
    build.find(events, "mixed", index=3)["hit_tokens_vllm"] = 64
    found = build.judged(SPEC, events)
    assert "kept apart: 1 unsafe hit in 12 mixed requests. The first: mixed request 3 (other)" in (
        words.sentence(found)
    )


def test_the_sentence_of_an_open_run_says_what_is_not_known() -> None:
    text = words.sentence(build.judged(SPEC, passing()[:-1]))
    assert text.startswith("This run does not show whether KV is kept apart, because something ")
    assert text.endswith("the run did not reach its end.")


@pytest.mark.parametrize("code", REASONS)
def test_every_reason_gives_a_sentence(code: str) -> None:
    verdict = REASONS[code][0].verdict.value
    reason = {"code": code, "verdict": verdict, "message": "TEXT", "cell": None}
    text = words.sentence(result() | {"verdict": verdict, "reasons": [reason]})
    assert "TEXT." in text
    assert ("kept apart: " in text) == (verdict == "FAIL")


def test_every_cell_has_its_letter() -> None:
    rows = {row.case["case"]: "".join(row.letters) for row in grids.grid(result("failing"))}
    assert grids.columns(result()) == [
        ("mp", "none"), ("mp", "server"), ("fs", "none"), ("fs", "server"),
    ]  # fmt: skip
    assert list(rows) == [case.name for case in CASES]
    assert rows[LITERAL] == "UmUm"
    assert rows[OWN] == "Wmhh"
    assert rows["request-local-files"] == "..o."
    assert rows["salt-holds-mark"] == "r.r."


@pytest.mark.parametrize("outcome", grids.FAILED)
def test_each_way_to_fail_has_a_letter_of_its_own(outcome: str) -> None:
    mark = grids.letter({"outcome": outcome, "required": "hit"})
    assert mark in dict(grids.LEGEND)
    assert mark not in grids.PASSED.values()
    assert len({*grids.PASSED.values(), *grids.FAILED.values(), grids.NOT_RUN}) == len(grids.LEGEND)


def test_the_grid_on_the_terminal_lines_up_and_folds_what_is_alike() -> None:
    lines = grids.grid_lines(result())
    heads = lines[1]
    row = next(line for line in lines if line.startswith(OWN))
    assert (row[heads.index("n")], row[heads.rindex("s")]) == ("h", "h")
    fields = sum(case.name.startswith("field-") for case in CASES)
    assert fields > 9
    folded = re.compile(rf"field-… \({fields} cases\) +m \.  \. \.$")
    assert any(map(folded.match, lines)), lines
    assert lines[-1] == "restarted before asking: n none; s server"
    assert "U unsafe hit" not in lines[-2]
    assert "U unsafe hit" in grids.grid_lines(result("failing"))[-2]


def test_a_row_that_differs_is_not_folded_away() -> None:
    events = passing()
    where = {"case": "field-query.digest", "backend": "mp"}
    build.find(events, "asked", **where).update(hit_tokens_vllm=64, hit_tokens_server=64)
    lines = grids.grid_lines(build.judged(SPEC, events))
    assert any(line.startswith("field-query.digest ") and "U" in line for line in lines)


def test_a_cell_is_told_with_all_its_numbers() -> None:
    (row,) = [row for row in grids.grid(result("failing")) if row.case["case"] == OWN]
    lines = list(grids.cell_lines(row.cells[0] or {}))
    assert lines[0] == "tenant mp-none-same-transform"
    assert lines[1].startswith("stored 192 tokens of snapkv-a as q1")
    assert "must be hit; server 192, vLLM 192, a full hit has 192 tokens" in lines[2]
    assert "answer 2 9; true answer 2 " in lines[3]
    assert "differs from token 1 on" in lines[3]
    assert lines[3].endswith("[answer.wrong]")


def test_refusals_and_observations_are_told() -> None:
    cells = {row.case["case"]: row.cells for row in grids.grid(result())}
    mark = list(grids.cell_lines(cells["salt-holds-mark"][0] or {}))
    assert "refused: not that name" in mark[-1]
    assert "server unknown" in mark[-1]
    files = list(grids.cell_lines(cells["request-local-files"][2] or {}))
    assert files[-1] == "1: files of snapkv-a: present, must be present"
    lie = list(grids.cell_lines(cells["lying-numbers"][0] or {}))
    assert lie[1].endswith("refused: it lies")


def test_reasons_that_say_the_same_are_told_once_with_every_cell() -> None:
    first, second = words.groups(result("failing"))
    assert (first.code, len(first.places)) == ("hit.unsafe", 2)
    assert first.text().endswith(f"{LITERAL} on mp; {LITERAL} on fs")
    assert first.text(1).endswith(f"{LITERAL} on mp; and 1 more")
    assert second.code == "answer.wrong"


def test_what_was_not_run_is_counted_with_its_reason() -> None:
    blocks = words.left_out(result())
    assert sum(block.cells for block in blocks) == result()["counts"]["not_run"] > 0
    assert {block.by for block in blocks} == {"table", "spec"}
    rows = words.left_out_rows(result())
    assert sum(int(row[0]) for row in rows) == result()["counts"]["not_run"]


def test_the_terminal_has_the_verdict_first_and_what_was_not_run_last() -> None:
    lines = console(result(), "r-1").splitlines()
    assert lines[:2] == ["PASS  r-1", words.sentence(result())]
    (at,) = [number for number, line in enumerate(lines) if line.endswith(" cells not run:")]
    assert lines[at] == f"{result()['counts']['not_run']} cells not run:"
    assert all(re.match(r" +\d+  \S", line) for line in lines[at + 1 :])
    assert not [line for line in lines if line.endswith("reasons:")]


def test_failures_are_listed_with_their_numbers() -> None:
    text = console(result("failing"), "r-1")
    assert "3 reasons:" in text
    assert "FAIL          hit.unsafe: step 0: the server loaded 192 tokens and vLLM counted" in text


def test_many_reasons_are_cut_and_counted() -> None:
    many = [
        {"code": "hit.unsafe", "verdict": "FAIL", "message": f"m{n}", "cell": None}
        for n in range(40)
    ]
    text = console(result() | {"verdict": "FAIL", "reasons": many}, "r")
    assert text.count("hit.unsafe: m") == MAX_GROUPS
    assert f"… and {40 - MAX_GROUPS} more" in text


def test_no_record_steers_the_terminal() -> None:
    events = passing()
    events.insert(-1, new.error(where="x", message="\x1b[2Jgone\nPASS"))
    build.find(events, "stored", case=OWN).update(refusal="\x1b[2J")
    text = console(build.judged(SPEC, events), "r\x1b")
    assert "\x1b" not in text
    assert "\nPASS" not in text


def test_markdown_has_all_parts_and_escapes_records() -> None:
    events = failing()
    events.insert(-1, new.error(where="<b>", message="|x|"))
    text = markdown([run_of(events)])
    assert text.startswith("# FAIL: who gets whose KV\n\nKV is not kept apart: ")
    for heading in ("Reasons", "Cells", "Mixed requests", "Not run", "Artifacts", "Run", "Patches"):
        assert f"\n## {heading}\n" in text
    assert "\\<b\\>" in text
    assert "\\|x\\|" in text
    assert f"| {LITERAL} | U | m | U | m |" in text
    assert markdown([run_of(passing())]).count("## Reasons") == 0


def test_the_document_holds_the_results() -> None:
    made = document([run_of(passing()), run_of(failing())])
    assert made["schema"] == "kvseal.matrix-report.v1"
    assert [entry["result"]["verdict"] for entry in made["runs"]] == ["PASS", "FAIL"]
    assert made["runs"][0]["unlisted_files"] == ["note.txt"]
    assert made["runs"][0]["sentence"] == words.sentence(result())


class Page(HTMLParser):
    """Collects tags and text, and that every tag is closed in its turn."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_has_the_verdict_first_and_evidence_behind_every_cell() -> None:
    page = Page(html([run_of(failing())]))
    text = re.sub(r"\s+", " ", page.text)
    body = text[text.index("FAIL who gets whose KV KV is") :]
    assert body.startswith("FAIL who gets whose KV KV is not kept apart: 2 unsafe hits")
    marks = [attrs for tag, attrs in page.tags if tag == "summary" and "aria-label" in attrs]
    assert len(marks) == result("failing")["counts"]["cells"]
    labels = [attrs["aria-label"] for attrs in marks]
    assert (labels.count("unsafe_hit"), labels.count("wrong_answer")) == (2, 1)
    assert {attrs["class"] for attrs in marks} == {"mark PASS", "mark FAIL"}
    assert "true answer 2 " in text


def test_the_page_loads_nothing_and_runs_nothing() -> None:
    text = html([run_of(passing())])
    assert "url(" not in text
    assert "@import" not in text
    page = Page(text)
    names = {tag for tag, _ in page.tags}
    assert not names & {"script", "link", "img", "iframe", "object", "form", "base"}
    for _, attributes in page.tags:
        assert not {"src", "href", "onclick", "onload", "style"} & set(attributes)
    policy = [a["content"] for _, a in page.tags if "http-equiv" in a]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_what_a_record_says_stays_text_on_the_page() -> None:
    evil = "</td><script>alert(1)</script><img src=x onerror=alert(1)>"
    events = passing()
    build.find(events, "environment")["details"] = {evil: evil}
    build.find(events, "asked", case=OWN).update(refusal=evil, variant=evil, cache_salt=evil)
    build.find(events, "observed").update(value=evil)
    build.find(events, "stored", case=OWN)["refusal"] = evil
    events.insert(-1, new.error(where=evil, message=evil))
    page = Page(html([run_of(events)]))
    assert not {tag for tag, _ in page.tags} & {"script", "img"}
    assert page.text.count(evil) >= 6


def test_a_run_without_patches_has_a_page() -> None:
    run = dataclasses.replace(run_of(passing()), patches={}, diff="", unlisted=())
    assert "Patches" not in Page(html([run])).text
    assert "Patches" not in markdown([run])


@pytest.mark.parametrize("count", [0, 1, 9, 60, 200])
def test_a_run_broken_off_anywhere_can_be_told(count: int) -> None:
    run = run_of(passing()[:count])
    assert console(run.result, "r").startswith("INCONCLUSIVE  r\nThis run does not show")
    assert markdown([run]).startswith("# INCONCLUSIVE")
    assert "INCONCLUSIVE" in Page(html([run])).text
