# SPDX-License-Identifier: Apache-2.0
"""LMCache's `sagemaker-hyperpod` adapter: a cache daemon of Amazon's on each node.

Not run: the daemon is part of a managed cluster and in no package index.

Source: LMCache 0.5.4 to 0.5.6,
`v1/distributed/l2_adapters/sagemaker_hyperpod_l2_adapter.py`.
"""

from __future__ import annotations

from kvseal.backends.backend import Backend, KeyText
from kvseal.backends.needs import Outside


class SageMakerHyperPod(Backend):
    """Objects in the daemon's shared memory and behind it."""

    name = "sagemaker_hyperpod"
    adapter_type = "sagemaker-hyperpod"
    own_server = "the ai-toolkit daemon"
    lasts_over_lmcache = True
    lasts_over_own = False
    needs = (Outside("the ai-toolkit daemon of SageMaker HyperPod", "run on a HyperPod cluster"),)

    def key_text(self, version: str) -> KeyText:
        """The name given to the daemon."""
        return KeyText("v1/distributed/l2_adapters/sagemaker_hyperpod_l2_adapter.py", "_wire_key")
