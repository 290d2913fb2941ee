# SPDX-License-Identifier: Apache-2.0
"""Golden key texts, made by an LMCache as published: python3 make.py FILE.

Runs with the Python of an environment that has LMCache, without kvseal. Writes
one JSON object: LMCache's version, and for each key its fields and the texts
that the adapters' own functions give.
"""

import json
import sys
from importlib.metadata import version
from pathlib import Path

from lmcache.v1.distributed.api import ObjectKey
from lmcache.v1.distributed.l2_adapters import fs_l2_adapter as fs
from lmcache.v1.distributed.l2_adapters import native_connector_l2_adapter as native
from lmcache.v1.distributed.l2_adapters import s3_l2_adapter as s3

VARIANT = "q1abcdefghijklmnopqrstuvwxyz234567"
RANK = ObjectKey.ComputeKVRank(2, 1, 2, 1)
KEYS = [
    ("HuggingFaceTB/SmolLM2-135M-Instruct", 0x01000100, 0, "00" * 32, ""),
    ("HuggingFaceTB/SmolLM2-135M-Instruct", RANK, 10, "0f" * 32, "tenant-a"),
    ("/models/a b+c%25", RANK, 255, "ab" * 8, "x.data"),
    ("plain", 0, 0, "c0ffee00", "ü salt#1 +"),
    ("plain##query", 0xFFFFFFFF, 0, "11" * 16, ""),
    (f"Qwen/Qwen3-0.6B##tv1-{VARIANT}", RANK, 1, "22" * 32, "tenant-b"),
    (f"Qwen/Qwen3-0.6B##query##tv1-{VARIANT}", RANK, 1, "22" * 32, ""),
    ("日本語/モデル", 0x1_00000000, 0x123, "33" * 32, "s" * 128),
]


def texts(key):
    model, rank, group, chunk_hash, salt = key
    made = ObjectKey(bytes.fromhex(chunk_hash), model, rank, group, salt)
    text = s3._object_key_to_string(made)
    return {
        "key": key,
        "fs": fs._object_key_to_filename(made),
        "native": native._object_key_to_string(made),
        "s3": text,
        "s3_path": s3._format_safe_path(text),
    }


document = {"lmcache": version("lmcache"), "keys": [texts(key) for key in KEYS]}
Path(sys.argv[1]).write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
