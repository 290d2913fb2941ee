# SPDX-License-Identifier: Apache-2.0
"""`kvseal model`: prepare the weights a run spec names and say where they are."""

from __future__ import annotations

import argparse
import json
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's options."""
    parser.add_argument("--spec", type=Path, required=True, help="run spec (run-spec.json)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Prepare the model and print its place; 0 when it is there."""
    from kvseal.models.resolve import resolve_model
    from kvseal.spec.runspec import load_spec

    model = resolve_model(load_spec(args.spec))
    if args.json:
        print(
            json.dumps(
                {
                    "path": str(model.path),
                    "name": model.name,
                    "revision": model.revision,
                    "files_sha256": model.files_sha256,
                    "changed": model.changed,
                }
            )
        )
    else:
        state = "prepared" if model.changed else "present"
        print(f"{model.name} {model.revision}: {state} in {model.path}")
    return 0
