# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from kvseal.codemods.anchor import Anchor, rewrite_source
from kvseal.codemods.syntax import (
    after,
    before,
    branch,
    calling,
    first_in_body,
    function,
    instead,
    line,
    loop,
    swapping,
    then,
    with_argument,
    with_parameter,
)
from kvseal.errors import AnchorMismatchError

SOURCE = b'''\
import os


class Store:
    def put(
        self,
        key: str,
    ) -> bool:
        """Put it."""

        # The name.
        name = make(
            key,  # as given
            1,
        )
        if (
            not name
        ):
            return False
        for a, b in pairs(name):
            use(a, b)
        return write(name, key=key)
'''


def rewritten(*anchors: Anchor) -> str:
    return rewrite_source("store.py", SOURCE, anchors).decode()


def test_layout_and_comments_of_the_sought_code_do_not_matter() -> None:
    found = (
        line("", "import os"),
        line("Store.put", "name=make(key, 1)"),
        branch("Store.put", "not name"),
        loop("Store.put", "a, b", "pairs(name)"),
        function("Store", "put", ["self", "key"], calls=("make", "write")),
        calling("Store.put", "write", "return write(…)", arguments=("key=key",)),
    )
    assert rewritten(*found) == SOURCE.decode()


@pytest.mark.parametrize(
    "anchor",
    [
        line("Store.put", "name = make(key, 2)"),
        line("Store", "name = make(key, 1)"),
        branch("Store.put", "name"),
        loop("Store.put", "b, a", "pairs(name)"),
        loop("Store.put", "a, b", "pairs(key)"),
        function("Store", "put", ["self"]),
        function("Store", "put", ["self", "key"], calls=("make", "make")),
        function("Store", "put", ["self", "key"], calls=("read",)),
        calling("Store.put", "write", "write", arguments=("key=name",)),
        calling("Store.put", "read", "read"),
    ],
)
def test_other_code_is_refused(anchor: Anchor) -> None:
    with pytest.raises(AnchorMismatchError, match="0 times"):
        rewritten(anchor)


def test_code_goes_before_after_and_instead() -> None:
    text = rewritten(
        line("Store.put", "name = make(key, 1)", before("a = 1\n")),
        branch("Store.put", "not name", after("\n\n# Then.\nb = 2\n")),
        loop("Store.put", "a, b", "pairs(name)", instead("# None.\nc = 3\n")),
    )
    assert "        a = 1\n\n        # The name.\n        name = make(" in text
    assert "            return False\n\n        # Then.\n        b = 2\n        # None.\n" in text
    assert "        # None.\n        c = 3\n        return write" in text


def test_parameters_and_arguments_go_last_in_the_layout_of_the_others() -> None:
    text = rewritten(
        function(
            "Store",
            "put",
            ["self", "key"],
            then(with_parameter("x: int = 0"), first_in_body("go(x)\n", "y: str = ''")),
        ),
        calling("Store.put", "make", "make", with_argument("make", "x=x")),
        calling("Store.put", "write", "write", with_argument("write", "x=x")),
    )
    assert "        key: str,\n        x: int = 0,\n        y: str = '',\n    ) -> bool:" in text
    assert '        """Put it."""\n        go(x)\n' in text
    assert "            1,\n            x=x,\n        )" in text
    assert "return write(name, key=key, x=x)" in text


def test_an_expression_is_swapped_wherever_it_stands() -> None:
    text = rewritten(calling("Store.put", "write", "write", swapping("key", "other(key)")))
    assert "return write(name, key=other(key))" in text


def test_blank_lines_of_added_code_stay_blank() -> None:
    text = rewritten(
        function("Store", "put", ["self", "key"], after("\n\ndef get(self):\n    a\n\n    b\n"))
    )
    assert text.endswith("\n\n    def get(self):\n        a\n\n        b\n")
