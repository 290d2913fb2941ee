# SPDX-License-Identifier: Apache-2.0
"""LMCache's `bigtable` adapter: rows of a Google Cloud Bigtable table.

Not run: it is a cloud service. The row key is made from a template that the
configuration may replace; the default one has every field of the key, and one
without `{model}` or `{salt}` would mix variants or tenants.

Source: LMCache 0.5.4 to 0.5.6, `v1/distributed/l2_adapters/bigtable_l2_adapter.py`,
`bigtable_key_encoder.py`.
"""

from __future__ import annotations

from kvseal.backends.backend import Backend, KeyText
from kvseal.backends.needs import Module, Outside


class Bigtable(Backend):
    """Objects as rows, cut up where they are large."""

    name = "bigtable"
    adapter_type = "bigtable"
    own_server = "Google Cloud Bigtable"
    lasts_over_lmcache = True
    lasts_over_own = True
    limits = "a row key template must keep {model}, {rank}, {group}, {hash} and {salt}"
    needs = (
        Module("google.cloud.bigtable", "install google-cloud-bigtable where LMCache runs"),
        Outside("a Bigtable instance and credentials for it", "create them at the provider"),
    )

    def key_text(self, version: str) -> KeyText:
        """The row key, of the default template."""
        return KeyText(
            "v1/distributed/l2_adapters/bigtable_key_encoder.py",
            "BigtableL2KeyEncoder.encode_row_key",
        )
