# SPDX-License-Identifier: Apache-2.0
"""The backends with an LMCache server and a vLLM: shared memory, vLLM's own cache on, each L2.

Artifacts go in through LMCache's message queue and shared memory, requests
through vLLM's HTTP interface; counts are the two servers' own.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvseal.drivers.matrix.acts import Acts
from kvseal.drivers.matrix.artifacts import Made
from kvseal.drivers.matrix.lab import Lab
from kvseal.drivers.matrix.surface import Answer, Stored
from kvseal.engines.variant_index import VariantIndex
from kvseal.errors import EngineError
from kvseal.identity import KVArtifact
from kvseal.identity.variant import variant_of
from kvseal.workload.matrix import Act
from kvseal.workload.matrix.case import BEHIND

STORE_TIMEOUT_SECONDS = 60.0


class ServedSurface:
    """A running `Lab` as the matrix sees it."""

    together = True

    def __init__(self, lab: Lab, model_name: str, new_tokens: int) -> None:
        """`model_name` is the model as vLLM was started with it."""
        self.backend = lab.backend
        self._lab = lab
        self._model_name = model_name
        self._new_tokens = new_tokens
        self._acts = Acts(lab, model_name)

    def store(self, made: Made, artifact: KVArtifact | None, cache_salt: str) -> int:
        """Write all chunks through LMCache's shared memory and read them back."""
        variant = "" if artifact is None else artifact.variant
        receipt = self._lab.sdk.store_kv(
            made.keys, made.values, made.token_ids, cache_salt, variant=variant
        )
        return receipt.stored_tokens

    def settle(self) -> tuple[int, int] | None:
        """Wait for transfers; with a second tier, wait until it has everything and empty L1.

        What never arrives there is for the asks to show.
        """
        self._finish()
        if self.backend not in BEHIND:
            return None
        before, after = self._lab.cache.clear(memory_only=True)
        return before.objects, after.objects

    def ask(self, token_ids: Sequence[int], *, variant: str, cache_salt: str) -> Answer:
        """Generate a few tokens and read how much was loaded for them."""
        before = self._lab.cache.hit_counters(self._model_name, cache_salt)
        try:
            completion = self._lab.client.complete(
                list(token_ids),
                max_tokens=self._new_tokens,
                cache_salt=cache_salt,
                ignore_eos=True,
                variant=variant,
            )
        except EngineError as error:
            self._lab.require_ready()  # a dead engine refuses everything
            return Answer(refusal=error.message)
        self._lab.cache.wait_unlocked(timeout_seconds=STORE_TIMEOUT_SECONDS)
        after = self._lab.cache.hit_counters(self._model_name, cache_salt)
        return Answer(
            output_token_ids=completion.token_ids,
            hit_tokens_vllm=completion.hit_tokens,
            hit_tokens_server=after.since(before).loaded,
        )

    def act(self, step: Act, stored: Stored, cache_salt: str) -> str:
        """Do one of the steps that are no requests."""
        return self._acts.do(step, stored, cache_salt)

    def found_in_index(self, stored: Stored, cache_salt: str) -> str:
        """Ask the server's variant index for the recipe."""
        recipe = stored.identity.manifest.recipe_digest
        found = VariantIndex(self._lab.cache).find(recipe, cache_salt)
        return variant_of(found[0]) if len(found) == 1 else ""

    def restart(self, what: str) -> None:
        """Restart engines and connect again."""
        self._lab.restart(what)

    def empty(self) -> None:
        """Empty memory, and what is behind it where that goes while the server runs."""
        self._finish()
        self._lab.cache.clear(memory_only=True)
        self._lab.wipe()

    def _finish(self) -> None:
        """Wait until nothing is under way, to a second tier included."""
        self._lab.cache.wait_unlocked(timeout_seconds=STORE_TIMEOUT_SECONDS)
        if self.backend in BEHIND:
            self._lab.cache.wait_stored_behind(timeout_seconds=STORE_TIMEOUT_SECONDS)
            self._lab.cache.wait_unlocked(timeout_seconds=STORE_TIMEOUT_SECONDS)
