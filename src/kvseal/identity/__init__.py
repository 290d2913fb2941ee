# SPDX-License-Identifier: Apache-2.0
"""The identity of transformed KV: what it was made of, who may reuse it, and its exact name.

Standard library only: no engine, no torch, no files. A transform's inputs go
into a manifest, its digest into a variant text, and that into the keys of a
cache. Called by transforms, drivers, checkers and reports.
"""

from kvseal.identity.arrays import ArrayReader, payload_sha256, source_sha256, uint32_values
from kvseal.identity.artifact import KVArtifact
from kvseal.identity.checks import check_artifact
from kvseal.identity.fields import decimal_text, pairs
from kvseal.identity.manifest import TransformManifest
from kvseal.identity.parts import (
    Algorithm,
    Format,
    PositionMap,
    Query,
    Retained,
    Rope,
    Source,
    TensorParallel,
)
from kvseal.identity.recipe import VariantRecord
from kvseal.identity.scope import Proof, Scope, register_transform, request_local
from kvseal.identity.seal import seal, seal_legacy
from kvseal.identity.variant import (
    check_unmarked,
    check_variant,
    decorate,
    parse_server_model_name,
    parse_variant,
    server_model_name,
    split,
    variant_of,
)

__all__ = [
    "Algorithm",
    "ArrayReader",
    "Format",
    "KVArtifact",
    "PositionMap",
    "Proof",
    "Query",
    "Retained",
    "Rope",
    "Scope",
    "Source",
    "TensorParallel",
    "TransformManifest",
    "VariantRecord",
    "check_artifact",
    "check_unmarked",
    "check_variant",
    "decimal_text",
    "decorate",
    "pairs",
    "parse_server_model_name",
    "parse_variant",
    "payload_sha256",
    "register_transform",
    "request_local",
    "seal",
    "seal_legacy",
    "server_model_name",
    "source_sha256",
    "split",
    "uint32_values",
    "variant_of",
]
