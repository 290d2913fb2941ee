# SPDX-License-Identifier: Apache-2.0
"""The negative matrix, run: who made KV, who asks for it, and what they get, backend by backend."""
