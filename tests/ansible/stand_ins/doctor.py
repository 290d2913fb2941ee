# SPDX-License-Identifier: Apache-2.0
"""Stand-in for `kvseal doctor`: prints what DOCTOR_SAYS says, ends with DOCTOR_STATUS."""

import os


def configure(parser):
    parser.add_argument("--spec")
    parser.add_argument("--json")
    parser.add_argument("--node-only", action="store_true")


def run(args):
    print(os.environ.get("DOCTOR_SAYS", "PASS  stand-in"))
    return int(os.environ.get("DOCTOR_STATUS", "0"))
