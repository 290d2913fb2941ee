# SPDX-License-Identifier: Apache-2.0
"""LMCache's `plugin` adapter with a plugin of our own, which keeps files.

A plugin makes what it likes of the ObjectKey that LMCache hands it. The one here
stands for all that use the whole key: its text is the JSON of LMCache's
EncodedObjectKey. What another plugin does with a key has to be read in it.

Source: LMCache 0.5.4 to 0.5.6, `v1/distributed/l2_adapters/plugin_l2_adapter.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kvseal.backends.added import copied
from kvseal.backends.backend import Backend, KeyText, Running, Site
from kvseal.backends.folders import running_on

MODULE = "kvseal_l2_plugins"


class Plugin(Backend):
    """A Python class that LMCache loads by name from a folder on its PYTHONPATH."""

    name = "plugin"
    adapter_type = "plugin"
    lasts_over_lmcache = True
    limits = "a plugin is a double for tests; another one's keys have to be read in it"

    def key_text(self, version: str) -> KeyText:
        """LMCache's own JSON form of a key, which the plugin takes."""
        return KeyText("v1/distributed/api.py", "ObjectKey.to_encoded_object_key")

    @contextmanager
    def started(self, site: Site) -> Iterator[Running]:
        """Write the plugin where LMCache will find it."""
        yield running_double(self.adapter_type, "FilesAdapter", site)


def running_double(adapter_type: str, class_name: str, site: Site) -> Running:
    """Write the module of both doubles beside the site's folder; return what is up with a class."""
    path = copied(MODULE, site.folder.with_name(f"{site.folder.name}-plugin"))
    adapter = {
        "type": adapter_type,
        "module_path": MODULE,
        "class_name": class_name,
        "adapter_params": {"folder": str(site.folder)},
    }
    return running_on(site.folder, adapter, python_path=(path.parent,))
