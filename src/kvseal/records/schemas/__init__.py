# SPDX-License-Identifier: Apache-2.0
"""Published JSON Schemas of the records, as package data; `validate` holds a document to one."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from kvseal.errors import EvidenceError, PrerequisiteError

NAMES = (
    "audit-result.v1", "compare-result.v1", "efim.kv-reuse-verification.v1", "history.v1",
    "matrix-history.v1", "matrix-result.v1", "transform-manifest.v1", "unsafe-hit-result.v1",
    "verification-history.v1",
)  # fmt: skip


def load_schema(name: str) -> dict[str, Any]:
    """Return the schema `name`, one of NAMES.

    Raises:
        EvidenceError: when there is no such schema.
    """
    if name not in NAMES:
        raise EvidenceError("no such schema", value=name, expected=" or ".join(NAMES))
    text = resources.files(__name__).joinpath(f"{name}.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def validate(document: Any, name: str) -> None:
    """Hold `document` to schema `name`; needs the jsonschema package.

    Raises:
        EvidenceError: naming the place in the document and what is wrong there.
        PrerequisiteError: when jsonschema is not installed.
    """
    try:
        import jsonschema
    except ImportError:
        raise PrerequisiteError(
            "documents can't be held to their schema without the jsonschema package",
            remedy="install jsonschema, or run this in kvseal's controller environment",
        ) from None
    validator = jsonschema.Draft202012Validator(load_schema(name))
    problem = jsonschema.exceptions.best_match(validator.iter_errors(document))
    if problem is not None:
        place = "/".join(map(str, problem.absolute_path)) or "the document"
        raise EvidenceError(f"not a document of {name}: {place}: {problem.message}"[:2000])
