# SPDX-License-Identifier: Apache-2.0
"""The coordinator's part of `lmcache_event_fence`: no tokens of a variant in the directory.

The directory keeps tokens by bare chunk hash, for all keys of that hash. So it
listed an ordinary entry's tokens as a variant's too, and in 0.5.4 went on offering
them to blend lookups when a variant was all that was left. Here a variant has a
binding of its own, which never gets tokens and still holds its object groups
together; ordinary keys keep the binding they had.

Source: LMCache 0.5.4 `mp_coordinator/key_directory.py`, 0.5.5 and 0.5.6
`mp_coordinator/views/key_directory.py: _add_token_binding, _create_token_binding`.
"""

from __future__ import annotations

from kvseal.codemods.anchor import Anchor
from kvseal.codemods.syntax import after, function, instead, line, swapping

OLD_DIRECTORY = "lmcache/v1/mp_coordinator/key_directory.py"
DIRECTORY = "lmcache/v1/mp_coordinator/views/key_directory.py"
API = "lmcache/v1/mp_coordinator/http_apis/directory_api.py"

LOGGING = "from lmcache.logging import init_logger"
IMPORT = """
from lmcache.v1 import transform_identity
"""
NAME = '''

def token_binding_name(key: ObjectKey) -> bytes:
    """Return the name of a key's token binding: its chunk hash, or a variant's own (kvseal)."""
    variant = transform_identity.split(key.model_name)[1]
    return key.chunk_hash + variant.encode() if variant else key.chunk_hash

'''
API_IMPORT = """
from {module} import token_binding_name
"""
NO_TOKENS = """
# kvseal: transformed KV is not what these tokens usually mean.
if not transform_identity.split(key.model_name)[1]:
    self._create_token_binding({first}, entry)
"""
_BOUND = swapping("key.chunk_hash", "token_binding_name(key)")


def directory_anchors(version: str) -> dict[str, tuple[Anchor, ...]]:
    """Return the anchors in the directory and in what answers from it."""
    old = version == "0.5.4"
    path = OLD_DIRECTORY if old else DIRECTORY
    first = "key.chunk_hash" if old else "key"
    named = ["_add_token_binding", "_remove_token_binding"]
    if version == "0.5.6":
        named.append("_get_stored_keys_in_other_groups")
    directory = "ctx.key_directory" if old else "directory"
    module = path.removesuffix(".py").replace("/", ".")
    held = "from lmcache.v1.distributed.api import Tier"
    return {
        path: (
            line("", LOGGING, after(IMPORT)),
            line("", "logger = init_logger(__name__)", after(NAME)),
            line(
                "KeyDirectory._apply_entry",
                f"self._create_token_binding({first}, entry)",
                instead(NO_TOKENS.format(first=first)),
            ),
            *(function("KeyDirectory", name, ("self", "key"), _BOUND) for name in named),
        ),
        API: (
            line("", held, after(API_IMPORT.format(module=module))),
            line(
                "lookup_placements",
                f"token_ids = {directory}.get_token_ids([key.chunk_hash for key in obj_keys])",
                _BOUND,
            ),
            line(
                "list_directory_keys._scan",
                "token_ids = directory.get_token_ids([key.chunk_hash for key in page])",
                _BOUND,
            ),
        ),
    }
