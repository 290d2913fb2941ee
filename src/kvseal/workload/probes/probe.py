# SPDX-License-Identifier: Apache-2.0
"""A probe of the KV-reuse verifier, and the cache geometry it is made for.

Values only: they are made by kvseal.workload.probes.build, sent by the driver
and read back from its history by the checkers, which trust no record whose
digest does not match its token IDs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from kvseal.canonical import token_ids_sha256
from kvseal.errors import EvidenceError

FORMATS = ("raw", "chat")


@dataclass(frozen=True)
class Geometry:
    """What prompt lengths are measured against, all in tokens.

    `chunk_tokens` is LMCache's chunk, or without a connector the probe span, a
    multiple of `block_tokens`, which is vLLM's block. `max_model_len` counts a
    prompt and its output together.
    """

    chunk_tokens: int
    block_tokens: int
    max_model_len: int

    def to_json(self) -> dict[str, int]:
        """Return the three lengths as a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Any) -> Geometry:
        """Read what `to_json` made.

        Raises:
            EvidenceError: for an unknown or missing field, or a length below 1.
        """
        values = _fields_of(document, "geometry", tuple(field.name for field in fields(cls)))
        for name, value in values.items():
            if type(value) is not int or value < 1:
                raise EvidenceError(
                    "a geometry is in whole tokens", option=name, value=value, expected="1 or more"
                )
        return cls(**values)


@dataclass(frozen=True)
class Probe:
    """One prompt, how often its KV is reused, and the cache scope that keeps it to itself.

    `id` is unique in its manifest and says format, length and reuse count
    (`raw-511-x1`); `case` says which boundary the length is for. Probes that
    share `prompt` send the same token IDs and differ in `reuse_count`. `scope`
    is the probe's own, but for the second prompt of a shared-prefix pair, which
    is in its partner's: `cold_prefix_tokens` is how many leading tokens the
    two have in common, and 0 for every other probe.
    """

    id: str
    case: str
    prompt_format: str
    reuse_count: int
    prompt: str
    scope: str
    token_ids: tuple[int, ...]
    cold_prefix_tokens: int

    @property
    def tokens(self) -> int:
        """Return the length of the prompt in tokens."""
        return len(self.token_ids)

    def to_json(self) -> dict[str, Any]:
        """Return the probe as a JSON object, with its length and digest beside its token IDs."""
        return {
            "id": self.id,
            "case": self.case,
            "prompt_format": self.prompt_format,
            "reuse_count": self.reuse_count,
            "prompt": self.prompt,
            "scope": self.scope,
            "cold_prefix_tokens": self.cold_prefix_tokens,
            "tokens": self.tokens,
            "token_ids_sha256": token_ids_sha256(list(self.token_ids)),
            "token_ids": list(self.token_ids),
        }

    @classmethod
    def from_json(cls, document: Any) -> Probe:
        """Read what `to_json` made.

        Raises:
            EvidenceError: for an unknown or missing field, a value that no probe
                has, or a length or digest that is not that of the token IDs.
        """
        names = (*(field.name for field in fields(cls)), "tokens", "token_ids_sha256")
        values = _fields_of(document, "probe", names)
        for name in ("id", "case", "prompt", "scope"):
            _require(
                isinstance(values[name], str) and values[name] != "", name, values, "some text"
            )
        _require(values["prompt_format"] in FORMATS, "prompt_format", values, " or ".join(FORMATS))
        _require(_is_count(values["reuse_count"], 1), "reuse_count", values, "1 or more")
        ids = values["token_ids"]
        whole = isinstance(ids, list) and ids != [] and all(_is_count(token, 0) for token in ids)
        _require(whole, "token_ids", values, "a list of token IDs")
        shared = values["cold_prefix_tokens"]
        _require(
            _is_count(shared, 0) and shared < len(ids),
            "cold_prefix_tokens",
            values,
            f"0 … {len(ids) - 1}",
        )
        tokens, found = values.pop("tokens"), values.pop("token_ids_sha256")
        for name, value, true in (
            ("tokens", tokens, len(ids)),
            ("token_ids_sha256", found, token_ids_sha256(ids)),
        ):
            if type(value) is not type(true) or value != true:
                raise EvidenceError(
                    f"probe {values['id']} is not the one that was recorded",
                    option=name,
                    value=value,
                    expected=f"{true}, which its token IDs amount to",
                )
        return cls(**{**values, "token_ids": tuple(ids)})


def _is_count(value: object, least: int) -> bool:
    return type(value) is int and value >= least


def _require(good: bool, name: str, values: Mapping[str, Any], expected: str) -> None:
    if not good:
        shown = values[name] if name != "token_ids" else type(values[name]).__name__
        raise EvidenceError("no probe is like this", option=name, value=shown, expected=expected)


def _fields_of(document: Any, what: str, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields of `document`, which must be exactly `names`."""
    if not isinstance(document, Mapping):
        raise EvidenceError(
            f"not a {what}", value=type(document).__name__, expected="a JSON object"
        )
    unknown, missing = sorted(set(document) - set(names)), sorted(set(names) - set(document))
    if unknown or missing:
        raise EvidenceError(
            f"not a {what}: unknown or missing fields",
            value=", ".join([*(f"+{name}" for name in unknown), *(f"-{name}" for name in missing)]),
            expected=", ".join(names),
        )
    return dict(document)
