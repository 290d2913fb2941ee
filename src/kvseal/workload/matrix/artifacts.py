# SPDX-License-Identifier: Apache-2.0
"""The artifacts that the cases of the matrix are about. Made by the driver, from real KV."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ArtifactKind:
    """What an artifact of the table is.

    kind: ordinary, snapkv, legacy or chained.
    local: request-local, and sealed anew for each cell.
    title: in words, for people.
    """

    kind: str
    local: bool
    title: str


ARTIFACTS: dict[str, ArtifactKind] = {
    "ordinary-a": ArtifactKind("ordinary", False, "ordinary KV of source A"),
    "literal-a": ArtifactKind("ordinary", False, "ordinary KV of the tokens that snapkv-a keeps"),
    "snapkv-a": ArtifactKind("snapkv", False, "SnapKV of source A, its own query, 50 % dropped"),
    "snapkv-a-query-b": ArtifactKind("snapkv", False, "SnapKV of source A, query of source B"),
    "snapkv-a-quarter": ArtifactKind("snapkv", False, "SnapKV of source A, 75 % dropped"),
    "fixed-a": ArtifactKind("snapkv", False, "source A at fixed positions"),
    "fixed-b": ArtifactKind("snapkv", False, "source B at the same positions, same tokens there"),
    "chained-a": ArtifactKind("chained", False, "SnapKV of snapkv-a"),
    "local-a": ArtifactKind("snapkv", True, "SnapKV of source A, sealed request-local"),
    "local-a-again": ArtifactKind("snapkv", True, "the same, sealed for another request"),
    "legacy-a": ArtifactKind("legacy", True, "the same as a bare (kv, tokens) tuple"),
    "legacy-a-again": ArtifactKind("legacy", True, "the same tuple of another request"),
}
