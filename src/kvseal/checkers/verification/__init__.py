# SPDX-License-Identifier: Apache-2.0
"""Judgement of a KV-reuse verification from its history alone.

The worry: an answer made from reused KV that differs in one token from a true
one looks just as fluent, and an answer that was silently recomputed looks like
reuse that works. So every answer is compared, token by token, with a control
that has no cache, and counts as reuse only with exactly the hits that had to
happen. `document.document` makes the report, and nothing here opens a file but
the loader of acceptance fixtures.
"""
