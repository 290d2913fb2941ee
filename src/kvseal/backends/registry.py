# SPDX-License-Identifier: Apache-2.0
"""The list of all backends: one for each L2 adapter that LMCache ships.

An adapter that is not in this list can't be chosen, and one that is can't go
missing silently: it runs, or says what it lacks. Called by everybody who wants
a backend by name.
"""

from __future__ import annotations

from kvseal.backends.aerospike import Aerospike
from kvseal.backends.backend import Backend
from kvseal.backends.bigtable import Bigtable
from kvseal.backends.dax import Dax
from kvseal.backends.fault_inject import FaultInject
from kvseal.backends.fs import Fs
from kvseal.backends.fs_native import FsNative
from kvseal.backends.hf3fs import Hf3fs
from kvseal.backends.hfbucket import HfBucket
from kvseal.backends.mock import Mock
from kvseal.backends.mooncake_store import MooncakeStore
from kvseal.backends.native_plugin import NativePlugin
from kvseal.backends.nixl_native import NixlNative
from kvseal.backends.nixl_store import NixlStore
from kvseal.backends.nixl_store_dynamic import NixlStoreDynamic
from kvseal.backends.p2p import P2P
from kvseal.backends.plugin import Plugin
from kvseal.backends.raw_block import RawBlock
from kvseal.backends.resp import Resp
from kvseal.backends.s3 import S3
from kvseal.backends.s3_rclone import S3Rclone
from kvseal.backends.sagemaker_hyperpod import SageMakerHyperPod
from kvseal.backends.valkey import Valkey
from kvseal.errors import OptionError

BACKENDS: tuple[Backend, ...] = (
    Fs(),
    FsNative(),
    Mock(),
    Dax(),
    Resp(),
    Valkey(),
    S3(),
    S3Rclone(),
    FaultInject(),
    Plugin(),
    NativePlugin(),
    NixlStore(),
    NixlStoreDynamic(),
    P2P(),
    MooncakeStore(),
    RawBlock(),
    Aerospike(),
    Bigtable(),
    Hf3fs(),
    HfBucket(),
    NixlNative(),
    SageMakerHyperPod(),
)

NAMES: tuple[str, ...] = tuple(backend.name for backend in BACKENDS)


def backend(name: str) -> Backend:
    """Return the backend called `name`.

    Raises:
        OptionError: there is none of that name.
    """
    for item in BACKENDS:
        if item.name == name:
            return item
    raise OptionError(
        "unknown backend", option="backend", value=name, expected=f"one of {', '.join(NAMES)}"
    )
