# SPDX-License-Identifier: Apache-2.0
"""The artifact of a SnapKV run: its result together with everything that decided it.

Translates what SnapKV was given into the manifest of kvseal.identity and
nothing more: selects, rotates and stores nothing. Called by drivers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

import torch

import kvseal
from kvseal.canonical import digest, sha256_hex
from kvseal.compaction.artifact_checks import TensorReader
from kvseal.compaction.compacted import Compacted
from kvseal.compaction.rope_parameters import RopeParameters
from kvseal.compaction.snapkv import SnapKV
from kvseal.errors import TransformError
from kvseal.identity.arrays import dtype_name
from kvseal.identity.artifact import KVArtifact
from kvseal.identity.fields import decimal_text, pairs
from kvseal.identity.parts import DENSE, EXPLICIT, Algorithm, Format, Query, Rope
from kvseal.identity.scope import QUERY_SCOPED, REQUEST_LOCAL, Scope, request_local
from kvseal.identity.seal import seal

_DECIDING_MODULES = ("rope.py", "rotary_table.py", "scores.py", "snapkv.py")


def snapkv_artifact(
    compacted: Compacted,
    snapkv: SnapKV,
    *,
    queries: torch.Tensor,
    source_token_ids: Sequence[int],
    format: Format,
    chunk_tokens: int,
    softmax_scale: float | None = None,
    scope_kind: str = REQUEST_LOCAL,
    source_variant: str = "",
    digest_payload: bool = False,
) -> KVArtifact:
    """Return the artifact of what `snapkv.apply` returned for these very arguments.

    queries: `[layers, tokens or window_tokens, q_heads, head_size]`, as given to
        `apply`; likewise `chunk_tokens` and `softmax_scale`, which decide how many
        and which tokens stay.
    scope_kind: request-local, or query-scoped, which is bound to the queries.
    source_variant: variant of the source KV if it was transformed itself.
    digest_payload: whether the manifest also binds every byte of the KV.

    Raises:
        TransformError: parts that disagree, or a scope that SnapKV can't have.
        EvidenceError: a field of the manifest that can't be, by name.
    """
    query = Query(query_sha256(queries, snapkv.window_tokens), snapkv.window_tokens)
    if scope_kind not in (REQUEST_LOCAL, QUERY_SCOPED):
        raise TransformError(
            "SnapKV chooses tokens by the query, so no wider scope can be shown for it",
            option="scope_kind",
            value=scope_kind,
            expected=f"{REQUEST_LOCAL} or {QUERY_SCOPED}",
        )
    new = compacted.new_positions.tolist()
    dense = new == list(range(len(new)))
    return seal(
        algorithm=Algorithm(snapkv.name, int(snapkv.version), implementation()),
        parameters={
            "drop_percent": snapkv.drop_percent,
            "window_tokens": snapkv.window_tokens,
            "kernel_tokens": snapkv.kernel_tokens,
            "chunk_tokens": chunk_tokens,
            "softmax_scale": (
                "1/sqrt(head_size)" if softmax_scale is None else decimal_text(softmax_scale)
            ),
        },
        source_token_ids=source_token_ids,
        retained_positions=compacted.retained_positions,
        granularity=compacted.granularity,
        position_rule=DENSE if dense else EXPLICIT,
        new_positions=None if dense else new,
        logical_token_ids=compacted.token_ids,
        query=query,
        format=format,
        scope=request_local() if scope_kind == REQUEST_LOCAL else Scope(scope_kind, query.digest),
        source_variant=source_variant,
        keys=compacted.keys,
        values=compacted.values,
        digest_payload=TensorReader() if digest_payload else None,
    )


def query_sha256(queries: torch.Tensor, window_tokens: int) -> str:
    """Return the digest of the queries that voted: those of the last `window_tokens`.

    The bytes are the line `kvseal.query.v1 <dtype> <layers>x<window>x<heads>x<head_size>`,
    a newline, and the elements of that slice in row order, little-endian. Queries
    of all tokens and the window alone give the same digest.
    """
    window = queries[:, -window_tokens:]
    shape = "x".join(map(str, window.shape))
    state = hashlib.sha256(f"kvseal.query.v1 {dtype_name(window)} {shape}\n".encode())
    for chunk in TensorReader().chunks(window):
        state.update(chunk)
    return state.hexdigest()


def rope_part(rope: RopeParameters) -> Rope:
    """Return the rotary embedding as a manifest holds it.

    `scaling` has the fields of the type and what else fixes the table: rotated
    elements, pairing, position limits. A list of numbers is `sha256:` and the
    digest of its canonical JSON, each number as decimal text.
    """
    fixed: dict[str, Any] = {
        "interleaved": rope.interleaved,
        "max_position_embeddings": rope.max_position_embeddings,
        "rotary_dim": rope.rotary_dim,
    }
    if rope.max_model_len_tokens is not None:
        fixed["max_model_len_tokens"] = rope.max_model_len_tokens
    fixed.update(rope.scaling)
    scaling = {name: _scaling_text(value) for name, value in fixed.items()}
    return Rope(rope.rope_type, decimal_text(rope.theta), pairs(scaling, "format.rope.scaling"))


def _scaling_text(value: bool | float | tuple[float, ...]) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "sha256:" + digest([decimal_text(number) for number in value])
    return decimal_text(value)


@cache
def implementation() -> str:
    """Name the code that ran: kvseal's version, and the digest of the modules that decide.

    A changed comment changes it as well. That costs a miss; the opposite would
    cost a wrong answer.
    """
    folder = resources.files("kvseal.compaction")
    sources = [[name, sha256_hex(folder.joinpath(name).read_bytes())] for name in _DECIDING_MODULES]
    return f"kvseal {kvseal.__version__} sha256:{digest(sources)}"
