# SPDX-License-Identifier: Apache-2.0
"""One builder for each event of a matrix run, so that a driver can't misspell or forget a field.

Digests and lengths that follow from a list are made here from the list: of a
prompt kvseal.canonical.digest, of an artifact's tokens token_ids_sha256, which
is what its manifest holds too. Nothing is written: pass the event to
HistoryWriter.append. Called by the driver of the matrix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvseal import canonical
from kvseal.records.builders import environment, error, interrupted, run_finished, run_started

__all__ = [
    "artifact",
    "asked",
    "backend_unusable",
    "cell",
    "control",
    "emptied",
    "engines_started",
    "environment",
    "error",
    "interrupted",
    "mixed",
    "not_applicable",
    "observed",
    "restarted",
    "run_finished",
    "run_started",
    "stored",
    "witness",
]


def engines_started(
    *,
    backend: str,
    after: str,
    engine: str,
    vllm: Mapping[str, Any],
    lmcache: Mapping[str, Any],
) -> dict[str, Any]:
    """`engine` (main, control or plain) of `backend` answers, and its cache server if it has one.

    `after` is the restart before it, none at the first start.
    """
    return {
        "event": "engines_started",
        "backend": backend,
        "after": after,
        "engine": engine,
        "vllm": dict(vllm),
        "lmcache": dict(lmcache),
    }


def artifact(
    *,
    name: str,
    kind: str,
    token_ids: Sequence[int],
    source_tokens: int,
    variant: str,
    manifest: Mapping[str, Any] | None,
    manifest_sha256: str | None,
    payload_sha256: str,
) -> dict[str, Any]:
    """An artifact of the table was made: `token_ids` stand for its KV.

    `variant` is empty for ordinary KV and for what is sealed anew in each cell;
    `payload_sha256` is the digest of the KV as the backend `process` gives it back.
    """
    return {
        "event": "artifact",
        "name": name,
        "kind": kind,
        "token_ids_sha256": canonical.token_ids_sha256(list(token_ids)),
        "tokens": len(token_ids),
        "source_tokens": source_tokens,
        "variant": variant,
        "manifest": None if manifest is None else dict(manifest),
        "manifest_sha256": manifest_sha256,
        "payload_sha256": payload_sha256,
    }


def control(*, prompt: Sequence[int], output_token_ids: Sequence[int], text: str) -> dict[str, Any]:
    """The engine without any cache answered the token IDs `prompt`."""
    return {
        "event": "control",
        **_prompt(prompt),
        "output_token_ids": list(output_token_ids),
        "text": text,
    }


def witness(
    *,
    artifact: str,
    prompt: Sequence[int],
    output_token_ids: Sequence[int],
    top2_margin: float | None,
) -> dict[str, Any]:
    """transformers went on from the artifact's tensors with what follows them in `prompt`.

    `top2_margin` is the smallest logit distance of the two best in this answer.
    """
    return {
        "event": "witness",
        "artifact": artifact,
        "prompt_sha256": canonical.digest(list(prompt)),
        "output_token_ids": list(output_token_ids),
        "top2_margin": top2_margin,
    }


def cell(*, case: str, backend: str, after: str, cache_salt: str) -> dict[str, Any]:
    """A cell begins: `case` in `backend` with restart `after`, as tenant `cache_salt`."""
    return {"event": "cell", **_place(case, backend, after), "cache_salt": cache_salt}


def not_applicable(*, case: str, backend: str, after: str, reason: str) -> dict[str, Any]:
    """A cell was not run, for this reason."""
    return {"event": "not_applicable", **_place(case, backend, after), "reason": reason}


def stored(
    *,
    case: str,
    backend: str,
    after: str,
    artifact: str,
    variant: str,
    cache_salt: str,
    tokens: int,
    refusal: str | None,
) -> dict[str, Any]:
    """An artifact was put into the cache, `tokens` of it; or that was refused."""
    return {
        "event": "stored",
        **_place(case, backend, after),
        "artifact": artifact,
        "variant": variant,
        "cache_salt": cache_salt,
        "tokens": tokens,
        "refusal": refusal,
    }


def asked(
    *,
    case: str,
    backend: str,
    after: str,
    step: int,
    artifact: str,
    prompt: Sequence[int],
    artifact_tokens: int,
    variant: str,
    cache_salt: str,
    refusal: str | None,
    output_token_ids: Sequence[int] | None,
    payload_sha256: str | None,
    hit_tokens_vllm: int | None,
    hit_tokens_server: int | None,
) -> dict[str, Any]:
    """Step `step` of a case asked for `prompt`, which begins with the artifact's tokens.

    `artifact_tokens` are those that a full hit loads, in whole chunks. A count is
    None where that party counted nothing; `payload_sha256` is of the KV that came
    back where there is no engine to answer.
    """
    return {
        "event": "asked",
        **_place(case, backend, after),
        "step": step,
        "artifact": artifact,
        **_prompt(prompt),
        "artifact_tokens": artifact_tokens,
        "variant": variant,
        "cache_salt": cache_salt,
        "refusal": refusal,
        "output_token_ids": None if output_token_ids is None else list(output_token_ids),
        "payload_sha256": payload_sha256,
        "hit_tokens_vllm": hit_tokens_vllm,
        "hit_tokens_server": hit_tokens_server,
    }


def observed(
    *, case: str, backend: str, after: str, step: int, what: str, value: str
) -> dict[str, Any]:
    """Step `step` of a case was something else than a request: `what` showed `value`.

    What was refused has a value that begins with `refused`.
    """
    return {
        "event": "observed",
        **_place(case, backend, after),
        "step": step,
        "what": what,
        "value": value,
    }


def emptied(*, backend: str, objects_before: int, objects_after: int) -> dict[str, Any]:
    """The server's memory was emptied, so that the second tier alone can be hit; its own counts."""
    return {
        "event": "emptied",
        "backend": backend,
        "objects_before": objects_before,
        "objects_after": objects_after,
    }


def backend_unusable(*, backend: str, message: str, remedy: str) -> dict[str, Any]:
    """`backend` was asked for and can't be used here; none of its cells is run."""
    return {
        "event": "backend_unusable",
        "backend": backend,
        "message": message,
        "remedy": remedy,
    }


def restarted(*, backend: str, what: str) -> dict[str, Any]:
    """Engine, server or both of `backend` were stopped and answer again."""
    return {"event": "restarted", "backend": backend, "what": what}


def mixed(
    *,
    index: int,
    engine: str,
    kind: str,
    artifact: str,
    required: str,
    prompt: Sequence[int],
    artifact_tokens: int,
    variant: str,
    cache_salt: str,
    output_token_ids: Sequence[int],
    hit_tokens_vllm: int | None,
) -> dict[str, Any]:
    """Request `index` of those interleaved over two engines on one server.

    `required` is hit, miss, or any where either is right; `kind` says in words
    what sort of request it is.
    """
    return {
        "event": "mixed",
        "index": index,
        "engine": engine,
        "kind": kind,
        "artifact": artifact,
        "required": required,
        **_prompt(prompt),
        "artifact_tokens": artifact_tokens,
        "variant": variant,
        "cache_salt": cache_salt,
        "output_token_ids": list(output_token_ids),
        "hit_tokens_vllm": hit_tokens_vllm,
    }


def _place(case: str, backend: str, after: str) -> dict[str, str]:
    return {"case": case, "backend": backend, "after": after}


def _prompt(token_ids: Sequence[int]) -> dict[str, Any]:
    return {
        "prompt_sha256": canonical.digest(list(token_ids)),
        "prompt_tokens": len(token_ids),
    }
