# SPDX-License-Identifier: Apache-2.0
"""LMCache's `nixl_store_dynamic` adapter on NIXL's POSIX plugin: a file an object.

In LMCache 0.5.4 the file's name has no salt: what one tenant stored is found, and
overwritten, by every other (seen). That release is refused.

Source: LMCache 0.5.4, `v1/distributed/l2_adapters/nixl_store_dynamic_l2_adapter.py`;
0.5.5 and 0.5.6, `nixl_store_agents/dynamic_nixl_store_agent.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar

from kvseal.backends.backend import Backend, KeyText, Refusal, Running, Site
from kvseal.backends.folders import running_on
from kvseal.backends.nixl_files import NIXL, parameters

_FOLDER = "v1/distributed/l2_adapters"
_LEAK = Refusal(
    "it leaves the salt out of the file's name, so that tenants share and overwrite entries",
    "use LMCache 0.5.6, or another backend",
    salted_only=True,
    leaks=True,
)


class NixlStoreDynamic(Backend):
    """Objects as files of a folder, written by NIXL."""

    name = "nixl_store_dynamic"
    adapter_type = "nixl_store_dynamic"
    lasts_over_lmcache = True
    packages = True
    confuses = ("/", "--")
    limits = "file names of at most 255 bytes"
    needs = (NIXL,)
    refusals: ClassVar[Mapping[str, Refusal]] = {"0.5.4": _LEAK}

    def key_text(self, version: str) -> KeyText:
        """The file's name."""
        if version == "0.5.4":
            file = f"{_FOLDER}/nixl_store_dynamic_l2_adapter.py"
        else:
            file = f"{_FOLDER}/nixl_store_agents/dynamic_nixl_store_agent.py"
        return KeyText(file, "_object_key_to_filename")

    @contextmanager
    def started(self, site: Site) -> Iterator[Running]:
        """Nothing to start: the folder is the store."""
        adapter = {"type": self.adapter_type, **parameters(site.folder, max_capacity_gb="16")}
        yield running_on(site.folder, adapter, python_path=tuple(site.packages))
