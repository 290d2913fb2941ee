# SPDX-License-Identifier: Apache-2.0
"""Transforms that shorten a KV cache, and the rotary geometry they must respect.

Nothing here reads files, starts processes, looks at a clock or knows an
engine: canonical tensors in, canonical tensors out. Canonical means
`[layers, tokens, heads, head_size]`, keys after RoPE, as `kvseal.layouts`
makes them. Callers are the drivers; importing this package alone loads no
torch, its modules do.
"""
