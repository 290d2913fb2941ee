# SPDX-License-Identifier: Apache-2.0
"""Says which Python this is and what stands at the given paths; status 1 for one too old.

Passed to `python -c` on the node by the role kvseal_node. One line for
the Python's path, then one a path: its SHA-256, `folder`, or `absent`.
"""

import hashlib
import sys
from pathlib import Path

if sys.version_info < (3, 10):  # noqa: UP036 (this is where it is found out)
    sys.exit(1)
print(sys.executable)
for path in map(Path, sys.argv[1:]):
    if path.is_dir():
        print("folder")
    elif path.is_file():
        print(hashlib.sha256(path.read_bytes()).hexdigest())
    else:
        print("absent")
