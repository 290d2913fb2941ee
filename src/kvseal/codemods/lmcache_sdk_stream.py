# SPDX-License-Identifier: Apache-2.0
"""The edits of LMCache's request stream and batch, as `lmcache_sdk_variant` makes them.

No codemod by itself: contexts must take a variant first. What the edits are for
stands there.
"""

from __future__ import annotations

from kvseal.codemods.syntax import (
    after,
    before,
    branch,
    calling,
    function,
    instead,
    line,
    then,
    with_argument,
    with_parameter,
)

REQUEST = "lmcache/sdk/request.py"
BATCH = "lmcache/sdk/batch.py"

IMPORT = """
from lmcache.v1 import transform_identity
"""
PARAMETER = 'variant: str = ""'
TOKENS_PARAMETER = "variant_tokens: int = 0"
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
