# SPDX-License-Identifier: Apache-2.0
"""LMCache: a server says that it knows variants, and nobody sends one to a server that does not.

The server lists `transform_identity_v1` and, one entry each, the scopes it takes
(`transform_identity_v1:r`) in its answer to GET_EXPERIMENTAL and as
`capabilities` in `/status`. A handler that refuses a key gives no answer at
all, for which vLLM's scheduler would wait, so a scope is asked for as well. The
connector asks every server it uses before the first request
that names a variant is admitted, the SDK before its first key with a variant;
without the announcement that is an error, before anything is looked up or
stored. A server that does not know variants would only miss (it takes the
decorated name for another model), so an answer may be remembered.
"""

from __future__ import annotations

from collections.abc import Mapping

import libcst as cst

from kvseal.codemods.anchor import Anchor, Replacement, rewrite_source, statements
from kvseal.codemods.codemod import Codemod
from kvseal.codemods.environment import Distribution
from kvseal.codemods.lmcache_transform_identity import LMCACHE_VERSIONS
from kvseal.codemods.syntax import after, before, calling, function, instead, line

MANAGEMENT = "lmcache/v1/multiprocess/modules/management.py"
ADAPTER = "lmcache/integration/vllm/vllm_multi_process_adapter.py"
CONTEXT = "lmcache/sdk/context.py"

IMPORT = "from lmcache.v1 import transform_identity"
ANNOUNCE = """
# kvseal: variants are known here.
return [*self._experimental_transfer, *self._transform_capabilities()]
"""
STATUS_METHOD = '''

def report_status(self) -> dict:
    """Return the status of this module and what the server can do (kvseal)."""
    return {
        "capabilities": self._transform_capabilities(),
        **self._report_liveness(),
    }

def _transform_capabilities(self) -> list[str]:
    """Return the announcement of variants, with the scopes that are taken (kvseal)."""
    try:
        from lmcache.v1 import transform_scope
    except ImportError:  # scopes are not enforced here
        return transform_identity.announcement()
    return transform_identity.announcement(transform_scope.allowed_scopes())
'''
CONNECTOR_METHOD = '''

def require_transform_identity(self, variant: str) -> None:
    """Raise ValueError unless every server announces that it takes this variant (kvseal)."""
    # Asked before a request is scheduled; a silent server must not hold up others long.
    known: dict[str, set[str]] = self.__dict__.setdefault("_announced", {})
    for url in self._server_urls:
        if transform_identity.CAPABILITY not in known.get(url, ()):
            known[url] = get_experimental(
                self.CLIENTS[url], timeout=min(self._mq_timeout, 10.0)
            )
        transform_identity.require_announced(variant, known[url], url)
'''
SDK_METHOD = '''

def _require_transform_identity(self, named: str) -> None:
    """Raise LMCacheSDKError unless the server announces that it takes this variant (kvseal)."""
    url = f"{self._http_url}/status"
    try:
        if transform_identity.CAPABILITY not in self.__dict__.get("_announced", ()):
            response = requests.get(url, timeout=self._mq_timeout)
            response.raise_for_status()
            self._announced = list(response.json().get("capabilities", []))
        transform_identity.require_announced(named, self._announced, self._http_url)
    except (requests.RequestException, AttributeError, TypeError, ValueError) as err:
        raise LMCacheSDKError(f"variant {named!r} refused: {err}") from err
'''
SDK_CHECK = """
named = transform_identity.split(key.model_name)[1]
if named:
    self._require_transform_identity(named)
return key
"""


def _rename_and_wrap(node: cst.BaseStatement) -> Replacement:
    name = cst.Name("_report_liveness")
    return cst.FlattenSentinel([node.with_changes(name=name), *statements(STATUS_METHOD)])


def _check_what_is_returned(node: cst.BaseStatement) -> Replacement:
    returned = cst.ensure_type(cst.ensure_type(node, cst.SimpleStatementLine).body[0], cst.Return)
    assert returned.value is not None  # noqa: S101 - the anchor found a call in it
    key = cst.Assign([cst.AssignTarget(cst.Name("key"))], returned.value)
    return cst.FlattenSentinel([node.with_changes(body=[key]), *statements(SDK_CHECK)])


def _edits(version: str) -> dict[str, tuple[Anchor, ...]]:
    clients = "mq_clients" if version == "0.5.4" else "req_clients"
    context = "LMCacheSDKContext"
    return {
        MANAGEMENT: (
            line("", "from lmcache.logging import init_logger", after(IMPORT)),
            function("ManagementModule", "report_status", ["self"], _rename_and_wrap),
            line(
                "ManagementModule.get_experimental",
                "return list(self._experimental_transfer)",
                instead(ANNOUNCE),
            ),
        ),
        ADAPTER: (
            line("", "from lmcache.integration.vllm.experimental import dispatch", after(IMPORT)),
            function(
                "LMCacheMPSchedulerAdapter",
                "num_blocks_per_chunk",
                ["self"],
                before(CONNECTOR_METHOD.replace("CLIENTS", clients)),
            ),
        ),
        CONTEXT: (
            line("", "from lmcache.logging import init_logger", after(IMPORT)),
            calling(
                f"{context}._create_key",
                "IPCCacheServerKey",
                "return IPCCacheServerKey(…)",
                _check_what_is_returned,
            ),
            function(context, "close", ["self"], before(SDK_METHOD)),
        ),
    }


def rewrite(distribution: Distribution, sources: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files with the edit made (see `Codemod.rewrite`)."""
    absent = {
        MANAGEMENT: "_report_liveness",
        ADAPTER: "require_transform_identity",
        CONTEXT: "_require_transform_identity",
    }
    return {
        path: rewrite_source(path, sources[path], anchors, absent=(absent[path],))
        for path, anchors in _edits(distribution.release).items()
    }


CODEMOD = Codemod(
    name="lmcache_capability",
    summary="LMCache servers announce variants, clients refuse to send one elsewhere",
    versions={"lmcache": LMCACHE_VERSIONS},
    edited=(MANAGEMENT, ADAPTER, CONTEXT),
    rewrite=rewrite,
)
