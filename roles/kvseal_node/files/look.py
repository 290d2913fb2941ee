# SPDX-License-Identifier: Apache-2.0
"""Says which Python this is and what stands at the given paths; status 1 for one too old.

Passed to `python -c` on the node by the role kvseal_node. One line for
the Python's path, then one a path: its SHA-256, `folder`, or `absent`.
"""
import hashlib
import os
import sys

if sys.version_info < (3, 10):
    sys.exit(1)
print(sys.executable)
for path in sys.argv[1:]:
    if os.path.isdir(path):
        print("folder")
    elif os.path.isfile(path):
        with open(path, "rb") as file:
            print(hashlib.sha256(file.read()).hexdigest())
    else:
        print("absent")
