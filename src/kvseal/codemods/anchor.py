# SPDX-License-Identifier: Apache-2.0
"""Anchors: statements that an edit looks for, each of which must be there exactly once.

An anchor says in which class or function a statement stands and what it looks
like as syntax, not as text, so formatting and comments don't matter while a
changed meaning does. Zero matches and two matches are both a refusal: the
first means upstream changed, the second that we can't tell which one is meant.
Callers are the codemods; LibCST is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import libcst as cst
import libcst.matchers as m

from kvseal.errors import AnchorMismatchError, PatchError

Replacement = cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]


@dataclass(frozen=True)
class Anchor:
    """A statement that must stand exactly once in `scope`.

    `scope` is the dotted path of enclosing classes and functions, "" for the
    module. `sought` names the statement for the error text. `edit` returns what
    takes its place; None keeps it, for code that only has to be there.
    """

    scope: str
    sought: str
    matcher: m.BaseMatcherNode
    edit: Callable[[cst.BaseStatement], Replacement] | None = None


def statement(expression: m.BaseSmallStatementMatchType) -> m.SimpleStatementLine:
    """Return a matcher for a line that holds this one small statement."""
    return m.SimpleStatementLine(body=[expression])


def name_arguments(*names: str) -> list[m.Arg]:
    """Return matchers for plain positional arguments with these names."""
    return [m.Arg(value=m.Name(name), keyword=None, star="") for name in names]


def statements(code: str) -> list[cst.BaseStatement]:
    """Parse the statements an edit puts in."""
    return [item for item in cst.parse_module(code).body if isinstance(item, cst.BaseStatement)]


def rewrite_source(
    path: str, source: bytes, anchors: Sequence[Anchor], *, absent: Iterable[str] = ()
) -> bytes:
    """Apply `anchors` to the Python file `source`; every other byte stays as it is.

    `absent` are names that may not occur in the file yet, because the edit
    introduces them.

    Raises:
        AnchorMismatchError: with `path` and what was sought, when an anchor does
            not match exactly once or a name of `absent` is already used.
        PatchError: when the file is not Python.
    """
    try:
        module = cst.parse_module(source)
    except (cst.ParserSyntaxError, SyntaxError, UnicodeDecodeError) as error:
        raise PatchError(
            "the file to edit is not valid Python", option="file", value=path, expected=str(error)
        ) from None
    used = {node.value for node in m.findall(module, m.Name()) if isinstance(node, cst.Name)}
    for name in absent:
        if name in used:
            raise _mismatch(path, f"no use of the name {name!r}", "it is used already")
    transformer = _Transformer(anchors)
    result = module.visit(transformer)
    for anchor, count in zip(anchors, transformer.counts, strict=True):
        if count != 1:
            where = f" in {anchor.scope}" if anchor.scope else ""
            raise _mismatch(path, anchor.sought + where, f"it stands there {count} times")
    return result.bytes


def _mismatch(path: str, sought: str, found: str) -> AnchorMismatchError:
    return AnchorMismatchError(
        f"the code to edit is not as expected: {found}",
        option="file",
        value=path,
        expected=f"exactly once: {sought}" if "times" in found else sought,
        remedy="the package differs from the versions this edit was checked against; choose a "
        "supported version",
    )


class _Transformer(cst.CSTTransformer):
    def __init__(self, anchors: Sequence[Anchor]) -> None:
        super().__init__()
        self.anchors = anchors
        self.counts = [0] * len(anchors)
        self.scope: list[str] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
            self.scope.append(node.name.value)
        return True

    def on_leave(self, original_node: cst.CSTNode, updated_node: cst.CSTNode) -> object:  # type: ignore[override]
        if isinstance(original_node, (cst.FunctionDef, cst.ClassDef)):
            self.scope.pop()
        if not isinstance(updated_node, cst.BaseStatement):
            return updated_node
        scope = ".".join(self.scope)
        result: object = updated_node
        for index, anchor in enumerate(self.anchors):
            if anchor.scope == scope and m.matches(original_node, anchor.matcher):
                self.counts[index] += 1
                if anchor.edit is not None:
                    result = anchor.edit(updated_node)
        return result
