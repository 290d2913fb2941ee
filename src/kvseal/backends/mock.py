# SPDX-License-Identifier: Apache-2.0
"""LMCache's `mock` adapter: objects in the memory of LMCache's own process.

Source: LMCache 0.5.4 to 0.5.6, `v1/distributed/l2_adapters/mock_l2_adapter.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kvseal.backends.backend import IN_MEMORY, Backend, KeyText, Running, Site


class Mock(Backend):
    """A dictionary with the ObjectKey itself as its key."""

    name = "mock"
    adapter_type = "mock"
    lasts_over_lmcache = False
    limits = "what does not fit is dropped, and its store still reported as done"

    def key_text(self, version: str) -> KeyText:
        """No text: keys are compared as objects."""
        return IN_MEMORY

    @contextmanager
    def started(self, site: Site) -> Iterator[Running]:
        """Nothing to start: it lives in LMCache's process."""
        yield Running(({"type": self.adapter_type, "max_size_gb": 2, "mock_bandwidth_gb": 10},))
