# SPDX-License-Identifier: Apache-2.0
"""The sealed request stream: in which order it checks, stores and lists, and how it ends.

Server, SDK and vLLM are recorders here; tests/engines and the matrix have real ones.
"""

from __future__ import annotations

import inspect
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch lives in the engine environment")

from kvseal.engines.artifact_format import check_engine_format  # noqa: E402
from kvseal.engines.completions import CompletionClient  # noqa: E402
from kvseal.engines.geometry import EngineGeometry  # noqa: E402
from kvseal.engines.lmcache_http import LMCacheHTTP  # noqa: E402
from kvseal.engines.sdk import KVCacheSDK  # noqa: E402
from kvseal.engines.sealed import SealedStream  # noqa: E402
from kvseal.engines.variant_index import VariantIndex  # noqa: E402
from kvseal.errors import (  # noqa: E402
    EngineError,
    KvsealError,
    OptionError,
    PrerequisiteError,
    StoreError,
    TransformError,
)
from kvseal.identity import (  # noqa: E402
    Algorithm,
    Format,
    KVArtifact,
    Query,
    Rope,
    Scope,
    TensorParallel,
    seal,
)
from kvseal.layouts.base import KVGeometry  # noqa: E402

CHUNK, LAYERS, HEADS, SIZE = 4, 2, 2, 8
LAYOUT = "test-layout"
SHAPE = (LAYERS, CHUNK, HEADS, SIZE)
SOURCE = list(range(100, 108))
QUERY = Query("ab" * 32, 2)
FORMAT = Format(
    "m",
    "r",
    LAYOUT,
    "float32",
    Rope("default", "10000", ()),
    HEADS,
    SIZE,
    LAYERS,
    TensorParallel(1, HEADS),
)
GEOMETRY = EngineGeometry(
    "NL_X_NB_NH_BS_CS",
    KVGeometry(LAYERS, HEADS, SIZE, CHUNK, torch.float32),
    4,
    True,
    TensorParallel(1, HEADS),
)


REAL = {
    "capability": LMCacheHTTP.require_variant,
    "end": LMCacheHTTP.end_lease,
    "store": KVCacheSDK.store,
    "store_kv": KVCacheSDK.store_kv,
    "publish": VariantIndex.publish,
    "find": VariantIndex.find,
    "complete": CompletionClient.complete,
}


class Recorder:
    """A server with its SDK, index and vLLM: what was asked of them, in order.

    Every call must be one that the real one takes.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.failing: dict[str, KvsealError] = {}
        self.chunk_size_tokens = CHUNK
        self.geometry = GEOMETRY
        self.layout = SimpleNamespace(name=LAYOUT)
        self.server = self

    def _called(self, name: str, *arguments: Any, **named: Any) -> None:
        inspect.signature(REAL[name]).bind(self, *arguments, **named)
        shown = [tuple(one.shape) if hasattr(one, "shape") else one for one in arguments]
        self.calls.append((name, *shown, *([named] if named else [])))
        if name in self.failing:
            raise self.failing[name]

    @property
    def names(self) -> list[str]:
        return [call[0] for call in self.calls]

    def require_variant(self, variant: str) -> None:
        self._called("capability", variant)

    def store(self, *arguments: Any, **named: Any) -> str:
        assert isinstance(arguments[0], torch.Tensor)
        self._called("store", *arguments, **named)
        return "receipt"

    def store_kv(self, *arguments: Any, **named: Any) -> str:
        assert all(isinstance(array, torch.Tensor) for array in arguments[:2])
        self._called("store_kv", *arguments, **named)
        return "receipt"

    def end_lease(self, variant: str) -> int:
        self._called("end", variant)
        return 1

    def publish(self, manifest: Any, salt: str) -> None:
        self._called("publish", manifest, salt)

    def find(self, recipe: str, salt: str) -> list[Any]:
        self._called("find", recipe, salt)
        return ["found"]

    def complete(self, *arguments: Any, **named: Any) -> str:
        self._called("complete", *arguments, **named)
        return "completion"


@pytest.fixture
def world() -> Recorder:
    return Recorder()


@pytest.fixture
def stream(world: Recorder) -> SealedStream:
    return SealedStream(world, world, world, "tenant")  # type: ignore[arg-type]


def kv(tokens: int = CHUNK, seed: int = 0) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(LAYERS, tokens, HEADS, SIZE, generator=generator)


def artifact(*, shared: bool = True, form: Format = FORMAT, keys: Any = None) -> KVArtifact:
    return seal(
        algorithm=Algorithm("drop", 1, "test"),
        parameters={},
        source_token_ids=SOURCE,
        retained_positions=[0, 2, 4, 6],
        format=form,
        query=QUERY,
        scope=Scope("query-scoped", QUERY.digest) if shared else None,
        keys=kv() if keys is None else keys,
        values=kv(),
    )


KEPT = SOURCE[::2]


def test_a_shared_artifact_is_checked_stored_and_listed(
    stream: SealedStream, world: Recorder
) -> None:
    made = artifact()
    assert stream.store(made, SOURCE) == "receipt"
    assert world.calls == [
        ("capability", made.variant),
        ("store_kv", SHAPE, SHAPE, tuple(KEPT), "tenant", {"variant": made.variant}),
        ("publish", made.manifest, "tenant"),
    ]
    stream.close()
    assert world.names == ["capability", "store_kv", "publish"], "others may use it further"


def test_a_request_local_artifact_is_not_listed_and_ends(
    stream: SealedStream, world: Recorder
) -> None:
    one, two = artifact(shared=False), artifact(shared=False)
    assert one.variant != two.variant
    with stream:
        stream.store(one, SOURCE)
        stream.store(two, SOURCE)
        assert world.names == ["capability", "store_kv"] * 2
    assert sorted(world.calls[4:]) == sorted([("end", one.variant), ("end", two.variant)])
    stream.close()
    assert len(world.calls) == 6, "closing again does nothing"


def test_arrays_of_numpy_and_packed_ones_are_stored(stream: SealedStream, world: Recorder) -> None:
    numpy = pytest.importorskip("numpy")
    stream.store(artifact(keys=numpy.asarray(kv())), SOURCE)
    packed = seal(
        algorithm=Algorithm("drop", 1, "test"),
        parameters={},
        source_token_ids=SOURCE,
        retained_positions=[0, 2, 4, 6],
        format=FORMAT,
        packed=torch.zeros(1, LAYERS, CHUNK, 2 * HEADS * SIZE),
    )
    stream.store(packed, SOURCE)
    assert world.names == ["capability", "store_kv", "publish", "capability", "store"]
    assert world.calls[-1][1] == (1, LAYERS, CHUNK, 2 * HEADS * SIZE)


def lies() -> dict[str, tuple[KVArtifact, list[int]]]:
    nan = kv()
    nan[1, 2, 1, 3] = float("nan")
    made = artifact()
    return {
        "another source": (made, SOURCE[::-1]),
        "a longer source": (made, [*SOURCE, 1]),
        "token IDs that are not the source's": (
            replace(made, logical_token_ids=tuple(KEPT[::-1])),
            SOURCE,
        ),
        "positions that don't increase": (
            replace(made, retained_positions=made.retained_positions[::-1]),
            SOURCE,
        ),
        "more rows than IDs": (replace(made, keys=kv(2 * CHUNK)), SOURCE),
        "a NaN": (artifact(keys=nan), SOURCE),
    }


@pytest.mark.parametrize("lie", sorted(lies()))
def test_what_lies_is_refused_before_anything_is_asked(
    stream: SealedStream, world: Recorder, lie: str
) -> None:
    made, source = lies()[lie]
    with pytest.raises(TransformError, match="nothing was stored"):
        stream.store(made, source)
    assert world.calls == []


def test_source_variant_and_expected_format_are_held(stream: SealedStream, world: Recorder) -> None:
    parent = "q1" + "a" * 32
    with pytest.raises(TransformError, match="parent"):
        stream.store(artifact(), SOURCE, source_variant=parent)
    with pytest.raises(TransformError, match=r"manifest\.format"):
        stream.store(artifact(), SOURCE, expected_format=replace(FORMAT, model_revision="other"))
    assert world.calls == []
    stream.store(artifact(), SOURCE, expected_format=FORMAT)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tensor_parallel", TensorParallel(2, 1)),
        ("tensor_parallel", TensorParallel(2, 2)),
        ("kv_layout", "another-layout"),
        ("dtype", "float16"),
        ("layers", 3),
        ("kv_heads", 4),
        ("head_size", 16),
    ],
)
def test_a_format_that_is_not_the_engines_is_refused(field: str, value: Any) -> None:
    changes: dict[str, Any] = {field: value}
    if field == "kv_heads":
        changes["tensor_parallel"] = TensorParallel(2, 2)
    form = replace(FORMAT, **changes)
    check_engine_format(FORMAT, GEOMETRY, LAYOUT)
    engine = (
        replace(GEOMETRY, tensor_parallel=form.tensor_parallel)
        if field == "kv_heads"
        else (GEOMETRY)
    )
    with pytest.raises(TransformError, match="nothing was stored") as caught:
        check_engine_format(form, engine, LAYOUT)
    assert caught.value.option == f"format.{field}"


def test_ranks_that_were_not_gathered_are_refused_before_anything_is_asked(
    stream: SealedStream, world: Recorder
) -> None:
    form = replace(FORMAT, tensor_parallel=TensorParallel(2, 1))
    with pytest.raises(TransformError, match=r"format\.tensor_parallel"):
        stream.store(artifact(form=form), SOURCE)
    assert world.calls == []


@pytest.mark.parametrize("shared", [True, False])
def test_a_server_that_does_not_take_the_scope_stores_nothing(
    stream: SealedStream, world: Recorder, shared: bool
) -> None:
    world.failing["capability"] = PrerequisiteError("does not take")
    with pytest.raises(PrerequisiteError), stream:
        stream.store(artifact(shared=shared), SOURCE)
    assert world.names == ["capability"], "nothing is stored, listed or ended"


def test_a_store_that_fails_is_not_listed_and_ends_all_the_same(world: Recorder) -> None:
    world.failing["store_kv"] = StoreError("already in the cache")
    for shared, expected in ((True, []), (False, ["end"])):
        world.calls.clear()
        with (
            pytest.raises(StoreError, match="already"),
            SealedStream(world, world, world) as stream,  # type: ignore[arg-type]
        ):
            stream.store(artifact(shared=shared), SOURCE)
        assert world.names == ["capability", "store_kv", *expected]


def test_what_was_stored_and_not_listed_is_named(stream: SealedStream, world: Recorder) -> None:
    world.failing["publish"] = EngineError("disk full")
    made = artifact()
    with pytest.raises(StoreError, match="stored and could not be listed: disk full") as caught:
        stream.store(made, SOURCE)
    assert caught.value.value == made.variant


def test_without_an_index_nothing_is_listed_or_found(world: Recorder) -> None:
    stream = SealedStream(world, world, None)  # type: ignore[arg-type]
    stream.store(artifact(), SOURCE)
    assert world.names == ["capability", "store_kv"]
    with pytest.raises(OptionError, match="variant index"):
        stream.find("ab" * 32)


def test_a_recipe_is_looked_up_for_this_tenant(stream: SealedStream, world: Recorder) -> None:
    assert stream.find("ab" * 32) == ["found"]
    assert world.calls == [("find", "ab" * 32, "tenant")]


def test_a_salt_that_holds_the_mark_is_refused(world: Recorder) -> None:
    with pytest.raises(OptionError, match="cache salt"):
        SealedStream(world, world, None, "x##tv1-y")  # type: ignore[arg-type]


def test_a_request_names_the_variant_and_how_much_of_it(
    stream: SealedStream, world: Recorder
) -> None:
    made = artifact()
    for named in (made, made.manifest):
        answer = stream.complete(named, [*KEPT, 7, 8], max_tokens=3, seed=5, ignore_eos=True)
        assert answer == "completion"
        assert world.calls.pop() == (
            "complete",
            [*KEPT, 7, 8],
            {
                "max_tokens": 3,
                "cache_salt": "tenant",
                "seed": 5,
                "ignore_eos": True,
                "variant": made.variant,
                "variant_tokens": CHUNK,
            },
        )


@pytest.mark.parametrize("prompt", [[], KEPT[:-1], [*KEPT[:-1], 1], SOURCE, [1, *KEPT]])
def test_a_prompt_that_begins_otherwise_is_refused(
    stream: SealedStream, world: Recorder, prompt: list[int]
) -> None:
    with pytest.raises(OptionError, match="does not begin"):
        stream.complete(artifact(), prompt, max_tokens=1)
    assert world.calls == []


def test_request_local_artifacts_are_their_streams_alone(
    stream: SealedStream, world: Recorder
) -> None:
    made = artifact(shared=False)
    with pytest.raises(TransformError, match="for the stream that stored it"):
        stream.complete(made, KEPT, max_tokens=1)
    stream.store(made, SOURCE)
    assert stream.complete(made, KEPT, max_tokens=1) == "completion"
    other = SealedStream(world, world, world, "tenant")  # type: ignore[arg-type]
    with pytest.raises(TransformError, match="for the stream that stored it"):
        other.complete(made, KEPT, max_tokens=1)


def test_a_closed_stream_does_nothing_more(stream: SealedStream, world: Recorder) -> None:
    made = artifact()
    stream.close()
    for call in (
        lambda: stream.store(made, SOURCE),
        lambda: stream.complete(made, KEPT, max_tokens=1),
        lambda: stream.store_legacy(
            (torch.zeros(1, LAYERS, CHUNK, 32), KEPT), SOURCE, format=FORMAT, implementation="x"
        ),
    ):
        with pytest.raises(OptionError, match="closed"):
            call()
    assert world.calls == []


def test_leases_end_when_the_block_fails_and_its_error_is_what_is_seen(
    stream: SealedStream, world: Recorder
) -> None:
    made = artifact(shared=False)
    with pytest.raises(ZeroDivisionError), stream:
        stream.store(made, SOURCE)
        raise ZeroDivisionError
    assert world.calls[-1] == ("end", made.variant)


def test_every_lease_is_tried_and_those_that_remain_are_named(world: Recorder) -> None:
    made = [artifact(shared=False) for _ in range(3)]
    world.failing["end"] = EngineError("no answer")
    with (
        pytest.raises(EngineError, match="3 request-local artifacts could not be ended") as caught,
        SealedStream(world, world, world) as stream,  # type: ignore[arg-type]
    ):
        for one in made:
            stream.store(one, SOURCE)
    assert world.names.count("end") == 3
    assert caught.value.value == sorted(one.variant for one in made)
    with (
        pytest.raises(ZeroDivisionError) as broken,
        SealedStream(world, world, world) as stream,  # type: ignore[arg-type]
    ):
        stream.store(made[0], SOURCE)
        raise ZeroDivisionError
    notes = getattr(broken.value, "__notes__", None)
    assert notes is None or "could not be ended" in notes[0]


def legacy(stream: SealedStream, tokens: int, ids: int | None = None) -> KVArtifact:
    packed = torch.arange(LAYERS * tokens * 32, dtype=torch.float32).reshape(1, LAYERS, tokens, 32)
    given = list(range(500, 500 + (tokens if ids is None else ids)))
    return stream.store_legacy((packed, given), SOURCE, format=FORMAT, implementation="a modifier")


def test_a_legacy_tuple_is_sealed_request_local_in_whole_chunks(
    stream: SealedStream, world: Recorder
) -> None:
    made = legacy(stream, 2 * CHUNK + 3)
    assert made.manifest.algorithm == Algorithm("legacy", 1, "a modifier")
    assert made.variant.startswith("r1")
    ids = list(range(500, 500 + 2 * CHUNK))
    assert list(made.logical_token_ids) == ids
    assert world.calls == [
        ("capability", made.variant),
        ("store", (1, LAYERS, 2 * CHUNK, 32), tuple(ids), "tenant", {"variant": made.variant}),
    ]
    assert stream.complete(made, [*ids, 508, 509, 510], max_tokens=1) == "completion"
    assert legacy(stream, CHUNK).variant != legacy(stream, CHUNK).variant
    stream.close()
    assert world.names.count("end") == 3


def test_a_legacy_tuple_of_transformed_kv_binds_its_parent(
    stream: SealedStream, world: Recorder
) -> None:
    parent = "r1" + "a" * 32
    packed = torch.zeros(1, LAYERS, CHUNK, 32)
    made = stream.store_legacy(
        (packed, KEPT), SOURCE, format=FORMAT, implementation="x", source_variant=parent
    )
    assert made.manifest.source.parent == parent
    assert world.names == ["capability", "store"]


@pytest.mark.parametrize(("tokens", "ids"), [(CHUNK - 1, None), (CHUNK, CHUNK + 1), (CHUNK, 0)])
def test_a_legacy_tuple_that_can_not_be_stored_is_refused(
    stream: SealedStream, world: Recorder, tokens: int, ids: int | None
) -> None:
    with pytest.raises(StoreError, match="a chunk or more"):
        legacy(stream, tokens, ids)
    assert world.calls == []


def test_a_legacy_tuple_with_nan_is_refused(stream: SealedStream, world: Recorder) -> None:
    packed = torch.full((1, LAYERS, CHUNK, 32), float("nan"))
    with pytest.raises(TransformError, match="NaN"):
        stream.store_legacy((packed, KEPT), SOURCE, format=FORMAT, implementation="x")
    assert world.calls == []


def test_nobody_stores_past_the_capability(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK itself asks, before it looks at the KV or opens a channel."""
    sdk = object.__new__(KVCacheSDK)
    sdk.server = LMCacheHTTP("http://nowhere")
    monkeypatch.setattr(sdk.server, "status", lambda: {"capabilities": ["transform_identity_v1"]})
    sdk.layout = SimpleNamespace(pack=lambda *_: "packed", check=None)  # type: ignore[assignment]
    variant = "q1" + "a" * 32
    with pytest.raises(PrerequisiteError, match="query-scoped"):
        sdk.store("packed", [1], variant=variant)  # type: ignore[arg-type]
    with pytest.raises(PrerequisiteError, match="query-scoped"):
        sdk.store_kv(kv(), kv(), [1], variant=variant)
