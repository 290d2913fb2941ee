# SPDX-License-Identifier: Apache-2.0
"""LMCache's `hfbucket` adapter: objects of a bucket at Hugging Face.

Not run: it is a cloud service.

Source: LMCache 0.5.4 to 0.5.6, `v1/distributed/l2_adapters/hfbucket_l2_adapter.py`,
`v1/storage_backend/connector/hfbucket_connector.py: encode_hfbucket_object_name`.
"""

from __future__ import annotations

from kvseal.backends.backend import Backend, KeyText
from kvseal.backends.needs import Outside


class HfBucket(Backend):
    """Objects of a bucket of the hub."""

    name = "hfbucket"
    adapter_type = "hfbucket"
    own_server = "the Hugging Face hub"
    lasts_over_lmcache = True
    lasts_over_own = True
    needs = (Outside("a bucket at Hugging Face and a token for it", "create them at the provider"),)

    def key_text(self, version: str) -> KeyText:
        """The object's name, before the bucket's prefix."""
        return KeyText(
            "v1/distributed/l2_adapters/hfbucket_l2_adapter.py", "_object_key_to_bucket_path"
        )
