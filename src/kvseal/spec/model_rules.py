# SPDX-License-Identifier: Apache-2.0
"""What a model's source demands of its name and revision: nothing that can change unseen.

Called by kvseal.spec.rules alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kvseal.errors import OptionError
from kvseal.spec.options import WORKFLOWS
from kvseal.spec.runspec import CommonSpec

COMMIT = re.compile(r"[0-9a-f]{40}")

REVISIONS = {"70d244cc86ccca08cf5af4e1e306ecf908b1ad5e": "Qwen/Qwen3-1.7B"}
"""Model revisions that are defaults of Kconfig, and the model each belongs to."""


def problems(spec: CommonSpec) -> Iterator[OptionError]:
    """Yield what is wrong with the model's source, name and revision."""
    of, model = WORKFLOWS[spec.workflow], spec.model
    owner = REVISIONS.get(model.revision, model.name)
    if model.source == "hub" and not COMMIT.fullmatch(model.revision):
        yield of.wrong(
            "MODEL_REVISION",
            "a model revision is missing"
            if not model.revision
            else "the model revision can change under a recorded result",
            model.revision,
            "the commit of the model's repository, 40 hexadecimal digits",
            f"look up the commit of {model.name} on its hub page and set it",
        )
    elif model.source == "hub" and owner != model.name:
        yield of.wrong(
            "MODEL_REVISION",
            f"this revision belongs to {owner}",
            model.revision,
            f"a commit of {model.name}",
            f"look up the commit of {model.name} on its hub page and set it",
        )
    elif model.source == "package" and not re.fullmatch(r"[0-9]+(\.[0-9]+)*", model.revision):
        yield of.wrong(
            "MODEL_REVISION",
            "a packaged model's revision is its package version",
            model.revision,
            "a version such as 0.1.2",
            "set it to the version in the environment's lock",
        )
    elif model.source == "path" and not model.name.startswith("/"):
        yield of.wrong(
            "MODEL",
            "a local model is named by its directory",
            model.name,
            "an absolute path on the node",
            "write the whole path",
        )
