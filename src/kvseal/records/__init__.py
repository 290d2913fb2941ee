# SPDX-License-Identifier: Apache-2.0
"""What a run leaves behind: the history line by line, the result, their published schemas.

Frozen values, read and written; nothing here runs an engine or decides a verdict.
"""
