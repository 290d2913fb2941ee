# SPDX-License-Identifier: Apache-2.0
"""What each code of an audit means, and what to do about it. Called by kvseal.audit.text."""

from __future__ import annotations

from typing import NamedTuple

_LOOK = "find out who wrote it; delete it when nobody needs it"
_DELETE = "delete it: no request is served it"
_FORGED = "keep a copy as evidence, find who can write to this store, then delete it"
_INDEX = "publish the manifest again, or delete the file"


class Words(NamedTuple):
    """What a code means, and the remedy."""

    meaning: str
    remedy: str


WORDS = {
    "forged.mark": Words("a name that resembles the mark of a variant and is none", _FORGED),
    "forged.variant": Words(
        "a mark of a variant with an unknown scope letter, version or digits", _FORGED
    ),
    "forged.salt": Words("a cache salt that holds the mark of a variant", _FORGED),
    "forged.request-local": Words(
        "a request-local variant, which no server lets out of L1",
        _FORGED + "; check that every server carries the codemod lmcache_transform_identity",
    ),
    "forged.letter": Words("the variant index has its manifest with another scope letter", _FORGED),
    "forged.sealed-ordinary": Words(
        "bytes that were sealed for a variant, under an ordinary name", _FORGED + " at once"
    ),
    "forged.index-request-local": Words(
        "the manifest of a request-local variant, which no server lists", _FORGED
    ),
    "damaged.key-text": Words(
        "like a key of LMCache's, and not as LMCache writes one: truncated or altered", _DELETE
    ),
    "damaged.empty": Words("an entry without any bytes", _DELETE),
    "damaged.type": Words("an entry's name on something that holds no bytes", _LOOK),
    "damaged.payload": Words(
        "bytes that were not sealed under this name: changed, cut off or another entry's",
        "delete it, and check the disks; a server with seals does not serve it",
    ),
    "damaged.index-digest": Words("a manifest whose bytes have another digest", _INDEX),
    "damaged.index-manifest": Words("no transform manifest in canonical form", _INDEX),
    "damaged.index-recipe": Words("a manifest in the folder of another recipe", _INDEX),
    "damaged.index-crowded": Words(
        "a recipe with more variants than a server accepts", "delete those without entries"
    ),
    "suspicious.unknown": Words("nothing that LMCache's adapters write", _LOOK),
    "suspicious.temporary": Words(
        "half written, by a server that is writing now or was killed",
        "delete it when no server is writing",
    ),
    "suspicious.type": Words("a link, device, or value that is no text", _LOOK),
    "suspicious.size": Words(
        "sizes differ where one model, variant and object group has one size",
        "a change of chunk size, dtype or serializer explains it; truncation too",
    ),
    "suspicious.same-tokens": Words(
        "an ordinary entry for the same tokens as a variant's, of the same tenant",
        "a prompt of these tokens explains it; so does KV stored without its variant",
    ),
    "suspicious.unsealed": Words(
        "a variant without a seal",
        "delete it if servers seal: they don't serve it; else switch seals on",
    ),
    "suspicious.index-file": Words("a file in the variant index that is no entry", _LOOK),
    "orphaned.no-manifest": Words(
        "a variant whose manifest is not in the variant index",
        "name the right index; else delete it: nobody finds it by its recipe",
    ),
    "orphaned.other-tenant": Words(
        "a variant whose manifest is listed for another tenant only",
        "publish the manifest for this tenant too, or delete the entry",
    ),
}
