# SPDX-License-Identifier: Apache-2.0
"""One request stream over transformed KV: what a researcher stores and asks, each by its name.

An artifact is checked, the server asked whether it takes its scope, and only
then is anything stored; what others may have is listed in the variant index
after that. A request names the exact variant, and how much of it must be found.
Request-local artifacts are this stream's alone: no other can ask for them here,
and with the stream they end. Starts and stops no engine, and transforms
nothing. Called by drivers and by researchers' own programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kvseal.canonical import sha256_hex
from kvseal.compaction.artifact_checks import check_before_store
from kvseal.engines.artifact_format import check_engine_format
from kvseal.engines.completions import Completion, CompletionClient
from kvseal.engines.sdk import KVCacheSDK, StoreReceipt
from kvseal.engines.variant_index import VariantIndex
from kvseal.errors import EngineError, KvsealError, OptionError, StoreError, TransformError
from kvseal.identity.arrays import uint32_bytes
from kvseal.identity.artifact import KVArtifact
from kvseal.identity.manifest import TransformManifest
from kvseal.identity.parts import Format, Query
from kvseal.identity.scope import REQUEST_LOCAL
from kvseal.identity.seal import seal_legacy
from kvseal.identity.variant import check_unmarked, variant_of


class SealedStream:
    """Requests of one tenant, and the artifacts they share; use as a context manager."""

    def __init__(
        self,
        sdk: KVCacheSDK,
        client: CompletionClient,
        index: VariantIndex | None,
        cache_salt: str = "",
    ) -> None:
        """`index` None means that nothing is listed, and nothing can be found.

        Raises:
            OptionError: the salt holds the mark of a variant.
        """
        check_unmarked("cache salt", cache_salt)
        self._sdk = sdk
        self._client = client
        self._index = index
        self._salt = cache_salt
        self._leases: set[str] = set()
        self._closed = False

    def store(
        self,
        artifact: KVArtifact,
        source_token_ids: Sequence[int],
        *,
        source_variant: str = "",
        expected_format: Format | None = None,
    ) -> StoreReceipt:
        """Store an artifact under its variant, every chunk or none, and list it.

        Args:
            artifact: its rows whole chunks, of this engine's format.
            source_token_ids: what the transform was given, dropped tokens included.
            source_variant: variant of the source if it was transformed itself.
            expected_format: what the caller's engine runs with, where it knows more
                than the engine says: model, revision, rotary embedding.

        Raises:
            TransformError: the artifact is not what it says, or not of this engine's
                format; nothing was asked or stored.
            PrerequisiteError: the server does not take variants of this scope.
            StoreError: the variant is in the cache already, or the store failed; nothing
                of it is there. Or it was stored and could not be listed, as it then says.
        """
        self._require_open()
        check_before_store(
            artifact,
            source_token_ids,
            source_variant=source_variant,
            expected_format=expected_format,
        )
        manifest, variant = artifact.manifest, artifact.variant
        check_engine_format(manifest.format, self._sdk.geometry, self._sdk.layout.name)
        self._sdk.server.require_variant(variant)
        if manifest.scope.kind == REQUEST_LOCAL:
            # Before the store: a store that fails half way must end as well.
            self._leases.add(variant)
        receipt = self._write(artifact, variant)
        if manifest.scope.kind != REQUEST_LOCAL and self._index is not None:
            self._publish(self._index, manifest, variant)
        return receipt

    def store_legacy(
        self,
        modified: tuple[Any, Sequence[int]],
        source_token_ids: Sequence[int],
        *,
        format: Format,
        implementation: str,
        query: Query | None = None,
        source_variant: str = "",
    ) -> KVArtifact:
        """Store what a modifier of LMCache's SDK returned, `(kv, token_ids)`, request-local.

        As LMCache does, whole chunks are stored and the rest is left to the engine: the
        artifact that is returned has the tokens that were stored.

        Args:
            modified: KV `[planes, layers, tokens, width]` in this engine's layout, and a
                token ID for each token.
            format: what the KV is, of this engine.
            implementation: which code made it, as far as the caller knows.

        Raises:
            StoreError: less than a whole chunk; and as `store`.
            TransformError, PrerequisiteError: as `store`.
        """
        kv, token_ids = modified
        chunk = self._sdk.chunk_size_tokens
        whole = len(token_ids) // chunk * chunk
        if not whole or kv.shape[-2] != len(token_ids):
            raise StoreError(
                "a modifier must return one token ID for each token of KV, and a chunk or more",
                option="(kv, token_ids)",
                value=f"{kv.shape[-2]} tokens of KV, {len(token_ids)} IDs",
                expected=f"equal, and {chunk} or more",
            )
        artifact = seal_legacy(
            kv[..., :whole, :],
            list(token_ids)[:whole],
            source_token_ids=source_token_ids,
            format=format,
            implementation=implementation,
            query=query,
            source_variant=source_variant,
        )
        self.store(artifact, source_token_ids, source_variant=source_variant)
        return artifact

    def complete(
        self,
        artifact: KVArtifact | TransformManifest,
        prompt_token_ids: Sequence[int],
        *,
        max_tokens: int,
        seed: int = 0,
        ignore_eos: bool = False,
    ) -> Completion:
        """Generate on an artifact: all of it is found, or nothing of it is used.

        `prompt_token_ids` begin with the artifact's logical token IDs. A manifest that
        `find` brought does for an artifact.

        Raises:
            OptionError: the prompt begins otherwise.
            TransformError: the artifact is request-local and not of this stream.
            EngineError: when vLLM fails or refuses the request.
        """
        self._require_open()
        manifest = artifact.manifest if isinstance(artifact, KVArtifact) else artifact
        variant = variant_of(manifest)
        if manifest.scope.kind == REQUEST_LOCAL and variant not in self._leases:
            raise TransformError(
                "a request-local artifact is for the stream that stored it",
                option="variant",
                value=variant,
                expected="one that this stream stored, or of another scope",
            )
        count = manifest.retained.count
        begin = list(prompt_token_ids)[:count]
        if sha256_hex(uint32_bytes(begin, "prompt")) != manifest.logical_tokens_sha256:
            raise OptionError(
                "the prompt does not begin with the artifact's tokens",
                option="prompt_token_ids",
                value=f"{len(prompt_token_ids)} IDs",
                expected=f"the {count} logical token IDs of {variant}, then the rest",
            )
        chunk = self._sdk.chunk_size_tokens
        return self._client.complete(
            list(prompt_token_ids),
            max_tokens=max_tokens,
            cache_salt=self._salt,
            seed=seed,
            ignore_eos=ignore_eos,
            variant=variant,
            variant_tokens=count // chunk * chunk,
        )

    def find(self, recipe_sha256: str) -> list[TransformManifest]:
        """Return what the index knows of a recipe for this tenant: names to ask for, no hits.

        Raises:
            OptionError: the stream was made without an index.
            EvidenceError: an entry is damaged, forged or foreign.
            PrerequisiteError: the server has no variant index.
        """
        if self._index is None:
            raise OptionError(
                "a stream without a variant index finds nothing",
                option="index",
                expected="VariantIndex(sdk.server)",
            )
        return self._index.find(recipe_sha256, self._salt)

    def close(self) -> None:
        """End the leases of the request-local artifacts that were stored here; again does nothing.

        Raises:
            EngineError: some could not be ended; they end by the server's time limit.
        """
        self._closed = True
        failed: dict[str, KvsealError] = {}
        for variant in sorted(self._leases):
            try:
                self._sdk.server.end_lease(variant)
            except KvsealError as error:
                failed[variant] = error
        self._leases.clear()
        if failed:
            first = next(iter(failed.values()))
            raise EngineError(
                f"{len(failed)} request-local artifacts could not be ended: {first.message}",
                option="variant",
                value=sorted(failed),
                remedy="nothing: the server ends them after LMCACHE_TRANSFORM_LEASE_SECONDS",
            ) from first

    def __enter__(self) -> SealedStream:
        return self

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        try:
            self.close()
        except EngineError as second:
            if error is None:
                raise
            # What ended the stream is what the caller must see; 3.11 can hold the rest.
            if hasattr(error, "add_note"):
                error.add_note(str(second))

    def _write(self, artifact: KVArtifact, variant: str) -> StoreReceipt:
        tokens = artifact.logical_token_ids
        if artifact.packed is not None:
            return self._sdk.store(_tensor(artifact.packed), tokens, self._salt, variant=variant)
        return self._sdk.store_kv(
            _tensor(artifact.keys), _tensor(artifact.values), tokens, self._salt, variant=variant
        )

    def _publish(self, index: VariantIndex, manifest: TransformManifest, variant: str) -> None:
        try:
            index.publish(manifest, self._salt)
        except KvsealError as error:
            raise StoreError(
                f"an artifact was stored and could not be listed: {error.message}",
                option="variant",
                value=variant,
                remedy="VariantIndex.publish its manifest; whoever has it can ask for it now",
            ) from error

    def _require_open(self) -> None:
        if self._closed:
            raise OptionError(
                "the stream is closed, and its request-local artifacts have ended",
                option="SealedStream",
                expected="an open one",
                remedy="make another stream",
            )


def _tensor(array: Any) -> torch.Tensor:
    return array if isinstance(array, torch.Tensor) else torch.as_tensor(array)
