# SPDX-License-Identifier: Apache-2.0
"""A model that can change unseen is refused, in every workflow."""

import pytest

from kvseal.errors import OptionError
from kvseal.spec.options import WORKFLOWS

HUB = {"MODEL_SOURCE": "hub", "MODEL": "owner/model", "MODEL_REVISION": "c" * 40}
QWEN = "70d244cc86ccca08cf5af4e1e306ecf908b1ad5e"


@pytest.mark.parametrize(
    ("good", "bad", "name"),
    [
        (HUB, {**HUB, "MODEL_REVISION": ""}, "MODEL_REVISION"),
        (HUB, {**HUB, "MODEL_REVISION": "main"}, "MODEL_REVISION"),
        (HUB, {**HUB, "MODEL_REVISION": "c" * 39}, "MODEL_REVISION"),
        (HUB, {**HUB, "MODEL_REVISION": QWEN}, "MODEL_REVISION"),
        ({}, {"MODEL_REVISION": ""}, "MODEL_REVISION"),
        (
            {"MODEL_SOURCE": "path", "MODEL": "/models/m", "MODEL_REVISION": ""},
            {"MODEL_SOURCE": "path", "MODEL": "m", "MODEL_REVISION": ""},
            "MODEL",
        ),
    ],
)
def test_rule(any_with, good, bad, name):
    spec = any_with(**good)
    with pytest.raises(OptionError) as caught:
        any_with(**bad)
    assert caught.value.option == WORKFLOWS[spec.workflow].symbol(name)
    assert caught.value.expected and caught.value.remedy
