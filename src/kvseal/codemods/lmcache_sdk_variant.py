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
from kvseal.codemods.lmcache_transform_identity import LMCACHE_VERSIONS
from kvseal.codemods.syntax import (
    after,
    before,
    branch,
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
REQUEST = "lmcache/sdk/request.py"
BATCH = "lmcache/sdk/batch.py"
CONTIGUOUS = "lmcache/sdk/wrapper/contiguous.py"
SERVER_TRANSFER = "lmcache/v1/multiprocess/modules/server_transfer.py"

IMPORT = """
from lmcache.v1 import transform_identity
"""
PARAMETER = 'variant: str = ""'
TOKENS_PARAMETER = "variant_tokens: int = 0"

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
        "the server has no room, or holds entries of this variant already"
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

REQUEST_IMPORT = """
import base64
import inspect
import secrets
"""
STREAM_STATE = """
# kvseal: the exact variant of the KV behind `tokens`; "" is ordinary KV.
self.variant: str = ""
# How many tokens of it the engine must find, or it would compute them itself
# and store them under the variant's name; 0 where that is not known.
self.variant_tokens: int = 0
self._leases: list[str] = []
self._closed: bool = False
if variant:
    self.variant = self._take_variant(variant)
    self.variant_tokens = variant_tokens
elif variant_tokens:
    raise LMCacheRequestStreamError("variant_tokens without a variant")
"""
STREAM_METHODS = '''

def _take_variant(self, variant: str) -> str:
    """Check a variant, make a request-local one of "", and lease it (kvseal)."""
    if not variant:
        # Edited KV without a name: nobody else may ever ask for it.
        digits = base64.b32encode(secrets.token_bytes(20)).decode("ascii").lower()
        variant = f"r1{digits}"
    transform_identity.validate(variant)
    parameters = inspect.signature(self.post_completion).parameters
    if "kv_transfer_params" not in parameters and not any(
        parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()
    ):
        raise LMCacheRequestStreamError(
            "post_completion must take the keyword kv_transfer_params and send it with "
            f"the request, to reach variant {variant!r}"
        )
    if transform_identity.scope(variant) == "r" and variant not in self._leases:
        self._leases.append(variant)
    return variant

def close(self) -> None:
    """Delete this stream's request-local entries on the server (kvseal).

        Idempotent. The stream can't generate, retrieve or update afterwards.

        Raises:
            LMCacheSDKError: If a server did not end a lease; all were tried.
        """
    self._closed = True
    failure: Exception | None = None
    for variant in list(self._leases):
        try:
            for ctx in self._contexts.values():
                ctx.end_lease(variant)
            self._leases.remove(variant)
        except Exception as err:
            failure = err
    if failure is not None:
        raise failure

def __enter__(self) -> LMCacheRequestStream:
    """Return the stream (kvseal)."""
    return self

def __exit__(self, *exc_info: object) -> None:
    """Close the stream (kvseal)."""
    self.close()

def _require_open(self) -> None:
    """Refuse a closed stream (kvseal)."""
    if self._closed:
        raise LMCacheRequestStreamError(
            f"Stream {self.request_stream_id} is closed."
        )
'''
REQUIRE_OPEN = """
self._require_open()
"""
GENERATE_CALL = """
if self.variant:
    # kvseal: the engine looks up, loads and stores under this variant only.
    events = self.post_completion(
        self.tokens,
        sampling_params,
        self.cache_salt,
        kv_transfer_params={
            transform_identity.REQUEST_KEY: self.variant,
            transform_identity.TOKENS_KEY: self.variant_tokens,
        },
    )
else:
    events = self.post_completion(self.tokens, sampling_params, self.cache_salt)
"""
UPDATE_STORE = """
# kvseal: edited KV is never ordinary KV. Leased before it is stored, so that
# close() also finds what a failed store left.
self._require_open()
whole = len(tokens)
if not variant and whole == kv.shape[2]:
    # A name is a promise about every token; without one the rest of a chunk is
    # left to the engine, as it always was.
    whole -= whole % ctx.chunk_size
variant = self._take_variant(variant)
if not ctx.store(kv[:, :, :whole], tokens[:whole], self.cache_salt, variant=variant):
    raise LMCacheRequestStreamError(
        f"store of variant {variant!r} wrote nothing for stream "
        f"{self.request_stream_id}"
    )
self.variant, self.variant_tokens = variant, whole
"""
MODIFY_SUFFIX = """
suffix_tokens = list(self.tokens[cached_len:]) + self._suffix_tokens
"""
MODIFY_CALL = """
# kvseal: fn may return the variant of its result as third item.
new_kv, new_tokens, *named = fn(tensors, self.tokens[:cached_len])
if named:
    (variant,) = named
"""
MODIFY_UPDATE = """
self.update(
    kind=LMCacheSDKCacheKind.KV, kv=new_kv, tokens=new_tokens, variant=variant
)
# kvseal: only now, or a failed store would leave the tail in the prompt twice.
self._suffix_tokens = suffix_tokens
"""

BATCH_IMPORT = """
from collections.abc import Mapping
"""
BATCH_CLOSE = '''

def close(self) -> None:
    """Close every stream of the batch (kvseal).

        Raises:
            LMCacheSDKError: If a server did not end a lease; all streams were tried.
        """
    failure: Exception | None = None
    for request_stream in self.request_streams.values():
        try:
            request_stream.close()
        except Exception as err:
            failure = err
    if failure is not None:
        raise failure
'''
BATCH_PARAMETER = "variants: Mapping[str, str] | None = None"


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


STREAM = "LMCacheRequestStream"
REQUEST_ANCHORS = (
    line("", "import time", before(REQUEST_IMPORT)),
    line("", "from lmcache.logging import init_logger", after(IMPORT)),
    function(
        "",
        "create_request",
        ("contexts", "post_completion", "prompt_token_ids", "cache_salt"),
        then(with_parameter(PARAMETER), with_parameter(TOKENS_PARAMETER)),
    ),
    calling(
        "create_request",
        STREAM,
        "return LMCacheRequestStream(…)",
        then(
            with_argument(STREAM, "variant=variant"),
            with_argument(STREAM, "variant_tokens=variant_tokens"),
        ),
    ),
    function(
        STREAM,
        "__init__",
        ("self", "contexts", "post_completion", "prompt_token_ids", "cache_salt"),
        then(with_parameter(PARAMETER), with_parameter(TOKENS_PARAMETER)),
    ),
    line(f"{STREAM}.__init__", "self._suffix_tokens: list[int] = []", after(STREAM_STATE)),
    function(STREAM, "is_done", ("self",), after(STREAM_METHODS)),
    line(
        f"{STREAM}.generate",
        "pending = self._suffix_tokens + list(suffix_tokens)",
        before(REQUIRE_OPEN),
    ),
    line(
        f"{STREAM}.generate",
        "events = self.post_completion(self.tokens, sampling_params, self.cache_salt)",
        instead(GENERATE_CALL),
    ),
    function(
        STREAM,
        "retrieve",
        ("self", "kind", "timeout", "poll_interval"),
        with_argument("retrieve", "variant=self.variant"),
        calls=("retrieve", "retrieve"),
    ),
    line(f"{STREAM}.retrieve", "ctx = self._contexts.get(kind)", before(REQUIRE_OPEN)),
    function(STREAM, "update", ("self", "kind", "kv", "tokens"), with_parameter(PARAMETER)),
    branch(
        f"{STREAM}.update",
        "not ctx.store(kv, tokens, self.cache_salt)",
        instead(UPDATE_STORE),
    ),
    function(
        STREAM, "modify_kv", ("self", "fn", "timeout", "poll_interval"), with_parameter(PARAMETER)
    ),
    line(
        f"{STREAM}.modify_kv",
        "self._suffix_tokens = list(self.tokens[cached_len:]) + self._suffix_tokens",
        instead(MODIFY_SUFFIX),
    ),
    line(
        f"{STREAM}.modify_kv",
        "new_kv, new_tokens = fn(tensors, self.tokens[:cached_len])",
        instead(MODIFY_CALL),
    ),
    line(
        f"{STREAM}.modify_kv",
        "self.update(kind=LMCacheSDKCacheKind.KV, kv=new_kv, tokens=new_tokens)",
        instead(MODIFY_UPDATE),
    ),
)

BATCHED = "LMCacheBatchedStream"
BATCH_ANCHORS = (
    line(
        "",
        "from concurrent.futures import ThreadPoolExecutor, as_completed",
        after(BATCH_IMPORT),
    ),
    function(BATCHED, "add", ("self", "request_stream"), after(BATCH_CLOSE)),
    function(
        BATCHED,
        "modify_request_streams",
        ("self", "fn", "stream_ids", "timeout", "poll_interval"),
        with_parameter(BATCH_PARAMETER),
    ),
    calling(
        f"{BATCHED}.modify_request_streams",
        "submit",
        "future = executor.submit(request_stream.modify_kv, …)",
        with_argument("submit", 'variant=(variants or {}).get(stream_id, "")'),
    ),
    function(
        BATCHED,
        "modify",
        ("self", "fn", "fmt", "width", "timeout", "poll_interval", "stream_ids"),
        with_parameter(BATCH_PARAMETER),
    ),
    calling(
        f"{BATCHED}.modify",
        "modify_request_streams",
        "duration = self.modify_request_streams(…)",
        with_argument("modify_request_streams", "variants=variants"),
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
    version = distribution.version.split("+")[0]
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
