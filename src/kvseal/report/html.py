# SPDX-License-Identifier: Apache-2.0
"""Reports as one page in one file, from templates that escape all they are given.

No script and nothing from the network; a content security policy in the page
forbids both, should a record ever get past the escaping. Needs jinja2.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import Any

from kvseal.errors import PrerequisiteError
from kvseal.report import words
from kvseal.report.run_folder import RunFolder


def html(runs: Sequence[RunFolder]) -> str:
    """Return report.html, the report of `runs`.

    Raises:
        PrerequisiteError: when jinja2 is not installed.
    """
    return render("report.html", runs=runs, words=words)


def render(template: str, **values: Any) -> str:
    """Return the page that `template`, a file of templates/, makes of `values`.

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
    folder = resources.files("kvseal.report").joinpath("templates")
    style, text = (folder.joinpath(name).read_text("utf-8") for name in ("page.css", template))
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(text).render(style=style, **values)
