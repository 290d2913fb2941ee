# SPDX-License-Identifier: Apache-2.0
"""File names of transformed KV, added by kvseal: refused in time where one would be too long.

A variant makes a key 40 characters longer, and an L2 adapter that makes a file
of a key would find out only when the entry is in L1 and its store long
answered. So the keys of a write are looked at first. Ordinary keys are not
looked at, nor request-local ones, which never reach L2. Knows LMCache's form
`<model>@0x<rank>@<group>@<hash>[@<salt>].data`, in which `/` becomes `-SEP-`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lmcache.logging import init_logger
from lmcache.v1 import transform_identity

logger = init_logger(__name__)

NAME_MAX_BYTES = 255
"""The longest file name of Linux file systems."""
SPARE_BYTES = {"fs": 0, "fs_native": 4, "nixl_store_dynamic": 0}
"""Adapters that make a file of each key, and what a name grows by while it is written."""


def names_variants(keys: Iterable[Any]) -> bool:
    """Return whether some of `keys` carry a variant."""
    return any(transform_identity.RESERVED in key.model_name for key in keys)


def file_name_bytes(key: Any) -> int:
    """Return the length of an L2 file name of `key`."""
    name = key.model_name.replace("/", "-SEP-")
    name += f"@{key.kv_rank:#010x}@{key.object_group_id:x}@{key.chunk_hash.hex()}"
    name += f"@{key.cache_salt}" if key.cache_salt else ""
    return len(f"{name}.data".encode())


def adapter_types(config: Any) -> set[str]:
    """Return the types of an adapter's config and of those it wraps."""
    from lmcache.v1.distributed.l2_adapters.config import get_type_name_for_config

    types = set()
    while config is not None:
        types.add(get_type_name_for_config(config))
        config = getattr(config, "inner_config", None)
    return types


def storable(keys: list[Any], adapter_configs: Iterable[Any]) -> list[Any]:
    """Return `keys` without those whose file name some L2 adapter could not make; log why."""
    types = set().union(*(adapter_types(config) for config in adapter_configs))
    spare = max((SPARE_BYTES[kind] for kind in types if kind in SPARE_BYTES), default=None)
    if spare is None:
        return keys
    limit = NAME_MAX_BYTES - spare
    refused = {
        key
        for key in keys
        if transform_identity.split(key.model_name)[1][:1] not in ("", "r")
        and file_name_bytes(key) > limit
    }
    if refused:
        longest = max(refused, key=file_name_bytes)
        logger.error(
            "Refused to store %d of %d entries: a file name of model %r and salt %r has %d bytes, "
            "the L2 adapter (%s) takes %d; use a shorter salt or model name",
            len(refused),
            len(keys),
            longest.model_name,
            longest.cache_salt,
            file_name_bytes(longest),
            ", ".join(sorted(types & SPARE_BYTES.keys())),
            limit,
        )
    return [key for key in keys if key not in refused]
