# SPDX-License-Identifier: Apache-2.0
"""kvseal: proves that a reused KV cache is the KV cache that was asked for.

Importing this package loads neither torch nor an engine and changes nothing
in the process; tests/unit/test_layers.py holds it to that.
"""

__version__ = "0.1.0"
