# SPDX-License-Identifier: Apache-2.0
"""A verification from its request to the last line of its history.

Beside what the engines' answers make of it the evidence holds what it started
from: probe manifest, environment, LMCache's settings, and the run spec where
there is one.
"""

from __future__ import annotations

import secrets
from typing import Any

import kvseal
from kvseal import store
from kvseal.drivers.verify.drive import Observer, verify
from kvseal.drivers.verify.evidence import recorded
from kvseal.drivers.verify.preflight import Prepared
from kvseal.process import Interrupts, shielded
from kvseal.records import verification
from kvseal.records.places import Places
from kvseal.spec.runspec import VerifySpec

SPEC = "spec.json"


def run(
    prepared: Prepared,
    places: Places,
    *,
    spec: VerifySpec | None = None,
    observer: Observer | None = None,
) -> dict[str, Any]:
    """Run `prepared`, keep its evidence at `places`, and return the report.

    `spec` is what `prepared` was made from, None where that was options.

    Raises:
        KvsealError, Interrupted: whatever ended it; the report then says so too.
    """
    run_id = f"kvseal{secrets.token_hex(6)}"
    evidence = None
    with Interrupts():
        try:
            with recorded(places, run_id) as evidence:
                if spec is not None:
                    # First of all: a run folder that was killed is still known by it.
                    store.write_text(places.folder / SPEC, spec.dumps())
                _record_start(prepared, places, evidence.history)
                evidence.refresh()
                verify(prepared, evidence, observer=observer)
        finally:
            # Only what this run made: a folder that was there before is not touched.
            if evidence is not None:
                with shielded():
                    report = evidence.refresh()
                    store.write_manifest(places.folder)
    return report


def _record_start(prepared: Prepared, places: Places, history: Any) -> None:
    manifest, environment = prepared.manifest(), prepared.environment_json()
    store.write_json(places.folder / "manifest.json", manifest)
    store.write_json(places.folder / "environment.json", environment)
    if prepared.settings is not None:
        store.write_text(places.folder / "lmcache.yaml", prepared.settings.text)
    history.append(
        verification.verification_started(
            request=prepared.request_json(str(places.folder)),
            contract=prepared.contract_json(),
            kvseal_version=kvseal.__version__,
            host=environment["host"],
        )
    )
    history.append(
        verification.manifest(
            probes=[probe.to_json() for probe in prepared.probes],
            generations_planned=manifest["generations_planned"],
            geometry=prepared.geometry.to_json(),
            sampling={
                "temperature": 0.0,
                "n": 1,
                "max_tokens": prepared.request.max_tokens,
                "seed": prepared.request.seed,
                "ignore_eos": True,
            },
        )
    )
    history.append(verification.environment(details=environment))
