# SPDX-License-Identifier: Apache-2.0
"""Stand-in for `kvseal compare`: a run folder, and the fault that COMPARE names.

pass, 1, 2: that exit status · kill: SIGKILL before anything is sealed ·
truncate: a file altered after sealing · wait: goes on until SIGTERM, then
cleans up for a second, seals its folder and ends with 130.
"""

import hashlib
import json
import os
import signal
import time
from pathlib import Path

STOPPED = []


def configure(parser):
    parser.add_argument("--spec", type=Path)
    parser.add_argument("--out", type=Path)


def run(args):
    fault = os.environ.get("COMPARE", "pass")
    signal.signal(signal.SIGTERM, lambda *_: STOPPED.append(True))
    args.out.mkdir()
    (args.out / "logs").mkdir()
    (args.out / "logs" / "a name with spaces.log").write_bytes(bytes(range(256)) * 100)
    (args.out / "spec.json").write_bytes(args.spec.read_bytes())
    print("first line of progress", flush=True)
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    while fault == "wait" and not STOPPED:
        time.sleep(0.1)
    if STOPPED:
        time.sleep(1)
    (args.out / "result.json").write_text(json.dumps({"verdict": fault}))
    sealed = {
        str(path.relative_to(args.out)): {
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "bytes": path.stat().st_size,
        }
        for path in args.out.rglob("*")
        if path.is_file()
    }
    (args.out / "files.json").write_text(json.dumps(sealed))
    if fault == "truncate":
        (args.out / "result.json").write_text("{")
    print("last line of progress äöü", flush=True)
    return 130 if STOPPED else {"1": 1, "2": 2}.get(fault, 0)
