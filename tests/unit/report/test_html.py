# SPDX-License-Identifier: Apache-2.0
"""report.html: one file that loads nothing and shows records as text."""

import re
import runpy
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvseal import store
from kvseal.errors import PrerequisiteError
from kvseal.records import builders
from kvseal.report.html import html
from kvseal.report.run_folder import read_run

BUILDER = Path(__file__).parents[1] / "records" / "builder.py"
build = SimpleNamespace(**runpy.run_path(str(BUILDER)))
VOID = {"meta", "br", "link", "img"}


class Page(HTMLParser):
    """Collects tags and text, and that every tag is closed in its turn."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.text = [], [], ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.fixture
def page(tmp_path):
    def make(events=None):
        return html([read_run(build.run_folder(tmp_path / "run", events))])

    return make


def test_the_verdict_comes_first_in_one_sentence(page):
    text = re.sub(r"\s+", " ", Page(page()).text)
    body = text[text.index("PASS baseline") :]
    assert body.startswith("PASS baseline against SnapKV These figures hold: keeping 50 %")


def test_nothing_is_loaded_and_nothing_runs(page):
    text = page()
    assert "url(" not in text
    assert "@import" not in text
    made = Page(text)
    names = {tag for tag, _ in made.tags}
    assert not names & {"script", "link", "img", "iframe", "object", "form", "base"}
    for _, attributes in made.tags:
        assert not {"src", "href", "onclick", "onload", "style"} & set(attributes)
    policy = [a["content"] for _, a in made.tags if "http-equiv" in a]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_what_a_model_or_a_log_says_stays_text(page):
    events = build.passing_events(build.make_spec())
    evil = "</td><script>alert(1)</script><img src=x onerror=alert(1)>"
    next(e for e in events if e["event"] == "prompt").update(
        dataset=evil, expected=[evil], question_kind="needle"
    )
    next(e for e in events if e["event"] == "answer")["text"] = evil
    next(e for e in events if e["event"] == "environment")["details"] = {evil: evil}
    events.insert(-1, builders.error(where=evil, message=evil))
    made = Page(page(events))
    assert not {tag for tag, _ in made.tags} & {"script", "img"}
    assert made.text.count(evil) >= 5


def test_the_patch_and_the_environment_can_be_opened(page):
    made = Page(page())
    assert [tag for tag, _ in made.tags].count("details") == 2
    assert "-old < 1" in made.text
    assert "vllm_query_export" in made.text


def test_each_prompt_has_a_row(page):
    text = page()
    assert len(re.findall(r'<th scope="row">\d+</th>', text)) == 4


@pytest.mark.parametrize("count", [0, 1, 5, 9, 12, 14])
def test_a_run_broken_off_has_a_page(page, count):
    made = Page(page(build.passing_events(build.make_spec())[:count]))
    assert "INCONCLUSIVE" in made.text


def test_the_page_fits_a_phone_and_the_dark(page):
    text = page()
    assert 'name="viewport" content="width=device-width' in text
    assert "prefers-color-scheme: dark" in text


def test_without_jinja2_the_remedy_is_named(page, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(PrerequisiteError, match="jinja2"):
        page()


def test_a_run_that_ended_before_its_patches_were_recorded_has_a_page(tmp_path):
    folder = build.run_folder(tmp_path / "run", None)
    for name in ("patches.json", "patches.diff"):
        (folder / name).unlink(missing_ok=True)
    store.write_manifest(folder)
    assert "Patches:" not in html([read_run(folder)])
