# SPDX-License-Identifier: Apache-2.0
"""Golden vectors of transform manifests, made without kvseal: python3 make.py FOLDER.

Writes one JSON file a case into FOLDER: the arrays, the manifest made of them,
its canonical bytes as text, both digests, the variant text and the decorated
model name. Only hashlib, json, base64 and struct; docs/formats/transform-manifest.md
is all that it was written from.
"""

import base64
import hashlib
import json
import struct
import sys
from pathlib import Path

MODEL = {
    "model": "HuggingFaceTB/SmolLM2-135M-Instruct", "model_revision": "0.1.2",
    "kv_layout": "cpu-transposed-float32", "dtype": "float32", "kv_heads": 3, "head_size": 64,
    "layers": 2, "tensor_parallel": {"size": 1, "kv_heads_per_rank": 3},
    "rope": {"type": "default", "theta": "100000", "scaling": {}},
}  # fmt: skip
SCALED = {"factor": "8", "low_freq_factor": "1", "interleaved": "false", "rotary_dim": "128"}
FORMATS = {
    "plain": MODEL,
    "unicode": {
        **MODEL, "model": "/srv/modèles/日本語@\U0001f600", "dtype": "bfloat16", "kv_heads": 8,
        "tensor_parallel": {"size": 4, "kv_heads_per_rank": 2},
        "rope": {"type": "llama3", "theta": "500000.5", "scaling": SCALED},
    },
}  # fmt: skip
SNAPKV = {"name": "snapkv", "version": 1, "implementation": "kvseal 0.1.0"}
OPTIONS = {"drop_percent": 50, "window_tokens": 2, "kernel_tokens": 5, "scale": "0.125"}
QUERY = {"digest": hashlib.sha256(b"queries").hexdigest(), "window_tokens": 2}
TOKENS = [101, 7, 7, 4294967295, 0, 65536, 9, 12]
RANDOM = "000102030405060708090a0b0c0d0e0f"


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def uint32(values):
    if values and isinstance(values[0], list):
        return b"".join(uint32(row) for row in values)
    return struct.pack(f"<{len(values)}I", *values)


def canonical(value):
    # All keys are ASCII, where the order of code points is that of RFC 8785.
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def vector(*, algorithm=SNAPKV, parameters=OPTIONS, source=TOKENS, parent="", retained,
           new, rule="dense", granularity="all", logical=None, query=None, form="plain",
           scope=("request-local", RANDOM), payload=None):  # fmt: skip
    logical = [source[place] for place in retained] if logical is None else logical
    manifest = {
        "schema": "kvseal.transform-manifest.v1",
        "algorithm": algorithm,
        "parameters": parameters,
        "source": {
            "prefix_sha256": sha256(uint32(source) + parent.encode()),
            "tokens": len(source),
            "parent": parent,
        },
        "retained": {
            "count": len(logical),
            "positions_sha256": sha256(uint32(retained)),
            "granularity": granularity,
        },
        "position_map": {"rule": rule, "new_positions_sha256": sha256(uint32(new))},
        "query": query,
        "format": FORMATS[form],
        "logical_tokens_sha256": sha256(uint32(logical)),
        "scope": dict(zip(("kind", "binding"), scope, strict=True)),
        "payload_sha256": payload,
    }
    inputs = ("algorithm", "parameters", "source", "query", "format", "scope")
    recipe = {"schema": "kvseal.transform-recipe.v1", **{name: manifest[name] for name in inputs}}
    text = canonical(manifest)
    digest = sha256(text.encode())
    bits = base64.b32encode(bytes.fromhex(digest)[:20]).decode().lower()
    variant = scope[0][0] + "1" + bits
    return {
        "arrays": {
            "source_token_ids": source, "retained_positions": retained, "new_positions": new,
            "logical_token_ids": logical,
        },
        "manifest": manifest,
        "canonical": text,
        "manifest_sha256": digest,
        "recipe_sha256": sha256(canonical(recipe).encode()),
        "variant": variant,
        "decorated": FORMATS[form]["model"] + "##tv1-" + variant,
        "decorated_query": FORMATS[form]["model"] + "##query##tv1-" + variant,
    }  # fmt: skip


def vectors():
    scoped = ("query-scoped", QUERY["digest"])
    kept = {"retained": [1, 3, 6, 7], "new": [0, 1, 2, 3]}
    yield "request-local", vector(**kept, query=QUERY)
    first = vector(**kept, query=QUERY, scope=scoped)
    yield "query-scoped", first
    yield "payload", vector(**kept, query=QUERY, scope=scoped, payload=sha256(b"payload"))
    chained = {"source": first["arrays"]["logical_token_ids"], "parent": first["variant"]}
    yield "chained", vector(retained=[0, 2], new=[0, 1], query=QUERY, scope=scoped, **chained)
    yield "unicode", vector(**kept, query=QUERY, form="unicode")
    yield "explicit", vector(retained=[1, 3], new=[1, 4294967295], rule="explicit")
    rows = {"retained": [[0, 7], [3, 4]], "new": [[0, 1], [0, 1]], "logical": [0, 12]}
    yield "layer", vector(**rows, granularity="layer")
    heads = [[[0, 1], [0, 2], [0, 3]], [[4, 5], [4, 6], [4, 7]]]
    dense = [[[0, 1]] * 3] * 2
    yield (
        "layer-head",
        vector(retained=heads, new=dense, logical=[101, 7], granularity="layer_head"),
    )
    legacy = {"name": "legacy", "version": 1, "implementation": "drop_tokens_fn"}
    yield "legacy", vector(retained=[], new=[], rule="unstated", logical=[9, 9, 101],
                           algorithm=legacy, parameters={})  # fmt: skip
    every = {"retained": list(range(8)), "new": list(range(8)), "rule": "unmoved"}
    codec = {"name": "codec", "version": 2, "implementation": "example"}
    wide = ("prefix", sha256(uint32(TOKENS)))
    yield "prefix", vector(**every, algorithm=codec, parameters={"bits": 4}, scope=wide)
    yield "global", vector(**every, algorithm=codec, parameters={"bits": -4}, scope=("global", ""))


if __name__ == "__main__":
    for name, made in vectors():
        text = json.dumps(made, indent=1, ensure_ascii=False) + "\n"
        (Path(sys.argv[1]) / f"{name}.json").write_text(text, encoding="utf-8")
