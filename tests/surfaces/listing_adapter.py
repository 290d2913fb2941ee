# SPDX-License-Identifier: Apache-2.0
"""LMCache's adapter for a folder of files, which lists what it has.

Of LMCache's own adapters only S3's lists its objects, so a server that shall be
asked for a listing loads this one as a plugin. Names are read with LMCache's
own decoder.
"""

from __future__ import annotations

from typing import Any

from lmcache.v1.distributed.api import KeyEntry, KeyListPage
from lmcache.v1.distributed.l2_adapters import fs_l2_adapter


class ListingAdapter(fs_l2_adapter.FSL2Adapter):
    """The same, and `list_l2_keys`, all on one page."""

    def __init__(self, params: dict[str, Any], **_: Any) -> None:
        super().__init__(fs_l2_adapter.FSL2AdapterConfig(base_path=params["base_path"]))

    def list_l2_keys(
        self, model_name: str | None = None, page_size: int = 500, cursor: str | None = None
    ) -> KeyListPage:
        """Return all entries, or those of exactly one model name."""
        entries = []
        for file in sorted(self._base_path.glob("*.data")):
            key = fs_l2_adapter._filename_to_object_key(file.name)
            if key is not None and model_name in (None, key.model_name):
                entries.append(KeyEntry(key.to_encoded_object_key(), file.stat().st_size))
        return KeyListPage(entries=tuple(entries), next_page_token=None)
