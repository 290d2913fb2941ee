# SPDX-License-Identifier: Apache-2.0
"""report.html: one page in one file, from a template that escapes all it is given.

No script and nothing from the network; a content security policy in the page
forbids both, should a record ever get past the escaping. Needs jinja2.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources

from kvseal.errors import PrerequisiteError
from kvseal.report import words
from kvseal.report.run_folder import RunFolder


def html(runs: Sequence[RunFolder]) -> str:
    """Return the report of `runs` as a page.

    Raises:
        PrerequisiteError: when jinja2 is not installed.
    """
    try:
        import jinja2
    except ImportError:
        raise PrerequisiteError(
            "the HTML report needs jinja2",
            option="--format",
            value="html",
            remedy="run this in kvseal's controller environment, or ask for markdown and json",
        ) from None
    text = resources.files("kvseal.report").joinpath("templates/report.html").read_text("utf-8")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(text).render(runs=runs, words=words)
