# SPDX-License-Identifier: Apache-2.0
"""Stand-in for `kvseal patch apply`: the first call changes something, later ones nothing."""

import json
from pathlib import Path


def configure(parser):
    parser.add_argument("action", choices=["apply"])
    parser.add_argument("--spec", type=Path)
    parser.add_argument("--json", action="store_true")


def run(args):
    patched = Path(json.loads(args.spec.read_text())["environment"]["path"]) / "patched"
    changed = not patched.exists()
    patched.touch()
    print(json.dumps({"changed": changed}))
    return 0
