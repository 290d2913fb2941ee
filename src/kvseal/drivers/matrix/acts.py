# SPDX-License-Identifier: Apache-2.0
"""The steps of the matrix that are no requests: what is done to a server, and what it shows.

Each returns what was seen, in the words of the table when it is as it must be,
and in others when it is not. A refusal is a KvsealError.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kvseal.canonical import sha256_hex
from kvseal.drivers.matrix.lab import Lab
from kvseal.drivers.matrix.surface import Stored
from kvseal.engines.sdk_stream import lmcache_stream
from kvseal.engines.variant_index import VariantIndex
from kvseal.errors import StoreError
from kvseal.identity.variant import MARK, RESERVED
from kvseal.workload.matrix import Act

FORGED = b'{"schema":"forged"}'
HEARD_SECONDS = 10.0
POLL_SECONDS = 0.1
NEW_TOKENS = 4
FOREIGN = "q1" + "a" * 32
FORBIDDEN = "g1" + "a" * 32


class Acts:
    """What can be done to the server and the disk of a lab."""

    def __init__(self, lab: Lab, model_name: str) -> None:
        self._lab = lab
        self._model_name = model_name
        self._streams: dict[str, Any] = {}

    def do(self, step: Act, stored: Stored, cache_salt: str) -> str:
        """Do one step and return what was seen.

        Raises:
            KvsealError: it was refused.
        """
        steps: dict[str, Callable[[Stored, str], str]] = {
            "capability": self._capability,
            "damage": self._damage,
            "end-lease": self._end_lease,
            "events": self._events,
            "files": self._files,
            "forbidden-scope": self._forbidden_scope,
            "foreign-name": self._foreign_name,
            "forge": self._forge,
            "forged-name": self._forged_name,
            "forged-salt": self._forged_salt,
            "look-up": self._look_up,
            "look-up-other-tenant": self._look_up_other_tenant,
            "lookup-log": self._lookup_log,
            "metrics": self._metrics,
            "publish": self._publish,
            "sdk-close": self._sdk_close,
            "sdk-generate": self._sdk_generate,
            "sdk-update": self._sdk_update,
            "sdk-update-again": self._sdk_update_again,
        }
        return steps[step.kind](stored, cache_salt)

    @property
    def _index(self) -> VariantIndex:
        return VariantIndex(self._lab.cache)

    # The variant index.

    def _publish(self, stored: Stored, cache_salt: str) -> str:
        self._index.publish(stored.identity.manifest, cache_salt)
        return self._look_up(stored, cache_salt)

    def _look_up(self, stored: Stored, cache_salt: str) -> str:
        found = len(self._index.find(stored.identity.manifest.recipe_digest, cache_salt))
        return f"{found} variant{'' if found == 1 else 's'}"

    def _look_up_other_tenant(self, stored: Stored, cache_salt: str) -> str:
        return self._look_up(stored, f"{cache_salt}-other")

    def _forge(self, _: Stored, cache_salt: str) -> str:
        """Write something else over every manifest that the index has of this tenant."""
        files = list((self._lab.index / sha256_hex(cache_salt.encode())).glob("**/*.json"))
        for file in files:
            file.write_bytes(FORGED)
        return "forged" if files else "no file to forge"

    # Leases, files, and what a server says of itself.

    def _end_lease(self, stored: Stored, _: str) -> str:
        return "deleted" if self._lab.cache.end_lease(stored.variant) else "nothing deleted"

    def _files(self, stored: Stored, _: str) -> str:
        return "present" if self._files_of(stored) else "absent"

    def _damage(self, stored: Stored, _: str) -> str:
        """Change one bit in the middle of every file of a variant."""
        files = self._files_of(stored)
        for file in files:
            with file.open("r+b") as opened:
                middle = opened.seek(0, os.SEEK_END) // 2
                opened.seek(middle)
                (byte,) = opened.read(1)
                opened.seek(middle)
                opened.write(bytes([byte ^ 1]))
        return "damaged" if files else "no file to damage"

    def _files_of(self, stored: Stored) -> list[Path]:
        mark = f"{MARK}{stored.variant}@"
        return [file for file in self._lab.disk.glob("**/*") if mark in file.name]

    def _capability(self, *_: object) -> str:
        known = self._lab.cache.capabilities()
        return next((name for name in known if name == "transform_identity_v1"), f"{known}")

    def _metrics(self, *_: object) -> str:
        return "a mark" if RESERVED in self._lab.cache.metrics_text() else "no mark"

    def _lookup_log(self, stored: Stored, _: str) -> str:
        for _attempt in _until(HEARD_SECONDS):
            text = "".join(f.read_text("utf-8") for f in self._lab.lookup_log.glob("*.jsonl"))
            lines = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
            mine = [line for line in lines if line.get("variant") == stored.variant]
            if RESERVED in text:
                return "a mark"
            if mine:
                return "model and variant apart"
        return "no line of this variant"

    def _events(self, stored: Stored, cache_salt: str) -> str:
        """What a coordinator was told: chunks of the variant, tokens of ordinary ones alone."""
        seen = "nothing was told"
        for _attempt in _until(HEARD_SECONDS):
            entries = self._lab.heard(cache_salt)
            names = [str(entry["key"]["model_name"]) for entry in entries]
            mine = [e for e, n in zip(entries, names, strict=True) if n.endswith(stored.variant)]
            plain = [e for e, n in zip(entries, names, strict=True) if RESERVED not in n]
            if any(MARK + "r" in name for name in names):
                return "a request-local entry"
            if any(entry.get("token_ids") for entry in mine):
                return "tokens of a variant"
            descendants = len(mine) * self._lab.cache.chunk_size_tokens() > len(
                stored.made.token_ids
            )
            if descendants and any(entry.get("token_ids") for entry in plain):
                return "tokens of ordinary KV alone"
            seen = f"{len(mine)} entries of the variant, {len(plain)} ordinary ones"
        return seen

    # Keys that nobody may send.

    def _forged_name(self, _: Stored, cache_salt: str) -> str:
        return self._delete(f"{self._model_name}{MARK}q1short", cache_salt)

    def _forged_salt(self, stored: Stored, _: str) -> str:
        return self._delete(self._model_name, f"{MARK}{stored.variant}")

    def _foreign_name(self, _: Stored, cache_salt: str) -> str:
        return self._delete(f"{self._model_name}{MARK}{FOREIGN}", cache_salt)

    def _delete(self, model_name: str, cache_salt: str) -> str:
        key = {
            "chunk_hash_hex": "00" * 32,
            "model_name": model_name,
            "kv_rank": 0x01000100,
            "object_group_id": 0,
            "cache_salt": cache_salt,
        }
        return f"{self._lab.cache.delete([key])} deleted"

    def _forbidden_scope(self, stored: Stored, cache_salt: str) -> str:
        body = {
            "model_name": f"{self._model_name}{MARK}{FORBIDDEN}",
            "world_size": 1,
            "token_ids": list(stored.made.token_ids),
            "cache_salt": cache_salt,
        }
        response = self._lab.cache.answer("POST", "/cache/prefetches", json=body)
        if response.ok:
            return f"taken with status {response.status_code}"
        raise StoreError("the server does not take it", value=response.text[:200])

    # LMCache's own SDK, with a modifier that returns a tuple.

    def _sdk_update(self, stored: Stored, cache_salt: str) -> str:
        asked: list[dict[str, Any]] = []

        def post(
            prompt: list[int],
            _: dict[str, Any],
            salt: str,
            kv_transfer_params: dict[str, Any] | None = None,
        ) -> Iterator[Any]:
            named = kv_transfer_params or {}
            completion = self._lab.client.complete(
                list(prompt),
                max_tokens=NEW_TOKENS,
                cache_salt=salt,
                ignore_eos=True,
                variant=str(named.get("lmcache.variant", "")),
                variant_tokens=int(named.get("lmcache.variant_tokens", 0)),
            )
            asked.append({**named, "loaded": completion.hit_tokens})
            return iter(())

        stream = lmcache_stream(self._lab.sdk, post, stored.made.source_token_ids, cache_salt)
        stream.asked = asked
        self._streams[cache_salt] = stream
        self._update(stored, cache_salt)
        return "request-local" if getattr(stream, "variant", "").startswith("r1") else "ordinary"

    def _sdk_generate(self, stored: Stored, cache_salt: str) -> str:
        stream = self._streams[cache_salt]
        stream.generate({"max_tokens": NEW_TOKENS}, [stored.made.token_ids[0]])
        seen = stream.asked[-1]
        tokens = len(stored.made.token_ids)
        whole = seen.get("lmcache.variant_tokens") == seen["loaded"] == tokens
        if seen.get("lmcache.variant") == getattr(stream, "variant", None) and whole:
            return "its own variant, all of it loaded"
        return json.dumps(seen)

    def _sdk_update_again(self, stored: Stored, cache_salt: str) -> str:
        variant = getattr(self._streams[cache_salt], "variant", "")
        self._update(stored, cache_salt, **({"variant": variant} if variant else {}))
        return "taken"

    def _sdk_close(self, _: Stored, cache_salt: str) -> str:
        stream = self._streams.pop(cache_salt)
        if not hasattr(stream, "close"):
            return "nothing to close"
        stream.close()
        return "closed"

    def _update(self, stored: Stored, cache_salt: str, **named: str) -> None:
        from lmcache.sdk.context import LMCacheSDKCacheKind, LMCacheSDKError
        from lmcache.sdk.request import LMCacheRequestStreamError

        packed = self._lab.sdk.layout.pack(stored.made.keys, stored.made.values)
        try:
            self._streams[cache_salt].update(
                LMCacheSDKCacheKind.KV, packed, list(stored.made.token_ids), **named
            )
        except (LMCacheSDKError, LMCacheRequestStreamError) as error:
            raise StoreError(f"LMCache's SDK refused a store: {error}") from error


def _until(seconds: float) -> Iterator[None]:
    """Try again and again for so long, the last time at the end."""
    deadline = time.monotonic() + seconds
    while True:
        late = time.monotonic() > deadline
        yield
        if late:
            return
        time.sleep(POLL_SECONDS)
