# SPDX-License-Identifier: Apache-2.0
"""Engine memory to canonical keys and values and back, one layout a file.

Values change place and nothing else: nothing here computes on a value,
reads a file or talks to an engine.
"""

from kvseal.layouts.base import KVGeometry, KVLayout
from kvseal.layouts.queries import QueryLayout
from kvseal.layouts.registry import cpu_candidates, layout_for

__all__ = ["KVGeometry", "KVLayout", "QueryLayout", "cpu_candidates", "layout_for"]
