# SPDX-License-Identifier: Apache-2.0
"""LMCache SDK: name a transformed KV exactly, from retrieve and store to the request stream.

`retrieve` and `store` of a context take `variant`, which goes into the model
name of the keys. A store under a variant that writes nothing, or less than it
was given, is an error: L1 is write-once, so what was there before would be read
instead. A request stream carries one variant at a time: KV that was edited is
always stored under one (request-local with a random name when the caller gives
none), later generations name it in `kv_transfer_params`, and `close` ends the
lease of the request-local ones on the server. Without a variant all calls are
the ones they were, except that a store that wrote too little says so.

Query capture inside vLLM belongs to `lmcache_connector_variant`.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvseal.codemods.anchor import Anchor, rewrite_source
from kvseal.codemods.codemod import Codemod
from kvseal.codemods.environment import Distribution
from kvseal.codemods.lmcache_sdk_stream import (
    BATCH,
    BATCH_ANCHORS,
    IMPORT,
    PARAMETER,
    REQUEST,
    REQUEST_ANCHORS,
)
from kvseal.codemods.lmcache_transform_identity import LMCACHE_VERSIONS
from kvseal.codemods.syntax import (
    after,
    before,
    calling,
    function,
    instead,
    line,
    swapping,
    then,
    with_argument,
    with_parameter,
)

CONTEXT = "lmcache/sdk/context.py"
CONTIGUOUS = "lmcache/sdk/wrapper/contiguous.py"
SERVER_TRANSFER = "lmcache/v1/multiprocess/modules/server_transfer.py"


CONTEXT_NAME = """
# kvseal: a variant is given to a call, never hidden in the model's name.
transform_identity.refuse_forged(model_name, "model_name")
"""
CONTEXT_WHOLE = """
if variant and (total_tokens == 0 or total_tokens != len(token_ids)):
    # kvseal: what is left out would be computed anew and not be the variant.
    raise LMCacheSDKError(
        f"store of variant {variant!r} takes whole chunks: {len(token_ids)} tokens "
        f"are no multiple of the chunk size {self.chunk_size}; give the rest to the "
        "next generate() as suffix tokens"
    )
"""
CONTEXT_STRICT = """
stored = self.transfer_ctx.store(key, self.instance_id, kv_cpu)
if variant and not stored:
    # kvseal: L1 is write-once, so other content may stand under these keys.
    raise LMCacheSDKError(
        f"store of variant {variant!r} wrote less than its {total_tokens} tokens: "
        "the server has no room, holds entries of this variant already or refused "
        "them (its log says why)"
    )
return stored
"""
CONTEXT_END_LEASE = '''

def end_lease(self, variant: str) -> int:
    """Delete a request-local variant's entries on the server, now (kvseal).

        Args:
            variant: Text of a request-local variant.

        Returns:
            How many entries were deleted. Entries that are just being read are
            deleted by the server as soon as their readers are done.

        Raises:
            LMCacheSDKError: If the server does not end the lease.
        """
    try:
        response = requests.delete(
            f"{self._http_url}/transform/leases/{variant}", timeout=self._mq_timeout
        )
        response.raise_for_status()
        return int(response.json()["deleted"])
    except (requests.RequestException, KeyError, ValueError) as err:
        raise LMCacheSDKError(
            f"failed to end the lease of variant {variant!r} at {self._http_url}; "
            "its entries stay until the server's time limit"
        ) from err
'''

WRAPPER_RESULT = """
committed = self._context.commit_store(key, instance_id, chunks)
# kvseal: a chunk without a slot was there before, or found no room.
written = len(chunks) if result is None else len(result[1])
return committed and written == kv.shape[2] // self._chunk_size
"""
SERVER_WANTED = """
# kvseal: the SDK's store means every chunk; what was there before is not written.
wanted = obj_keys if key.request_id.startswith("store-") else reserved_dict
"""


def _context_anchors(version: str) -> tuple[Anchor, ...]:
    scope = "LMCacheSDKContext"
    configs = () if version == "0.5.4" else ("request_configs",)
    argument = "variant=variant"
    lookup = ("self", "request_id", "token_ids", "cache_salt", *configs)
    create = ("self", "token_ids", "start", "end", "request_id", "cache_salt", *configs)
    return (
        line(
            "",
            "from lmcache.v1.multiprocess.custom_types import IPCCacheServerKey",
            before(IMPORT),
        ),
        line(f"{scope}.__init__", "self._kind = kind", before(CONTEXT_NAME)),
        function(scope, "close", ("self",), after(CONTEXT_END_LEASE)),
        function(scope, "maybe_submit_lookup_request", lookup, with_parameter(PARAMETER)),
        calling(
            f"{scope}.maybe_submit_lookup_request",
            "_create_key",
            "key = self._create_key(…)",
            with_argument("_create_key", argument),
        ),
        function(
            scope,
            "retrieve",
            ("self", "tokens", "cache_salt", *configs),
            with_parameter(PARAMETER),
        ),
        calling(
            f"{scope}.retrieve",
            "maybe_submit_lookup_request",
            "self.maybe_submit_lookup_request(…)",
            with_argument("maybe_submit_lookup_request", argument),
        ),
        calling(
            f"{scope}.retrieve",
            "_create_key",
            "key = self._create_key(…)",
            with_argument("_create_key", argument),
        ),
        function(
            scope,
            "store",
            ("self", "kv", "tokens", "cache_salt", *configs),
            with_parameter(PARAMETER),
        ),
        line(
            f"{scope}.store",
            "total_tokens = (len(token_ids) // self.chunk_size) * self.chunk_size",
            after(CONTEXT_WHOLE),
        ),
        calling(
            f"{scope}.store",
            "_create_key",
            "key = self._create_key(…)",
            with_argument("_create_key", argument),
        ),
        line(
            f"{scope}.store",
            "return self.transfer_ctx.store(key, self.instance_id, kv_cpu)",
            instead(CONTEXT_STRICT),
        ),
        function(scope, "_create_key", (*create, "worker_id"), with_parameter(PARAMETER)),
        calling(
            f"{scope}._create_key",
            "IPCCacheServerKey",
            "return IPCCacheServerKey(model_name=self._model_name, …)",
            swapping("self._model_name", "transform_identity.decorate(self._model_name, variant)"),
            arguments=("model_name=self._model_name",),
        ),
    )


CONTIGUOUS_ANCHORS = (
    line(
        "ContiguousTransferWrapper.store",
        "return self._context.commit_store(key, instance_id, chunks)",
        instead(WRAPPER_RESULT),
    ),
)


def _server_anchors(version: str) -> tuple[Anchor, ...]:
    scope = "PickleTransferStrategy.commit_store"
    form = "return {}" if version == "0.5.4" else "success = {}"
    result = form.format("len(written_keys) == len(reserved_dict)")
    return (
        line(
            scope,
            result,
            then(swapping("reserved_dict", "wanted"), before(SERVER_WANTED)),
        ),
    )


def rewrite(distribution: Distribution, sources: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the five files with the edit made (see `Codemod.rewrite`)."""
    version = distribution.release
    anchors = {
        CONTEXT: _context_anchors(version),
        REQUEST: REQUEST_ANCHORS,
        BATCH: BATCH_ANCHORS,
        CONTIGUOUS: CONTIGUOUS_ANCHORS,
        SERVER_TRANSFER: _server_anchors(version),
    }
    absent = ("variant", "variants", "end_lease")
    return {
        path: rewrite_source(path, sources[path], anchors[path], absent=absent) for path in anchors
    }


CODEMOD = Codemod(
    name="lmcache_sdk_variant",
    summary="LMCache SDK stores, reads and generates on a named variant, strictly",
    versions={"lmcache": LMCACHE_VERSIONS},
    edited=(CONTEXT, REQUEST, BATCH, CONTIGUOUS, SERVER_TRANSFER),
    rewrite=rewrite,
)
