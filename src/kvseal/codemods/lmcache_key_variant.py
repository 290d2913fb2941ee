# SPDX-License-Identifier: Apache-2.0
"""LMCache: a key says which variant it names, and a forged or malformed one can't be made.

The model name in a key carries the variant (`lmcache_transform_identity`).
This gives the three key classes a read-only property `variant` and makes their
construction, and with it decoding from the wire or from a file name, refuse a
name that looks like a mark and is none, and a salt that holds one. No field is
added: wire messages, hashes and file names of ordinary keys are those of stock.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvseal.codemods.anchor import Anchor, rewrite_source
from kvseal.codemods.codemod import Codemod
from kvseal.codemods.environment import Distribution
from kvseal.codemods.lmcache_transform_identity import LMCACHE_VERSIONS
from kvseal.codemods.syntax import after, before, first_in_body, function, line

IPC_KEY = "lmcache/v1/multiprocess/custom_types.py"
OBJECT_KEY = "lmcache/v1/distributed/api.py"

IMPORT = "from lmcache.v1 import transform_identity"
CHECK = """
# kvseal: what looks like the mark of a variant and is none is never ordinary.
transform_identity.split(self.model_name)
transform_identity.refuse_forged(self.cache_salt, "cache_salt")
"""
PROPERTY = '''

@property
def variant(self) -> str:
    """The variant of transformed KV that this key names, "" for ordinary KV (kvseal)."""
    return transform_identity.split(self.model_name)[1]
'''
CHECK_METHOD = f'''

def __post_init__(self) -> None:
    """Refuse a malformed variant (kvseal)."""
{"".join(f"    {text}" for text in CHECK.strip().splitlines(keepends=True))}
'''

IPC_KEY_ANCHORS = (
    line("", "import torch", after(IMPORT)),
    function("IPCCacheServerKey", "__post_init__", ["self"], first_in_body(CHECK)),
    function("IPCCacheServerKey", "no_worker_id_version", ["self"], before(PROPERTY)),
)
OBJECT_KEY_ANCHORS = (
    line("", "from lmcache.logging import init_logger", after(IMPORT)),
    function("ObjectKey", "__post_init__", ["self"], first_in_body(CHECK)),
    function("ObjectKey", "to_encoded_object_key", ["self"], before(PROPERTY)),
    function("EncodedObjectKey", "to_object_key", ["self"], before(CHECK_METHOD + PROPERTY)),
)


def rewrite(distribution: Distribution, sources: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return both files with the edit made (see `Codemod.rewrite`)."""
    del distribution
    edits: dict[str, tuple[Anchor, ...]] = {
        IPC_KEY: IPC_KEY_ANCHORS,
        OBJECT_KEY: OBJECT_KEY_ANCHORS,
    }
    return {
        path: rewrite_source(path, sources[path], anchors, absent=("variant",))
        for path, anchors in edits.items()
    }


CODEMOD = Codemod(
    name="lmcache_key_variant",
    summary="LMCache keys name a variant, and a forged one can't be made",
    versions={"lmcache": LMCACHE_VERSIONS},
    edited=(IPC_KEY, OBJECT_KEY),
    rewrite=rewrite,
)
