# SPDX-License-Identifier: Apache-2.0
"""Key texts of LMCache's L2 adapters: taken apart, and put together again byte for byte.

    native  <model>@<rank>@<group>@<hash>[@<salt>]           resp, valkey, s3
    fs      <model>@0x<rank>@<group>@<hash>[@<salt>].data    fs, fs_native

rank is eight or more lowercase hex digits, group hex without leading zeros,
hash lowercase hex of whole bytes. A salt stands only where there is one. In a
file name each `/` of the model is `-SEP-`, so a model whose name holds `-SEP-`
itself can't be told from one with `/`: LMCache gives both one file. S3 objects
are sent under the URL-quoted native text and are listed under the plain one.

What is parsed here is exactly what can have been written: `parse(write(key))`
is the key, `write(parse(text))` the text, and any other text is None. Knows
nothing of variants. Called by kvseal.audit.classify.

Source: LMCache 0.5.4 and 0.5.6, v1/distributed: api.py `ObjectKey`;
l2_adapters/fs_l2_adapter.py `_object_key_to_filename`,
native_connector_l2_adapter.py `_object_key_to_string`, s3_l2_adapter.py
`_object_key_to_string`, `_format_safe_path`, valkey_l2_adapter.py `_wire_key`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

FIELD = "@"
SLASH = "-SEP-"
FILE_END = ".data"
MAX_SALT = 128
"""Characters. Source: `ObjectKey._SALT_MAX_LEN`."""

_REST = (
    r"(?P<rank>[0-9a-f]{8}|[1-9a-f][0-9a-f]{8,})"
    r"@(?P<group>0|[1-9a-f][0-9a-f]*)"
    r"@(?P<hash>(?:[0-9a-f]{2})+)"
    rf"(?:@(?P<salt>[^@/\\\x00]{{1,{MAX_SALT}}}))?"
)
_NATIVE = re.compile(rf"(?P<model>[^@]+)@{_REST}")
_FS = re.compile(rf"(?P<model>[^@/\x00]+)@0x{_REST}{re.escape(FILE_END)}")


class KeyText(NamedTuple):
    """An `ObjectKey` as text has it; `chunk_hash` is lowercase hex, "" is no salt."""

    model_name: str
    kv_rank: int
    object_group_id: int
    chunk_hash: str
    cache_salt: str


def write_native(key: KeyText) -> str:
    """Return the text that resp, valkey and s3 keep `key` under, without a deployment's prefix."""
    return f"{key.model_name}{FIELD}{_rest(key, f'{key.kv_rank:08x}')}"


def write_fs(key: KeyText) -> str:
    """Return the file name of `key`."""
    model = key.model_name.replace("/", SLASH)
    return f"{model}{FIELD}{_rest(key, f'{key.kv_rank:#010x}')}{FILE_END}"


def parse_native(text: str) -> KeyText | None:
    """Take a native key text apart; None for what LMCache can't have written."""
    return _taken_apart(_NATIVE.fullmatch(text))


def parse_fs(name: str) -> KeyText | None:
    """Take a file name apart; None for what LMCache can't have written."""
    key = _taken_apart(_FS.fullmatch(name))
    return key and key._replace(model_name=key.model_name.replace(SLASH, "/"))


def is_text(name: str) -> bool:
    """Return whether a name is valid Unicode, as all of LMCache's are.

    A reader hands bytes that are no UTF-8 on as lone surrogates.
    """
    return name.isascii() or not any("\ud800" <= character <= "\udfff" for character in name)


def _rest(key: KeyText, rank: str) -> str:
    rest = FIELD.join((rank, f"{key.object_group_id:x}", key.chunk_hash))
    return f"{rest}{FIELD}{key.cache_salt}" if key.cache_salt else rest


def _taken_apart(match: re.Match[str] | None) -> KeyText | None:
    if match is None or not is_text(match.string):
        return None
    model, rank, group, chunk_hash, salt = match.group("model", "rank", "group", "hash", "salt")
    return KeyText(model, int(rank, 16), int(group, 16), chunk_hash, salt or "")
