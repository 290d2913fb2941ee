# SPDX-License-Identifier: Apache-2.0
"""Anchors written as code: what is sought and what takes its place, both as Python text.

Sought code is compared as syntax tree, so layout and comments of the upstream
file don't matter, and every name, argument and default does. Callers are the
codemods whose edits are whole statements; LibCST is needed.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

import libcst as cst
import libcst.matchers as m

from kvseal.codemods.anchor import Anchor, Replacement

Edit = Callable[[cst.BaseStatement], Replacement]


def line(scope: str, sought: str, edit: Edit | None = None) -> Anchor:
    """Return the anchor of a simple statement that reads `sought`."""
    wanted = ast.dump(ast.parse(sought))
    matcher = m.SimpleStatementLine(body=m.MatchIfTrue(lambda body: _dump_line(body) == wanted))
    return Anchor(scope, " ".join(sought.split()), matcher, edit)


def branch(scope: str, test: str, edit: Edit | None = None) -> Anchor:
    """Return the anchor of an `if` statement with the condition `test`."""
    wanted = ast.dump(ast.parse(test, mode="eval"))
    matcher = m.If(test=m.MatchIfTrue(lambda node: _dump_expression(node) == wanted))
    return Anchor(scope, f"if {test}", matcher, edit)


def loop(scope: str, target: str, over: str, edit: Edit | None = None) -> Anchor:
    """Return the anchor of the statement `for <target> in <over>`."""
    wanted = [ast.dump(ast.parse(text, mode="eval")) for text in (target, over)]
    matcher = m.For(
        target=m.MatchIfTrue(lambda node: _dump_expression(node) == wanted[0]),
        iter=m.MatchIfTrue(lambda node: _dump_expression(node) == wanted[1]),
    )
    return Anchor(scope, f"for {target} in {over}", matcher, edit)


def function(
    scope: str,
    name: str,
    parameters: Sequence[str],
    edit: Edit | None = None,
    *,
    calls: Sequence[str] = (),
) -> Anchor:
    """Return the anchor of the function `name` whose parameters are called `parameters`.

    `calls` are names that its body calls, each as often as it is given.
    """
    wanted = list(parameters)

    def has_calls(body: cst.CSTNode) -> bool:
        found = [_called(cst.ensure_type(node, cst.Call)) for node in m.findall(body, m.Call())]
        return all(found.count(name) == calls.count(name) for name in calls)

    matcher = m.FunctionDef(
        name=m.Name(name),
        params=m.MatchIfTrue(lambda node: _names(node) == wanted),
        body=m.MatchIfTrue(has_calls),
    )
    return Anchor(scope, f"def {name}({', '.join(wanted)})", matcher, edit)


def instead(code: str) -> Edit:
    """Return the edit that puts `code` in place of the statement; comments above it stay."""

    def edit(node: cst.BaseStatement) -> Replacement:
        first, *rest = _parsed(code)
        above = _above(node)
        return cst.FlattenSentinel([_with_above(first, [*above, *_above(first)]), *rest])

    return edit


def after(code: str) -> Edit:
    """Return the edit that puts `code` behind the statement."""
    return lambda node: cst.FlattenSentinel([node, *_parsed(code)])


def before(code: str) -> Edit:
    """Return the edit that puts `code` in front of the statement and the comments above it."""
    return lambda node: cst.FlattenSentinel([*_parsed(code), node])


def first_in_body(code: str, parameter: str = "") -> Edit:
    """Return the edit of a function, class or loop: `code` first in it, behind its docstring.

    `parameter`, such as `variant: str = ""`, becomes the last of a function's.
    """

    def edit(node: cst.BaseStatement) -> Replacement:
        if isinstance(node, cst.FunctionDef) and parameter:
            node = node.with_changes(params=_with_parameter(node.params, parameter))
        assert isinstance(node, (cst.FunctionDef, cst.ClassDef, cst.For))  # noqa: S101 - as anchored
        body = list(node.body.body)
        documented = len(body) > 0 and m.matches(
            body[0], m.SimpleStatementLine(body=[m.Expr(m.SimpleString() | m.ConcatenatedString())])
        )
        place = 1 if documented else 0
        body[place:place] = _parsed(code) if code else []
        return node.with_changes(body=node.body.with_changes(body=body))

    return edit


def with_parameter(parameter: str) -> Edit:
    """Return the edit of a function that adds `parameter`, such as `variant: str = ""`, last."""
    return first_in_body("", parameter)


def with_argument(function_name: str, argument: str) -> Edit:
    """Return the edit that adds the keyword `argument` to the statement's call of that name."""

    class Add(cst.CSTTransformer):
        def on_leave(self, original_node: cst.CSTNode, updated_node: cst.CSTNode) -> cst.CSTNode:  # type: ignore[override]
            if not isinstance(updated_node, cst.Call) or _called(updated_node) != function_name:
                return updated_node
            call = cst.ensure_type(cst.parse_expression(f"f({argument})"), cst.Call)
            added, given = call.args[0], list(updated_node.args)
            if given:
                last = given[-1]
                added = added.with_changes(
                    comma=last.comma, whitespace_after_arg=last.whitespace_after_arg
                )
                comma = _comma(given[-2].comma) if len(given) > 1 else _COMMA
                given[-1] = last.with_changes(
                    comma=comma, whitespace_after_arg=cst.SimpleWhitespace("")
                )
            return updated_node.with_changes(args=[*given, added])

    def edit(node: cst.BaseStatement) -> Replacement:
        result = node.visit(Add())
        assert isinstance(result, cst.BaseStatement)  # noqa: S101 - Add changes calls only
        return result

    return edit


def then(*edits: Edit) -> Edit:
    """Return the edit that makes `edits` one after the other, each of the one statement."""

    def edit(node: cst.BaseStatement) -> Replacement:
        result: Replacement = node
        for step in edits:
            assert isinstance(result, cst.BaseStatement)  # noqa: S101 - only the last may add some
            result = step(result)
        return result

    return edit


def swapping(old: str, new: str) -> Edit:
    """Return the edit that puts the expression `new` wherever the statement holds `old`."""
    wanted = ast.dump(ast.parse(old, mode="eval"))

    class Swap(cst.CSTTransformer):
        def on_leave(self, original_node: cst.CSTNode, updated_node: cst.CSTNode) -> cst.CSTNode:  # type: ignore[override]
            if isinstance(original_node, cst.Arg):
                return updated_node.with_changes(keyword=original_node.keyword)
            if isinstance(original_node, cst.Attribute):
                updated_node = updated_node.with_changes(attr=original_node.attr)
            if not isinstance(original_node, cst.BaseExpression):
                return updated_node
            same = _dump_expression(original_node) == wanted
            return cst.parse_expression(new) if same else updated_node

    def edit(node: cst.BaseStatement) -> Replacement:
        result = node.visit(Swap())
        assert isinstance(result, cst.BaseStatement)  # noqa: S101 - Swap changes expressions only
        return result

    return edit


def calling(
    scope: str,
    function_name: str,
    sought: str,
    edit: Edit | None = None,
    *,
    arguments: Sequence[str] = (),
) -> Anchor:
    """Return the anchor of the simple statement that calls `function_name`.

    `sought` names it in an error; `arguments` are keyword arguments, such as
    `a=b`, that the call must hold.
    """
    wanted = [_dump_argument(f"f({argument})") for argument in arguments]

    def fits(call: cst.CSTNode) -> bool:
        given = [_dump_argument(cst.Module([]).code_for_node(call), i) for i in _positions(call)]
        return all(one in given for one in wanted)

    def calls(body: Sequence[cst.BaseSmallStatement]) -> bool:
        found = [node for part in body for node in m.findall(part, m.Call())]
        named = [n for n in found if _called(cst.ensure_type(n, cst.Call)) == function_name]
        return len(named) == 1 and fits(named[0])

    matcher = m.SimpleStatementLine(body=m.MatchIfTrue(calls))
    return Anchor(scope, sought, matcher, edit)


def _positions(call: cst.CSTNode) -> range:
    arguments = cst.ensure_type(call, cst.Call).args
    return range(sum(argument.keyword is not None for argument in arguments))


def _dump_argument(call: str, index: int = 0) -> str:
    tree = ast.parse(f"({call}\n)", mode="eval").body
    return ast.dump(tree.keywords[index]) if isinstance(tree, ast.Call) else ""


_COMMA = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))


def _comma(given: cst.Comma | cst.MaybeSentinel) -> cst.Comma:
    """Return a comma with the line break of `given` and without its comment."""
    if not isinstance(given, cst.Comma):
        return _COMMA
    space = given.whitespace_after
    if isinstance(space, cst.ParenthesizedWhitespace):
        first = space.first_line.with_changes(comment=None, whitespace=cst.SimpleWhitespace(""))
        space = space.with_changes(first_line=first, empty_lines=())
    return given.with_changes(whitespace_after=space)


def _called(node: cst.Call) -> str:
    name = node.func.attr if isinstance(node.func, cst.Attribute) else node.func
    return name.value if isinstance(name, cst.Name) else ""


def _with_parameter(parameters: cst.Parameters, added: str) -> cst.Parameters:
    head = cst.ensure_type(cst.parse_statement(f"def f({added}): pass"), cst.FunctionDef)
    new, given = head.params.params[0], list(parameters.params)
    new = new.with_changes(comma=given[-1].comma)
    given[-1] = given[-1].with_changes(comma=_comma(given[-2].comma) if given[1:] else _COMMA)
    return parameters.with_changes(params=[*given, new])


def _names(parameters: cst.Parameters) -> list[str]:
    every = [*parameters.posonly_params, *parameters.params, *parameters.kwonly_params]
    return [parameter.name.value for parameter in every]


def _parsed(code: str) -> list[cst.BaseStatement]:
    """Parse `code`, with the comments and blank lines above its first statement.

    A line break at the very start, behind the opening quotes, does not count.
    """
    module = cst.ensure_type(
        cst.parse_module(code.removeprefix("\n")).visit(_BlankLines()), cst.Module
    )
    first, *rest = [node for node in module.body if isinstance(node, cst.BaseStatement)]
    return [_with_above(first, [*module.header, *_above(first)]), *rest]


class _BlankLines(cst.CSTTransformer):
    """Keeps blank lines blank where the code is indented."""

    def on_leave(self, original_node: cst.CSTNode, updated_node: cst.CSTNode) -> cst.CSTNode:  # type: ignore[override]
        if isinstance(updated_node, cst.EmptyLine) and updated_node.comment is None:
            return updated_node.with_changes(indent=False)
        return updated_node


def _dump_line(body: Sequence[cst.BaseSmallStatement]) -> str:
    return ast.dump(ast.parse(cst.Module([cst.SimpleStatementLine(body)]).code))


def _dump_expression(node: cst.BaseExpression) -> str:
    # In parentheses: a condition may run over several lines.
    return ast.dump(ast.parse(f"({cst.Module([]).code_for_node(node)}\n)", mode="eval"))


def _above(node: cst.BaseStatement) -> Sequence[cst.EmptyLine]:
    lines: Sequence[cst.EmptyLine] = getattr(node, "leading_lines", ())
    return lines


def _with_above(node: cst.BaseStatement, lines: Sequence[cst.EmptyLine]) -> cst.BaseStatement:
    return node.with_changes(leading_lines=lines)
