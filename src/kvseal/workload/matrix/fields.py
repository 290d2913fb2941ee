# SPDX-License-Identifier: Apache-2.0
"""A manifest that differs from another in one field: what makes the identity rows.

Every field of a manifest is there because the KV depends on it. So for each
there is a consumer whose own manifest differs in it and in nothing else, and
which must miss. Some such manifests no transform would make; that is the
point: no other field may be what keeps the two apart. Called by the driver,
and by the table for the names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kvseal.identity import TransformManifest

Change = Callable[[Any], Any]


def _digest(value: Any) -> str:
    return "0" * 63 + ("1" if value != "0" * 63 + "1" else "2")


def _more(value: Any) -> int:
    return int(value) + 1


def _text(value: Any) -> str:
    return f"{value} (another)"


def _scaling(value: Mapping[str, Any]) -> dict[str, Any]:
    return {**value, "factor": "2" if value.get("factor") != "2" else "4"}


def _ranks(value: Mapping[str, Any]) -> dict[str, Any]:
    return {**value, "size": int(value["size"]) * 2}


def _other(one: str, two: str) -> Change:
    return lambda value: two if value == one else one


FIELDS: dict[str, Change] = {
    "algorithm.name": _text,
    "algorithm.version": _more,
    "algorithm.implementation": _text,
    "parameters.drop_percent": _more,
    "parameters.window_tokens": _more,
    "parameters.kernel_tokens": _more,
    "parameters.chunk_tokens": _more,
    "parameters.softmax_scale": _other("0.125", "0.25"),
    "source.prefix_sha256": _digest,
    "source.tokens": _more,
    "source.parent": lambda _: "r1" + "a" * 32,
    "retained.count": lambda value: int(value) - 1,
    "retained.positions_sha256": _digest,
    "retained.granularity": _other("all", "layer"),
    "position_map.rule": _other("dense", "explicit"),
    "position_map.new_positions_sha256": _digest,
    "query.digest": _digest,
    "query.window_tokens": _more,
    "format.model": _text,
    "format.model_revision": _text,
    "format.kv_layout": _text,
    "format.dtype": _other("bfloat16", "float16"),
    "format.rope.type": _other("linear", "yarn"),
    "format.rope.theta": _other("10000", "500000"),
    "format.rope.scaling": _scaling,
    "format.rope.scaling.interleaved": _other("true", "false"),
    "format.rope.scaling.max_position_embeddings": _other("4096", "2048"),
    "format.rope.scaling.rotary_dim": _other("32", "16"),
    "format.kv_heads": lambda value: int(value) * 2,
    "format.head_size": _more,
    "format.layers": _more,
    "format.tensor_parallel": _ranks,
    "logical_tokens_sha256": _digest,
    "payload_sha256": _digest,
    "scope.binding": lambda value: ("0" if value[0] != "0" else "1") + value[1:],
}
"""Dotted path → how to change the value there. The base is request-local, whose binding
and query don't constrain each other. `schema` and `scope.kind` have no entry: the one is
a constant of the format, the other stands in the variant's text as its first letter."""


def changed(manifest: TransformManifest, path: str) -> TransformManifest:
    """Return `manifest` with another value at `path`.

    Raises:
        KeyError: there is no such field in FIELDS.
        EvidenceError: the result would contradict itself.
    """
    value = manifest.to_json()
    *outer, last = path.split(".")
    place = value
    for name in outer:
        place = place[name]
    place[last] = FIELDS[path](place[last])
    if path == "format.kv_heads":  # the ranks' share follows, or the format contradicts itself
        ranks = value["format"]["tensor_parallel"]
        ranks["size"] *= 2
    return TransformManifest.from_json(value)
