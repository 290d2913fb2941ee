# SPDX-License-Identifier: Apache-2.0
"""Is an artifact what its manifest says? Asked before anything of it is stored.

A transform is somebody else's code. What it hands over is held against what
the caller knows for itself, the source's token IDs first of all, and against
itself. Whatever does not fit is refused with the name of the part; nothing is
repaired. That the numbers in the KV are right can't be seen here: that they
are finite, and as many as they should be, can. Called by whoever stores.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

from kvseal.canonical import sha256_hex
from kvseal.errors import TransformError
from kvseal.identity.arrays import (
    ArrayReader,
    dtype_name,
    payload_sha256,
    source_sha256,
    uint32_bytes,
    uint32_values,
)
from kvseal.identity.artifact import KVArtifact
from kvseal.identity.manifest import TransformManifest
from kvseal.identity.parts import DENSE, UNSTATED, Format
from kvseal.identity.scope import check_allowed


def check_artifact(
    artifact: KVArtifact,
    source_token_ids: Sequence[int],
    *,
    reader: ArrayReader,
    source_variant: str = "",
    expected_format: Format | None = None,
) -> None:
    """Refuse an artifact whose parts disagree with each other or with its source.

    `source_token_ids` and `source_variant` (empty for ordinary KV) are what the
    caller gave to the transform, `expected_format` what the caller's engine
    runs with. `reader` looks into the arrays: kvseal.compaction.artifact_checks
    has one for torch and numpy.

    Raises:
        TransformError: naming the first part that is wrong.
    """
    manifest = artifact.manifest
    if not isinstance(manifest, TransformManifest):
        raise _wrong("manifest", type(manifest).__name__, "a TransformManifest")
    algorithm = manifest.algorithm
    check_allowed(manifest.scope.kind, algorithm.name, algorithm.version)
    if expected_format is not None and manifest.format != expected_format:
        raise _wrong("manifest.format", manifest.format, str(expected_format))
    source = list(source_token_ids)
    _same("manifest.source.parent", manifest.source.parent, source_variant)
    _same("manifest.source.tokens", manifest.source.tokens, len(source))
    _same(
        "manifest.source.prefix_sha256",
        manifest.source.prefix_sha256,
        source_sha256(source, source_variant),
    )
    check_positions(manifest, artifact.retained_positions, artifact.new_positions)
    _check_logical(artifact, source)
    _check_arrays(artifact)
    for name, array in artifact.arrays.items():
        if not reader.is_finite(array):
            raise _wrong(name, "NaN or infinity", "finite numbers")
    if manifest.payload_sha256 is not None:
        _same(
            "manifest.payload_sha256",
            manifest.payload_sha256,
            payload_sha256(artifact.arrays, reader),
        )


def check_positions(manifest: TransformManifest, retained: bytes, new: bytes) -> None:
    """Refuse position arrays that are not the manifest's, or are no positions of its source.

    Both are little-endian uint32 in row order.

    Raises:
        TransformError: naming the array.
    """
    stated, rule = manifest.retained, manifest.position_map.rule
    for name, data, expected in (
        ("retained_positions", retained, stated.positions_sha256),
        ("new_positions", new, manifest.position_map.new_positions_sha256),
    ):
        _same(f"digest of {name}", sha256_hex(data), expected)
        rows = 0 if rule == UNSTATED else 1
        for length in manifest.format.rows(stated.granularity):
            rows *= length
        _same(f"bytes of {name}", len(data), 4 * stated.count * rows)
        values = uint32_values(data)
        for start in range(0, len(values), stated.count):
            row = values[start : start + stated.count]
            if any(map(operator.ge, row[:-1], row[1:])):
                raise _wrong(name, "not strictly increasing", "each position above the one before")
            if name == "retained_positions" and row[-1] >= manifest.source.tokens:
                raise _wrong(name, row[-1], f"below the {manifest.source.tokens} source tokens")
            if name == "new_positions" and rule == DENSE and row[-1] != stated.count - 1:
                raise _wrong(name, row[-1], f"0 to {stated.count - 1}, as the rule is dense")


def _check_logical(artifact: KVArtifact, source: list[int]) -> None:
    manifest, ids = artifact.manifest, artifact.logical_token_ids
    _same("logical_token_ids", f"{len(ids)} IDs", f"{manifest.retained.count} IDs")
    _same(
        "digest of logical_token_ids",
        sha256_hex(uint32_bytes(ids, "logical_token_ids")),
        manifest.logical_tokens_sha256,
    )
    if manifest.position_map.rule == UNSTATED:
        return
    if manifest.retained.granularity == "all":
        positions = uint32_values(artifact.retained_positions)
        for index, (token, position) in enumerate(zip(ids, positions, strict=True)):
            if token != source[position]:
                raise _wrong(
                    "logical_token_ids",
                    f"ID {token} at index {index}",
                    f"ID {source[position]}, the source's at position {position}",
                )
        return
    # Layers kept different tokens, so no list is that of all rows; it must still be of the source.
    rest = iter(source)
    if not all(token in rest for token in ids):
        raise _wrong("logical_token_ids", "not in the source in this order", "tokens of the source")


def _check_arrays(artifact: KVArtifact) -> None:
    form, count = artifact.manifest.format, artifact.manifest.retained.count
    for name, array in artifact.arrays.items():
        shape = [int(length) for length in array.shape]
        _same(f"{name}.dtype", dtype_name(array), form.dtype)
        if name != "packed":
            _same(f"{name}.shape", shape, [form.layers, count, form.kv_heads, form.head_size])
            continue
        _same("packed.shape", shape[-3:-1], [form.layers, count])
        held = shape[-1]
        for planes in shape[:-3]:
            held *= planes
        ranks = form.tensor_parallel
        if (
            ranks.kv_heads_per_rank < form.kv_heads
            and held == 2 * ranks.kv_heads_per_rank * form.head_size
        ):
            raise _wrong(
                "packed.shape",
                f"{shape}: the KV of one rank",
                f"the KV of all {ranks.size} ranks, gathered",
            )


def _same(what: str, value: object, expected: object) -> None:
    if value != expected:
        raise _wrong(what, value, str(expected))


def _wrong(what: str, value: object, expected: str) -> TransformError:
    return TransformError(
        "an artifact is not what it says it is; nothing was stored",
        option=what,
        value=value,
        expected=expected,
        remedy="this is a defect of the transform that made it, or of what it was given",
    )
