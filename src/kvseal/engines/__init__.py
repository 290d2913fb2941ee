# SPDX-License-Identifier: Apache-2.0
"""One door each to vLLM, to LMCache's server and to LMCache's SDK.

Only engines/vllm.py knows vLLM's flags, only engines/lmcache.py those of
LMCache's server. Everything runs under the engine environment's Python.
"""
