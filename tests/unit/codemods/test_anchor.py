# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import libcst as cst
import libcst.matchers as m
import pytest

from kvseal.codemods.anchor import Anchor, rewrite_source, statement, statements
from kvseal.errors import AnchorMismatchError, PatchError

STOP = Anchor(
    "E.run",
    "stop()",
    statement(m.Expr(value=m.Call(func=m.Name("stop"), args=[]))),
    lambda node: cst.FlattenSentinel([node, *statements("log()")]),
)


def test_one_match_is_edited_and_every_other_byte_kept() -> None:
    head, tail = b"class E:\r\n\tdef run( self ):\r\n\t\tstop ( )  # why\r\n", b"\r\nstop()\x0c\r\n"
    before, after = head + tail, head + b"\t\tlog()\r\n" + tail
    assert rewrite_source("a.py", before, [STOP]) == after


@pytest.mark.parametrize(
    ("source", "count"),
    [
        (b"class E:\n    def run(self):\n        pass\nstop()\n", 0),
        (b"class E:\n    def run(self):\n        stop(1)\n", 0),
        (b"class E:\n    def run(self):\n        stop()\n        stop()\n", 2),
        (
            b"class E:\n    def run(self):\n        stop()\n"
            b"    def run(self):\n        if 1:\n            stop()\n",
            2,
        ),
    ],
)
def test_zero_and_two_matches_are_refused(source: bytes, count: int) -> None:
    with pytest.raises(AnchorMismatchError) as caught:
        rewrite_source("vllm/a.py", source, [STOP])
    assert caught.value.value == "vllm/a.py"
    assert f"{count} times" in str(caught.value)
    assert "stop() in E.run" in str(caught.value)


def test_an_anchor_without_edit_must_still_be_there() -> None:
    only_there = Anchor("", "go()", statement(m.Expr(value=m.Call(func=m.Name("go")))))
    assert rewrite_source("a.py", b"go( )\n", [only_there]) == b"go( )\n"
    with pytest.raises(AnchorMismatchError, match="0 times"):
        rewrite_source("a.py", b"pass\n", [only_there])


def test_a_name_the_edit_brings_may_not_be_used_already() -> None:
    source = b"class E:\n    def run(self):\n        stop()\nflag = 1\n"
    with pytest.raises(AnchorMismatchError, match="'flag'"):
        rewrite_source("a.py", source, [STOP], absent=["flag"])
    assert rewrite_source("a.py", source, [STOP], absent=["flags"])


@pytest.mark.parametrize("source", [b"def (:\n", b"x = '\xff'\n"])
def test_what_is_not_python_is_refused(source: bytes) -> None:
    with pytest.raises(PatchError, match="not valid Python"):
        rewrite_source("a.py", source, [STOP])
