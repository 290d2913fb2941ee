# SPDX-License-Identifier: Apache-2.0
"""The text of a key in every adapter, read from LMCache's own source and executed.

Only the functions that make the text are run, cut out of the module: adapters
whose extension, client or cloud is missing are tried like all others. For each
LMCache as published: a variant stands in the text, and no two identities have
one text. For the LMCache of this environment, which is edited: ordinary keys have
the text that stock gives them.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvseal.backends import registry
from kvseal.backends.backend import IN_MEMORY, VERSIONS, Backend

TREES = {
    Path(folder).name: Path(folder)
    for folder in os.environ.get("KVSEAL_TEST_LMCACHE_TREES", "").split(os.pathsep)
    if folder
}
SELF = SimpleNamespace(
    _config=SimpleNamespace(key_prefix="prefix"),
    template="{hash_prefix}@{model}@{rank}@{group}@{hash}@{salt}",
    layer_group_size=0,
)
"""What the methods among the functions read of their object: configuration alone."""
STANDARD = {"hashlib", "os", "urllib.parse", "json", "re"}
MAKES_TEXT = re.compile(r"^_?[a-z_]*(key|object_name)")
BUCKET = SimpleNamespace(object_prefix="prefix")


@dataclasses.dataclass(frozen=True)
class Key:
    """The fields of LMCache's ObjectKey, which is all that the functions use."""

    chunk_hash: bytes
    model_name: str
    kv_rank: int
    object_group_id: int
    cache_salt: str


def functions_of(tree: Path, file: str) -> dict[str, Any]:
    """Return a namespace with the functions, methods and constants of a module, imports aside.

    Imports of the standard library are made, functions imported from LMCache are
    read the same way, classes give their methods and nothing else.
    """
    path = tree / "lmcache" / file
    module = ast.parse(path.read_text(encoding="utf-8"))
    body: list[ast.stmt] = [ast.parse("from __future__ import annotations").body[0]]
    space: dict[str, Any] = {
        "EncodedObjectKey": lambda **fields: json.dumps(fields, sort_keys=True)
    }
    for node in module.body:
        if isinstance(node, ast.Import):
            body += [node] if all(alias.name in STANDARD for alias in node.names) else []
        elif isinstance(node, ast.ImportFrom) and node.module in STANDARD:
            body.append(node)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lmcache."):
            assert node.module is not None
            other = tree / f"{node.module.replace('.', '/')}.py"
            wanted = {name.name for name in node.names if MAKES_TEXT.search(name.name)}
            if wanted and other.is_file() and other != path:
                found = functions_of(tree, str(other.relative_to(tree / "lmcache")))
                space |= {name: found[name] for name in wanted if name in found}
        elif isinstance(node, ast.FunctionDef) and not node.decorator_list:
            body.append(without_defaults(node))
        elif isinstance(node, ast.ClassDef):
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and not method.decorator_list:
                    method.name = f"{node.name}__{method.name}"
                    body.append(without_defaults(method))
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            body.append(node)
    made = ast.fix_missing_locations(ast.Module(body=body, type_ignores=[]))
    exec(compile(made, str(path), "exec"), space)  # noqa: S102  (LMCache's own source)
    return space


def without_defaults(function: ast.FunctionDef) -> ast.FunctionDef:
    """Defaults are computed where a function is defined, from names that are not read here."""
    function.args.defaults = [ast.Constant(None) for _ in function.args.defaults]
    function.args.kw_defaults = [item and ast.Constant(None) for item in function.args.kw_defaults]
    return function


def text_of(backend: Backend, tree: Path, version: str) -> Callable[[Key], str]:
    """Return the function that makes the text, with its object and configuration filled in."""
    where = backend.key_text(version)
    functions = functions_of(tree, where.file)
    name = where.symbol.replace(".", "__")
    function = functions[name]
    if where.symbol.startswith("ObjectKey."):
        return lambda key: str(function(key))
    if "." in where.symbol:
        return lambda key: as_text(function(SELF, key))
    if function.__code__.co_argcount == 2:
        return lambda key: as_text(function(key, BUCKET))
    return lambda key: as_text(function(key))


def as_text(made: str | bytes) -> str:
    return made.decode() if isinstance(made, bytes) else made


def with_text(version: str) -> list[Backend]:
    """The backends that exist in an LMCache and make a text; the others hold ObjectKeys."""
    return [
        backend
        for backend in registry.BACKENDS
        if backend.key_text(version) != IN_MEMORY
        and (backend.refused(version) is None or "came with" not in backend.refused(version).reason)
    ]


CASES = [
    pytest.param(backend, version, id=f"{backend.name}-{version}")
    for version in VERSIONS
    for backend in with_text(version)
]

hashes = st.binary(min_size=1, max_size=33)
models = st.text("ab/_-.#", min_size=1, max_size=8).filter(lambda text: "##tv" not in text)
variants = st.builds(
    lambda letter, digits: f"##tv1-{letter}1{digits}",
    st.sampled_from("qpg"),
    st.text("a2", min_size=32, max_size=32),
)
keys = st.builds(
    lambda chunk, model, variant, rank, group, salt: Key(chunk, model + variant, rank, group, salt),
    hashes,
    models,
    st.one_of(st.just(""), variants),
    st.sampled_from([0x01000100, 0x02010201, 0xFF000800]),
    st.integers(0, 17),
    st.text("ab_-.#", max_size=6),
)


def tree_of(version: str) -> Path:
    if version not in TREES:
        pytest.skip(f"LMCache {version} is not in KVSEAL_TEST_LMCACHE_TREES")
    return TREES[version]


def seen(backend: Backend, version: str, key: Key) -> Key:
    """What of a key the text can tell apart: the known limits of stock LMCache taken out."""
    if backend.confuses:
        key = dataclasses.replace(key, model_name=key.model_name.replace(*backend.confuses))
    refusal = backend.refused(version)
    if refusal is not None and refusal.leaks:
        key = dataclasses.replace(key, cache_salt="")
    return key


@pytest.mark.parametrize(("backend", "version"), CASES)
def test_no_two_identities_have_one_text(backend: Backend, version: str) -> None:
    text = text_of(backend, tree_of(version), version)

    @settings(max_examples=80, deadline=None, database=None)
    @given(keys, keys)
    def injective(one: Key, other: Key) -> None:
        same = seen(backend, version, one) == seen(backend, version, other)
        assert (text(one) == text(other)) is same

    @settings(max_examples=40, deadline=None, database=None)
    @given(keys, keys, st.sampled_from([field.name for field in dataclasses.fields(Key)]))
    def injective_in_each_field(one: Key, other: Key, field: str) -> None:
        other = dataclasses.replace(one, **{field: getattr(other, field)})
        same = seen(backend, version, one) == seen(backend, version, other)
        assert (text(one) == text(other)) is same

    injective()
    injective_in_each_field()


@pytest.mark.parametrize(("backend", "version"), CASES)
def test_the_variant_stands_in_the_text(backend: Backend, version: str) -> None:
    text = text_of(backend, tree_of(version), version)
    variant = f"q1{'a' * 32}"
    for salt in ("", "tenant-1"):
        key = Key(b"\x01" * 32, "org/model", 0x01000100, 0, salt)
        marked = dataclasses.replace(key, model_name=f"org/model##tv1-{variant}")
        assert variant in text(marked)
        assert variant not in text(key)
        assert text(marked).replace("##tv1-", "%23%23tv1-").count("%23%23tv1-") == 1


@pytest.mark.parametrize(
    "backend", registry.BACKENDS, ids=lambda backend: f"{backend.name}-ordinary"
)
def test_ordinary_texts_are_stocks(backend: Backend, lmcache_version: str) -> None:
    if backend not in with_text(lmcache_version):
        assert backend.key_text(lmcache_version) == IN_MEMORY or backend.refused(lmcache_version)
        return
    found = importlib.util.find_spec("lmcache")
    assert found is not None and found.origin is not None
    stock = text_of(backend, tree_of(lmcache_version), lmcache_version)
    edited = text_of(backend, Path(found.origin).parents[1], lmcache_version)

    @settings(max_examples=40, deadline=None, database=None)
    @given(keys)
    def equal(key: Key) -> None:
        assert edited(key) == stock(key)

    equal()


@pytest.mark.parametrize("version", VERSIONS)
def test_keys_held_in_memory_are_compared_in_every_field(version: str) -> None:
    """mock, dax, nixl_store and p2p have no text: equality of ObjectKey is what they go by."""
    path = tree_of(version) / "lmcache/v1/distributed/api.py"
    module = ast.parse(path.read_text(encoding="utf-8"))
    (found,) = [n for n in module.body if isinstance(n, ast.ClassDef) and n.name == "ObjectKey"]
    assert [ast.unparse(item) for item in found.decorator_list] == ["dataclass(frozen=True)"]
    fields = [node for node in found.body if isinstance(node, ast.AnnAssign)]
    names = [node.target.id for node in fields if isinstance(node.target, ast.Name)]
    assert set(names) >= {field.name for field in dataclasses.fields(Key)}
    assert not any("field(" in ast.unparse(node) for node in fields), "a field left out of =="
    methods = {node.name for node in found.body if isinstance(node, ast.FunctionDef)}
    assert not methods & {"__eq__", "__hash__"}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_adapter_of_lmcache_has_a_backend(version: str) -> None:
    """An adapter that LMCache ships and the registry lacks would be absent without a word."""
    folder = tree_of(version) / "lmcache/v1/distributed/l2_adapters"
    shipped = set()
    for path in folder.glob("*_l2_adapter.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and "register_l2_adapter_type" in ast.unparse(node.func):
                name = node.args[0]
                if isinstance(name, ast.Constant):
                    shipped.add(name.value)
    assert len(shipped) >= 17
    known = {backend.adapter_type for backend in registry.BACKENDS} | {"p2p"}
    assert shipped - known == set()
