# SPDX-License-Identifier: Apache-2.0
"""Which changes of a manifest change no identity, and how that is shown.

Each proof asks the product, with a real manifest at hand: what it refuses can't
be a second identity. Used by manifest_mutants.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from kvseal.errors import KvsealError
from kvseal.identity import Format, Rope, TensorParallel, TransformManifest
from kvseal.identity.scope import LETTERS
from kvseal.identity.variant import variant_text

Manifest = Mapping[str, Any]


def refuses(make: Callable[[], object]) -> bool:
    """True where the product does not let something come to be."""
    try:
        make()
    except KvsealError:
        return True
    return False


def schema_is_constant(manifest: Manifest) -> bool:
    """A manifest is read with this schema and with no other."""
    other = {**manifest, "schema": "kvseal.transform-manifest.v2"}
    return TransformManifest.from_json(manifest).to_json() == manifest and refuses(
        lambda: TransformManifest.from_json(other)
    )


def kinds_show_in_text(_: Manifest) -> bool:
    """Each scope has a letter of its own, which the text holds in front of the digest."""
    return len({variant_text(kind, "0" * 64)[0] for kind in LETTERS}) == len(LETTERS)


def one_rank_holds_all_heads(_: Manifest) -> bool:
    """With one rank a format can't be made unless both numbers of heads are one."""
    form = Format("m", "1", "l", "float32", Rope("default", "1", ()), 1, 1, 1, TensorParallel(1, 1))

    def made(heads: int, held: int) -> Format:
        return replace(form, kv_heads=heads, tensor_parallel=TensorParallel(1, held))

    pairs = [(heads, held) for heads in range(1, 65) for held in range(1, 65)]
    return all(refuses(partial(made, *pair)) == (pair[0] != pair[1]) for pair in pairs)


def half_the_digits_do(_: Manifest) -> bool:
    """No two of a hundred thousand digests begin with the same 80 bits."""
    seen = {hashlib.sha256(str(n).encode()).hexdigest()[:20] for n in range(100_000)}
    return len(seen) == 100_000


ONE_RANK = (
    "with one rank, and an engine with more is refused, format.kv_heads and "
    "format.tensor_parallel.kv_heads_per_rank are one number",
    one_rank_holds_all_heads,
)
SAME: dict[str, tuple[str, Callable[[Manifest], bool]]] = {
    "schema": ("a constant; a reader refuses any other", schema_is_constant),
    "scope.kind": ("it is the letter of the text, outside the digest", kinds_show_in_text),
    "format.kv_heads": ONE_RANK,
    "format.tensor_parallel.kv_heads_per_rank": ONE_RANK,
    "text of 16 characters, filled up": (
        "80 bits tell all apart too; the rest is against whoever searches for two of one name",
        half_the_digits_do,
    ),
}
"""Mutants that may survive: which identity is the same, in words, and the proof."""
