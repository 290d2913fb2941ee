# SPDX-License-Identifier: Apache-2.0
"""Settings of an in-process LMCache as the installed package resolves them.

The file's values, the package's defaults and overrides from the environment
together, by LMCache's own code; and what the evidence contract says of them.
LMCache ignores keys it does not know and values it can't convert: here both
are errors, since a setting that did not take effect is a target nobody asked
for. Called by the verifier's preflight.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvseal.canonical import sha256_hex
from kvseal.engines.offline.protocol import json_values
from kvseal.errors import OptionError, PrerequisiteError

OPTION = "--lmcache-config"
PREFIX = "LMCACHE_"
FILE_VARIABLE = "LMCACHE_CONFIG_FILE"


@dataclass(frozen=True)
class Settings:
    """`effective` is what LMCache will run with; `notes` what a reader must be told of it."""

    path: Path
    text: str
    effective: dict[str, Any]
    environment_overrides: dict[str, str]
    notes: tuple[str, ...]

    @property
    def chunk_tokens(self) -> int:
        """Tokens in one chunk."""
        return int(self.effective["chunk_size"])

    def to_json(self) -> dict[str, Any]:
        """Return it as it stands in the report."""
        return {
            "file": str(self.path),
            "sha256": sha256_hex(self.text.encode()),
            "effective": self.effective,
            "environment_overrides": self.environment_overrides,
        }


def resolve(path: Path, *, required: Mapping[str, Any], chunk_size: int | None) -> Settings:
    """Resolve the file at `path`.

    `required` maps settings to the values that the contract asks for;
    `chunk_size` is what the user asserts, None for nothing.

    Raises:
        OptionError: the file can't be read, has an unknown key or a value of the
            wrong kind, or the settings are outside the contract.
        PrerequisiteError: LMCache is not installed.
    """
    text, values = _read(path)
    try:
        from lmcache.v1 import config as module
    except ImportError as error:
        raise PrerequisiteError(
            f"LMCache can't be imported: {error}", option="lmcache", remedy="install it"
        ) from None
    known: dict[str, Any] = {**module._CONFIG_DEFINITIONS, **module._CONFIG_ALIASES}
    _refuse_unknown(path, values, known)
    overrides = _overrides(module._CONFIG_DEFINITIONS)
    # Of the file first: LMCache's own check of such a setting may be a bare assertion.
    _refuse_outside(values, values, required, overrides)
    effective: dict[str, Any] = json_values(_load(module, path).to_dict())
    _refuse_lost(path, values, effective)
    _refuse_outside(effective, values, required, overrides)
    if chunk_size is not None and chunk_size != effective["chunk_size"]:
        raise OptionError(
            "LMCache resolves another chunk size",
            option="--chunk-size",
            value=chunk_size,
            expected=f"{effective['chunk_size']}, from {_origin('chunk_size', values, overrides)}",
            remedy="change the option, or chunk_size in the file",
        )
    notes = []
    if effective.get("use_gpu_connector_v3"):
        notes.append(
            "use_gpu_connector_v3 is not a workaround: on the recorded L4 it aborts with a "
            "tensor-dimension mismatch instead of giving a comparable result"
        )
    return Settings(path, text, effective, overrides, tuple(notes))


def _read(path: Path) -> tuple[str, dict[str, Any]]:
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
        values = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(
            f"LMCache's settings can't be read: {error}",
            option=OPTION,
            value=str(path),
            expected="a readable YAML file",
            remedy="one line is enough: chunk_size: 256",
        ) from None
    except yaml.YAMLError as error:
        raise OptionError(
            f"LMCache's settings are not YAML: {error}",
            option=OPTION,
            value=str(path),
            expected="lines like chunk_size: 256",
            remedy="correct the file",
        ) from None
    if values is None:
        values = {}
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise OptionError(
            "LMCache's settings are not a YAML mapping",
            option=OPTION,
            value=str(path),
            expected="lines like chunk_size: 256",
            remedy="correct the file",
        )
    return text, values


def _refuse_unknown(path: Path, values: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    for key in values:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            raise OptionError(
                f"LMCache knows no setting {key!r} and would ignore it",
                option=OPTION,
                value=str(path),
                expected=f"perhaps {near[0]}" if near else "a setting of the installed LMCache",
                remedy="correct the key or take it out",
            )


def _overrides(definitions: Mapping[str, Any]) -> dict[str, str]:
    found = {
        f"{PREFIX}{name.upper()}": os.environ.get(f"{PREFIX}{name.upper()}") for name in definitions
    }
    return {name: value for name, value in sorted(found.items()) if value is not None}


def _load(module: Any, path: Path) -> Any:
    try:
        config = module.LMCacheEngineConfig.from_file(str(path))
        config.update_config_from_env()
        config.validate()
    except Exception as error:  # noqa: BLE001  (LMCache raises whatever a converter meets)
        raise OptionError(
            f"LMCache refuses these settings: {type(error).__name__}: {error}",
            option=OPTION,
            value=str(path),
            remedy="correct the file, or the LMCACHE_ variables of the environment",
        ) from None
    return config


def _refuse_lost(path: Path, values: Mapping[str, Any], effective: Mapping[str, Any]) -> None:
    """Refuse a value that LMCache could not convert and dropped in silence."""
    for key, value in values.items():
        if key in effective and value is not None and effective[key] is None:
            raise OptionError(
                f"LMCache drops the value of {key}",
                option=OPTION,
                value=f"{path}: {key}: {value!r}",
                expected="a value of the kind that this setting takes",
                remedy="correct the value or take the line out",
            )
    if type(effective["chunk_size"]) is not int or effective["chunk_size"] < 1:
        raise OptionError(
            "LMCache resolves no usable chunk size",
            option=OPTION,
            value=effective["chunk_size"],
            expected="chunk_size: a positive number of tokens",
            remedy="correct chunk_size in the file, or LMCACHE_CHUNK_SIZE",
        )


def _refuse_outside(
    settings: Mapping[str, Any],
    values: Mapping[str, Any],
    required: Mapping[str, Any],
    overrides: Mapping[str, str],
) -> None:
    for key, wanted in required.items():
        if key in settings and settings[key] != wanted:
            raise OptionError(
                f"{key} is outside exact prefix reuse, which is all this verifier judges",
                option=OPTION,
                value=f"{key}: {settings[key]!r}, from {_origin(key, values, overrides)}",
                expected=f"{key}: {wanted!r}",
                remedy="take the setting out",
            )


def _origin(key: str, values: Mapping[str, Any], overrides: Mapping[str, str]) -> str:
    variable = f"{PREFIX}{key.upper()}"
    if variable in overrides:
        return f"the environment variable {variable}"
    return "the file" if key in values else "LMCache's default"
