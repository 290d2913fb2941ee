# SPDX-License-Identifier: Apache-2.0
"""A process of its own that opens stores somebody else has written, and says what it finds.

Each line of input is JSON: an adapter's configuration, the bytes of a payload,
keys. The answer to it is a line "answer " and a list with the SHA-256 of what was
loaded under each key, null where nothing was. Started by conftest.py.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from typing import Any

from lmcache.v1.distributed.api import ObjectKey

from kvseal.backends.adapter import opened_adapter


def read(asked: dict[str, Any]) -> list[str | None]:
    """Open the store and load the keys; the adapter is closed again."""
    os.environ.update(asked["environment"])
    sys.path[:0] = [folder for folder in asked["python_path"] if folder not in sys.path]
    keys = [ObjectKey(bytes.fromhex(digits), *rest) for digits, *rest in asked["keys"]]
    with opened_adapter(asked["adapter"], payload_bytes=asked["payload_bytes"]) as adapter:
        return [data and hashlib.sha256(data).hexdigest() for data in adapter.load(keys)]


if __name__ == "__main__":
    for line in sys.stdin:
        print("answer", json.dumps(read(json.loads(line))), flush=True)
