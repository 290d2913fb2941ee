# SPDX-License-Identifier: Apache-2.0
"""What an engine and a cache server have to count, on the figures seen of real ones."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvseal.checkers.verification.hits import expected_hits, expected_server_hits

build = SimpleNamespace(**runpy.run_path(str(Path(__file__).parent / "builder.py")))


@pytest.mark.parametrize(
    ("tokens", "lmcache", "server", "native"),
    [(511, 256, 256, 496), (512, 511, 512, 496), (513, 512, 512, 512), (1500, 1280, 1280, 1488),
     (255, 0, 0, 240), (256, 255, 256, 240)],
)  # fmt: skip
def test_a_reusing_answer(tokens, lmcache, server, native):
    probe = build.probe(tokens, 1)
    assert expected_hits("lmcache", probe, "reuse", build.GEOMETRY) == lmcache
    assert expected_hits("mp", probe, "reuse", build.GEOMETRY) == lmcache
    assert expected_server_hits(lmcache, build.GEOMETRY) == server
    assert expected_hits("native", probe, "reuse", build.GEOMETRY) == native


def test_a_cold_answer_finds_only_what_its_partner_left():
    alone, second = build.probe(1500, 1), build.probe(1500, 1, cold_prefix_tokens=600)
    for target, common in (("native", 592), ("lmcache", 512), ("mp", 512)):
        assert expected_hits(target, alone, "cold", build.GEOMETRY) == 0
        assert expected_hits(target, second, "cold", build.GEOMETRY) == common
