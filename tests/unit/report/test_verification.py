# SPDX-License-Identifier: Apache-2.0
"""The verifier's report on the terminal, as Markdown and as a page."""

import re
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvseal.errors import PrerequisiteError
from kvseal.records import verification as new
from kvseal.report import verification_words as words
from kvseal.report.verification import MAX_REASONS, console, html, markdown, page

HERE = Path(__file__).parent
CHECKERS = HERE.parent / "checkers" / "verification"
build = SimpleNamespace(**runpy.run_path(str(CHECKERS / "builder.py")))
Page = runpy.run_path(str(HERE / "test_html.py"))["Page"]
EVENTS = build.passing_events()
EVIL = "</td><script>alert(1)</script><img src=x onerror=alert(1)>|\x1b[2J"
FORMS = [console, markdown, html]


def passing(**changes):
    return build.report(build.passing_events(**changes))


def failing():
    events = build.passing_events()
    for probe in build.PROBES:
        give = build.answer_of(events, "lmcache", probe.id, "reuse", 1)
        build.give(give, 11, 7, 8, 9)
    return build.report(events)


def hostile():
    events = build.passing_events()
    start = events[0]
    start["contract"] = {"name": EVIL, "statement": EVIL, "deviations": [
        {"what": EVIL, "expected": EVIL, "found": {EVIL: EVIL}}]}  # fmt: skip
    start["request"] |= {
        "accepted_deviations": [EVIL], "evidence_directory": EVIL, "kv_connector": EVIL,
        "model": {"requested": EVIL, "revision": EVIL},
    }  # fmt: skip
    events[2]["details"] = {EVIL: EVIL, "distributions": {EVIL: EVIL}}
    build.one(events, "target_started", target="native")["engine"] = {EVIL: EVIL}
    build.one(events, "target_finished", target="native")["log"] = EVIL
    events[-1:-1] = [
        new.error(where=EVIL, message=EVIL),
        new.engine_warning(target="lmcache", line=EVIL),
        new.engine_warning(target="lmcache", probe=EVIL, line=EVIL),
        new.disqualified(target="lmcache", reason=EVIL),
    ]
    return build.report(events)


@pytest.mark.parametrize(
    ("report", "verdict", "says"),
    [
        (passing(), "PASS", "native prefix caching and LMCache in the engine's process"),
        (passing(targets=()), "control_only_pass", "No reuse was tested"),
        (failing(), "FAIL", "reusing answer 1 takes 7 instead of 12 at token 1"),
        (build.report(EVENTS[:9]), "INCONCLUSIVE", "does not show whether reuse is right"),
        (build.report([]), "INCONCLUSIVE", "no start of a verification"),
    ],
    ids=["pass", "control only", "fail", "cut off", "empty"],
)
@pytest.mark.parametrize("form", FORMS)
def test_the_verdict_comes_first_in_one_sentence(form, report, verdict, says):
    assert report["verdict"] == verdict
    text = form(report, "/r/report.json")
    shown = Page(text).text if form is html else text.replace("\\", "")
    assert verdict in next(line for line in shown.splitlines() if line.strip())
    assert says in re.sub(r"\s+", " ", shown)
    assert "/r/report.json" in shown


@pytest.mark.parametrize("report", [passing(), passing(targets=())])
@pytest.mark.parametrize("form", FORMS)
def test_a_pass_says_how_far_it_goes(form, report):
    assert "bounded result" in form(report, "r")


def test_the_terminal_has_a_line_for_each_target_and_says_where_the_evidence_is():
    lines = console(passing(), "r").splitlines()
    assert any(re.match(r"native +pass +3 of 3 +7 of 7 +240–512, in 4 of 4", x) for x in lines)
    assert any(re.match(r"lmcache +pass +2 of 3, 1 with nothing to reuse", x) for x in lines)
    assert "generations: 18 of 18" in lines
    assert lines[-1] == "evidence: /e/run"


def test_failures_come_before_what_is_unknown_and_many_are_cut_and_counted():
    events = build.passing_events()
    build.one(events, "environment")["event"] = "verification_finished"
    events[-1:-1] = [new.error(where="x", message=str(number)) for number in range(9)]
    build.give(build.answer_of(events, "lmcache", build.TINY.id, "reuse", 1), 1, 2, 3, 4)
    report = build.report(events)
    lines = console(report, "r").splitlines()
    first = lines[lines.index(f"{len(report['reasons'])} reasons:") + 1]
    assert first.startswith("  FAIL")
    assert "token 0" in first
    assert f"  … and {len(report['reasons']) - MAX_REASONS} more, in the report" in lines


@pytest.mark.parametrize("form", FORMS)
def test_the_contract_and_what_deviates_stand_beside_the_verdict(form):
    events = build.passing_events(accepted_deviations=["torch"], notes=["v3 is no workaround"])
    events[0]["contract"]["deviations"] = [
        {"what": "torch", "expected": "2.13.0", "found": "2.11.0"}
    ]
    report = build.report(events)
    assert report["verdict"] == "PASS"
    text = form(report, "r")
    for said in ("evidence contract strict", "2.13.0", "2.11.0", "v3 is no workaround"):
        assert said in text
        assert text.index(said) < text.index("240–512")


@pytest.mark.parametrize("form", FORMS)
def test_acceptance_is_told_whether_it_matches_or_not(form):
    acceptance = {"fixture": "f-1", "matched": True, "differences": []}
    text = form(passing() | {"acceptance": acceptance}, "r").replace("\\", "")
    assert "acceptance: matches f-1" in text
    differences = [
        {"target": "native", "probe": "p", "answer": 1, "what": "cached_tokens",
         "expected": 1488, "found": 0},
        {"target": None, "probe": None, "answer": None, "what": "exit_status",
         "expected": 1, "found": 0},
    ]  # fmt: skip
    acceptance = {"fixture": "f-1", "matched": False, "differences": differences}
    text = form(passing() | {"acceptance": acceptance}, "r").replace("\\", "")
    assert "acceptance: does not match f-1" in text
    assert "native, p: cached tokens of answer 1 is 0, recorded 1488" in text
    assert "exit status is 0, recorded 1" in text


def test_each_probe_has_its_hits_and_the_place_of_its_difference():
    rows = {row[:2]: row[2:] for row in words.probe_rows(failing())}
    once, tiny = build.PAIR[0].id, build.TINY.id
    assert rows["native", once] == ("pass", "complete", "0, 512", "none, none")
    assert rows["lmcache", once] == ("fail", "complete", "0, 512", "none, at 1")
    assert rows["lmcache", tiny][1] == "no reuse possible"


@pytest.mark.parametrize("form", FORMS)
def test_a_failure_is_told_with_probe_index_tokens_and_margin(form):
    text = form(failing(), "r")
    shown = Page(text).text if form is html else text
    assert "on 3 of 3 probes of LMCache in the engine's process" in shown
    if form is console:
        assert "takes 7 instead of 12 at token 1 (the control's two best are 1 apart" in shown
    elif form is markdown:
        row = "| FAIL | lmcache | raw-513-x1 | 1 | 1 | 12 | 7 | 1 | 0 | nothing |"
        assert row in text
        assert "## Reasons" not in text
        assert "## Other reasons" not in text
    else:
        cells = re.findall(r"<td[^>]*>(?:<span[^>]*>)?([^<]*)", text)
        start = cells.index("FAIL")
        assert cells[start : start + 10] == [
            "FAIL", "lmcache", "raw-513-x1", "1", "1", "12", "7", "1", "0", "nothing",
        ]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_notes_on_how_it_was_stored_stand_at_the_top(form):
    text = form(passing(), "r", ["the report stops at event 3"])
    assert text.index("the report stops at event 3") < text.index("240–512")


def test_a_page_of_several_has_each_with_its_verdict_first():
    text = page([(passing(), "one", ()), (failing(), "two", ["a note"])])
    assert Page(text).text.count("against a cache-disabled control") == 3  # and the title
    assert text.index("one, 2026") < text.index(">FAIL</span> reused")
    assert "<title>PASS, FAIL: reused" in text


def test_what_is_not_there_is_said_so():
    events = build.passing_events()
    events.remove(build.answer_of(events, "lmcache", build.PAIR[0].id, "reuse", 1))
    events.remove(build.answer_of(events, "control", build.PAIR[1].id, "control"))
    rows = {row[:2]: row[2:] for row in words.probe_rows(build.report(events))}
    assert rows["lmcache", build.PAIR[0].id][2:] == ("0, unknown", "none, no answer")
    assert rows["lmcache", build.PAIR[1].id][3] == "no control, no control, no control"


def test_settings_are_told_with_identities_and_versions():
    events = build.passing_events(
        model={"requested": "m", "revision": "a" * 40}, reuse_counts=[1, 3], kv_connector="none"
    )
    events[2]["details"] = {"distributions": {"vllm": "0.28.0", "torch": "2.11.0"}}
    rows = dict(words.setting_rows(build.report(events)))
    assert rows["model"] == f"m ({'a' * 40})"
    assert rows["reuse counts"] == "1, 3"
    assert rows["kv connector"] == "none"
    assert (rows["vllm"], rows["torch"]) == ("0.28.0", "2.11.0")
    assert rows["generations"] == "18 of 18"
    assert rows["machine"] == "unknown"


@pytest.mark.parametrize(
    ("device", "said"),
    [
        ({"kind": "cuda", "name": "NVIDIA H200", "compute_capability": "9.0"}, "NVIDIA H200, 9.0"),
        ({"kind": "cpu", "capability": "AVX2"}, "A CPU, AVX2"),
        (None, "A CPU"),
    ],
)
def test_the_machine_is_named(device, said):
    events = build.passing_events()
    events[0]["host"] = {"cpu_model": {"value": "A CPU", "source": "x"}}
    build.one(events, "target_started", target="control")["engine"] = {"device": device}
    assert dict(words.setting_rows(build.report(events)))["machine"] == said


def test_the_terminal_can_not_be_steered_by_a_record():
    text = console(hostile(), EVIL)
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) < 500


def test_markdown_shows_records_as_text_in_whole_rows():
    text = markdown(hostile(), EVIL)
    assert not re.search(r"(?<!\\)<", text)
    for block in text.split("\n\n"):
        rows = [row.replace("\\|", "") for row in block.splitlines() if row.startswith("|")]
        assert len({row.count("|") for row in rows}) <= 1, block


def test_the_page_shows_records_as_text_and_loads_nothing():
    text = html(hostile(), EVIL)
    shown = Page(text)
    names = {tag for tag, _ in shown.tags}
    assert not names & {"script", "link", "img", "iframe", "object", "form", "base"}
    for _, attributes in shown.tags:
        assert not {"src", "href", "onclick", "onload", "style"} & set(attributes)
    assert "url(" not in text
    policy = [a["content"] for _, a in shown.tags if "http-equiv" in a]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]
    assert shown.text.count("</td><script>alert(1)</script>") >= 8
    assert "prefers-color-scheme: dark" in text


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("count", [0, 1, 2, 4, 9, 12, 15, 20, len(EVENTS) - 1])
def test_a_run_cut_off_anywhere_can_be_shown(form, count):
    text = form(build.report(EVENTS[:count]), "r")
    assert "INCONCLUSIVE" in text


def test_without_jinja2_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(PrerequisiteError, match="jinja2"):
        html(passing(), "r")
