# SPDX-License-Identifier: Apache-2.0
"""LMCache: people and metrics see model and variant apart.

The model name in a key carries the variant. A metric label would then grow with
every variant, so labels get the model alone. The log of lookups and the spans of
requests (neither of which names a request-local variant), the HTTP list
of objects and the coordinator's list of keys on the command line show both, each
in a field of its own, for entries that have a variant; what they show of others
is unchanged. A listed object keeps its `key` as it is, since it is what a delete
request must send back.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvseal.codemods.anchor import Anchor, rewrite_source
from kvseal.codemods.codemod import Codemod
from kvseal.codemods.environment import Distribution
from kvseal.codemods.lmcache_transform_identity import LMCACHE_VERSIONS
from kvseal.codemods.syntax import (
    after,
    before,
    first_in_body,
    function,
    instead,
    line,
    loop,
    swapping,
)

SUBSCRIBERS = "lmcache/v1/mp_observability/subscribers"
LOOKUP = f"{SUBSCRIBERS}/metrics/lookup.py"
ENGINE = f"{SUBSCRIBERS}/metrics/engine.py"
THROUGHPUT = f"{SUBSCRIBERS}/metrics/l0_l1_throughput.py"
L1_FAILURES = f"{SUBSCRIBERS}/metrics/l1_failures.py"
L2_FAILURES = f"{SUBSCRIBERS}/metrics/l2_failures.py"
LOOKUP_LOG = f"{SUBSCRIBERS}/logging/lookup_hash.py"
SPANS = f"{SUBSCRIBERS}/tracing/mp_server.py"
OBJECTS = "lmcache/v1/multiprocess/cache_control/object_service.py"
COORDINATOR = "lmcache/cli/commands/query/_coordinator.py"

IMPORT = """
from lmcache.v1 import transform_identity
"""
EVENT_IMPORT = "from lmcache.v1.mp_observability.event import Event, EventType"
LABEL = 'attrs["model_name"] = str(model_name)'
MODEL_LABEL = """
# kvseal: the model alone; a label with the variant would grow without bound.
attrs["model_name"] = transform_identity.split(str(model_name))[0]
"""
LOG_VARIANT = """
# kvseal: model and variant apart; without a variant the line is as it was, and of
# a request-local one there is none: whoever knows its name may read it and end it.
model, variant = transform_identity.split(data["model_name"])
if variant.startswith("r"):
    return
if variant:
    data |= {"model_name": model, "variant": variant}
"""
SPAN_VARIANT = """
if k == "model_name":
    # kvseal: model and variant apart, and of a request-local one no name.
    v, variant = transform_identity.split(str(v))
    if variant and not variant.startswith("r"):
        span.set_attribute("variant", variant)
"""
LISTED_SOUGHT = """return {
    "adapter": desc.type_name,
    "shared": desc.config.shared,
    "entries": page.entries,
    "next_page_token": page.next_page_token,
}"""
WITH_VARIANT = '''

def _with_variant(entry: Any) -> Any:
    """Return a listed object, with model and variant apart where it has one (kvseal)."""
    model, variant = transform_identity.split(entry.key.model_name)
    if not variant:
        return entry
    return {**asdict(entry), "model_name": model, "variant": variant}


'''
KEYS_TABLE = """
# kvseal: a column for variants, where there are any.
names = [
    transform_identity.split(str((info.get("key") or {}).get("model_name") or ""))
    for info in body.get("keys", [])
]
variant_column = [("variant", "variant")] if any(name[1] for name in names) else []
table = metrics.add_table(
    "keys",
    "Keys",
    ("chunk", "chunk"),
    ("model", "model"),
    ("kv_rank", "rank"),
    ("cache_salt", "salt"),
    ("placements", "placements"),
    *variant_column,
)
"""
KEYS_TABLE_SOUGHT = """table = metrics.add_table(
    "keys",
    "Keys",
    ("chunk", "chunk"),
    ("model", "model"),
    ("kv_rank", "rank"),
    ("cache_salt", "salt"),
    ("placements", "placements"),
)"""
KEYS_ROW = """
model_name, variant = transform_identity.split(str(key.get("model_name") or ""))
table.add_row(
    chunk=str(key.get("chunk_hash_hex", ""))[:12],
    model=model_name or "--",
    kv_rank=key.get("kv_rank"),
    cache_salt=key.get("cache_salt") or "(default)",
    placements=placements or "--",
    **({"variant": variant or "--"} if variant_column else {}),
)
"""
KEYS_ROW_SOUGHT = """table.add_row(
    chunk=str(key.get("chunk_hash_hex", ""))[:12],
    model=key.get("model_name") or "--",
    kv_rank=key.get("kv_rank"),
    cache_salt=key.get("cache_salt") or "(default)",
    placements=placements or "--",
)"""


def _counted(scope: str, name: str) -> Anchor:
    edit = swapping("k.model_name", "transform_identity.split(k.model_name)[0]")
    return function(scope, name, ("self", "event"), edit, calls=("Counter",))


def _anchors(version: str) -> dict[str, tuple[Anchor, ...]]:
    event = line("", EVENT_IMPORT, before(IMPORT))
    attributes = "_record" if version == "0.5.4" else "_metric_attributes"
    anchors: dict[str, tuple[Anchor, ...]] = {
        LOOKUP: (event, line("_lookup_attrs", LABEL, instead(MODEL_LABEL))),
        ENGINE: (
            event,
            line("EngineMetricsSubscriber._on_retrieve_end", LABEL, instead(MODEL_LABEL)),
        ),
        THROUGHPUT: (
            event,
            line(f"L0L1ThroughputSubscriber.{attributes}", LABEL, instead(MODEL_LABEL)),
        ),
        L1_FAILURES: (
            event,
            _counted("L1FailureMetricsSubscriber", "_on_allocation_failed"),
            _counted("L1FailureMetricsSubscriber", "_on_read_failed"),
        ),
        L2_FAILURES: (event, _counted("L2FailureMetricsSubscriber", "_on_prefetch_failed")),
        LOOKUP_LOG: (
            event,
            line(
                "LookupHashLoggingSubscriber._on_lookup_hashes",
                r'line = json.dumps(data) + "\n"',
                before(LOG_VARIANT),
            ),
        ),
        SPANS: (
            event,
            *(
                loop(
                    f"MPServerTracingSubscriber.{name}",
                    "(k, v)",
                    "event.metadata.items()",
                    first_in_body(SPAN_VARIANT),
                )
                for name in ("_on_start", "_on_end")
            ),
        ),
        OBJECTS: (
            line("", "import asyncio", before("from dataclasses import asdict")),
            line(
                "",
                "from lmcache.v1.distributed.api import EncodedObjectKey, Tier",
                before(IMPORT),
            ),
            line("", "_SUPPORTED_TIER = Tier.L2", after(WITH_VARIANT)),
            line(
                "ObjectService.list_objects",
                LISTED_SOUGHT,
                swapping("page.entries", "[_with_variant(entry) for entry in page.entries]"),
            ),
        ),
    }
    if version != "0.5.4":
        anchors[COORDINATOR] = (
            line("", "from lmcache.logging import init_logger", after(IMPORT)),
            line("_render_keys", KEYS_TABLE_SOUGHT, instead(KEYS_TABLE)),
            line("_render_keys", KEYS_ROW_SOUGHT, instead(KEYS_ROW)),
        )
    return anchors


def rewrite(distribution: Distribution, sources: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files that this version has, with the edit made (see `Codemod.rewrite`)."""
    anchors = _anchors(distribution.release)
    return {path: rewrite_source(path, sources[path], anchors[path]) for path in anchors}


CODEMOD = Codemod(
    name="lmcache_labels",
    summary="LMCache shows model and variant apart, and labels metrics with the model alone",
    versions={"lmcache": LMCACHE_VERSIONS},
    edited=(LOOKUP, ENGINE, THROUGHPUT, L1_FAILURES, L2_FAILURES, LOOKUP_LOG, SPANS, OBJECTS),
    edited_in=dict.fromkeys(("0.5.5", "0.5.6"), (COORDINATOR,)),
    rewrite=rewrite,
)
