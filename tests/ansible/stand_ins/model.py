# SPDX-License-Identifier: Apache-2.0
"""Stand-in for `kvseal model`: the first call changes something, later ones nothing."""

import json
import sys
from pathlib import Path


def configure(parser):
    parser.add_argument("--spec", type=Path)
    parser.add_argument("--json", action="store_true")


def run(args):
    weights = Path(json.loads(args.spec.read_text())["roots"]["cache"]) / "weights"
    changed = not weights.exists()
    weights.touch()
    print("progress goes to standard error", file=sys.stderr)
    print(json.dumps({"path": str(weights), "changed": changed}))
    return 0
