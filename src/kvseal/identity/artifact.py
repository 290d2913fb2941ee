# SPDX-License-Identifier: Apache-2.0
"""What a transform hands over: KV, the token IDs that stand for it, and its identity.

Token IDs alone can't name transformed KV: the vectors still hold the tokens
that were dropped. So KV never travels without its manifest, and the position
arrays that the manifest binds by digest go beside it. Opaque arrays need only
`shape` and `dtype`. Made by kvseal.identity.seal; nothing is checked here
beyond what one look shows, kvseal.identity.checks does that before a store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvseal.errors import TransformError
from kvseal.identity.manifest import TransformManifest
from kvseal.identity.variant import variant_of


@dataclass(frozen=True, eq=False)
class KVArtifact:
    """A transformed KV cache under its exact name.

    manifest: its identity.
    logical_token_ids: one for each row, what an engine is given as the prompt.
    retained_positions, new_positions: little-endian uint32 in row order, empty
        where the manifest's rule is `unstated`.
    keys, values: canonical `[layers, tokens, kv_heads, head_size]`; or
    packed: `[…, layers, tokens, width]` as the cache server holds it. One of the two.
    """

    manifest: TransformManifest
    logical_token_ids: tuple[int, ...]
    retained_positions: bytes
    new_positions: bytes
    keys: Any = None
    values: Any = None
    packed: Any = None

    def __post_init__(self) -> None:
        pair = self.keys is not None and self.values is not None
        single = self.keys is not None or self.values is not None
        if pair == (self.packed is not None) or pair != single:
            raise TransformError(
                "an artifact holds keys and values, or one packed array",
                option="keys, values, packed",
                value=[type(item).__name__ for item in (self.keys, self.values, self.packed)],
                expected="keys and values, or packed alone",
            )

    @property
    def arrays(self) -> dict[str, Any]:
        """The KV by name: keys and values, or packed."""
        if self.packed is not None:
            return {"packed": self.packed}
        return {"keys": self.keys, "values": self.values}

    @property
    def variant(self) -> str:
        """The variant text that its keys carry.

        Raises:
            TransformError: a wide scope without a registered proof.
        """
        return variant_of(self.manifest)
