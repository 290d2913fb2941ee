# SPDX-License-Identifier: Apache-2.0
"""One vLLM and one LMCache server for all tests of this folder, as a run would start them.

`scripts/check.py` runs this inside the engine environment and names the run
spec that was built; without one there is nothing to test on.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator

import pytest

from kvseal.spec.runspec import RunSpec

SPEC = os.environ.get("KVSEAL_CHECK_SPEC", "")


@pytest.fixture(scope="session")
def spec() -> RunSpec:
    """The CPU profile with two prompts."""
    if not SPEC:
        pytest.skip("KVSEAL_CHECK_SPEC names no run spec: run scripts/check")
    whole = RunSpec.load(SPEC)
    return dataclasses.replace(whole, workload=dataclasses.replace(whole.workload, prompts=2))


@pytest.fixture(scope="session")
def serving(spec: RunSpec, tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """Both engines and the SDK, started once."""
    from kvseal.cli.execution import prepare_process

    prepare_process()
    from kvseal.drivers.serving import serving as start
    from kvseal.models.resolve import resolve_model

    logs = tmp_path_factory.mktemp("logs")
    with start(spec, resolve_model(spec), logs=logs, run_id="kvseal-check-engines") as running:
        yield running
