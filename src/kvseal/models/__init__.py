# SPDX-License-Identifier: Apache-2.0
"""Where a model's weights come from: a package, a hub at a fixed revision, or a directory.

`kvseal.models.resolve.resolve_model` is the door; `kvseal model` and the
drivers call it. No module here talks to an engine.
"""
