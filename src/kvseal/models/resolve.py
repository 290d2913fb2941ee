# SPDX-License-Identifier: Apache-2.0
"""Turn the model of a run spec into a directory on this machine."""

from __future__ import annotations

from pathlib import Path

from kvseal.models.directory import ModelDirectory, read_directory
from kvseal.models.hub import fetch_from_hub
from kvseal.models.packaged import prepare_packaged
from kvseal.spec.options import WORKFLOWS
from kvseal.spec.runspec import CommonSpec


def resolve_model(spec: CommonSpec) -> ModelDirectory:
    """Return the model that `spec` names, preparing or fetching it when needed.

    Raises:
        OptionError, PrerequisiteError: see the three sources.
    """
    model, symbol = spec.model, WORKFLOWS[spec.workflow].symbol
    if model.source == "package":
        cache, revision = Path(spec.roots.cache), symbol("MODEL_REVISION")
        return prepare_packaged(model.name, model.revision, cache, option=revision)
    if model.source == "hub":
        return fetch_from_hub(model.name, model.revision, option=symbol("MODEL"))
    return read_directory(Path(model.name), option=symbol("MODEL"))
