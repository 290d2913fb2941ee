# SPDX-License-Identifier: Apache-2.0
"""On LMCache's real classes, edited or not: what one of them can't show is skipped by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

torch = pytest.importorskip("torch", reason="torch lives in the engine environment")
pytest.importorskip("lmcache", reason="LMCache lives in the engine environment")

from kvseal.drivers.matrix.process_surface import ProcessSurface  # noqa: E402
from kvseal.errors import PrerequisiteError, StoreError  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor

LAYERS, HEADS, SIZE, CHUNK = 3, 2, 4, 8
TOKENS = list(range(100, 119))
WHOLE = 16
V, OTHER = "q1" + "b" * 32, "r1" + "c" * 32


@pytest.fixture(scope="module")
def engine() -> Iterator[ProcessSurface]:
    with ProcessSurface(
        model_name="org/model",
        layers=LAYERS,
        kv_heads=HEADS,
        head_size=SIZE,
        dtype=torch.bfloat16,
        chunk_tokens=CHUNK,
        l1_gib=0.01,
    ) as made:
        yield made


@pytest.fixture
def surface(engine: ProcessSurface) -> ProcessSurface:
    engine.restart()
    return engine


@pytest.fixture
def edited(surface: ProcessSurface) -> ProcessSurface:
    if not surface.patched:
        pytest.skip("this LMCache is without the codemod lmcache_engine_variant")
    return surface


def kv(seed: int, tokens: int = len(TOKENS)) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shape = (LAYERS, tokens, HEADS, SIZE)
    keys, values = (torch.randn(shape, generator=generator).to(torch.bfloat16) for _ in range(2))
    return keys, values


def holds(surface: ProcessSurface, seed: int, variant: str = "") -> bool:
    """Whether the whole chunks of KV `seed`, to the last byte, are what one gets for TOKENS."""
    answer = surface.ask(TOKENS, variant=variant)
    if answer.found_tokens != WHOLE or answer.payload is None:
        return False
    return all(
        torch.equal(got.view(torch.int16), put[:, :WHOLE].contiguous().view(torch.int16))
        for got, put in zip(answer.payload, kv(seed), strict=True)
    )


def misses(surface: ProcessSurface, variant: str = "") -> bool:
    answer = surface.ask(TOKENS, variant=variant)
    return answer.found_tokens == 0 and answer.payload is None


def test_ordinary_kv_comes_back_to_the_byte(surface: ProcessSurface) -> None:
    assert misses(surface)
    assert surface.store(*kv(1), TOKENS) == WHOLE
    assert holds(surface, 1)
    assert not holds(surface, 2)
    assert surface.ask([*TOKENS[:CHUNK], *TOKENS[:CHUNK]]).found_tokens == CHUNK
    assert surface.ask(TOKENS[1:]).found_tokens == 0


def test_a_restart_forgets_everything(surface: ProcessSurface) -> None:
    surface.store(*kv(1), TOKENS)
    surface.restart()
    assert misses(surface)
    assert surface.store(*kv(2), TOKENS) == WHOLE
    assert holds(surface, 2)


def test_without_identity_the_literal_prompt_gets_transformed_kv(surface: ProcessSurface) -> None:
    """The disease: a tuple stored under token IDs is theirs, and ordinary KV is shut out."""
    surface.store(*kv(7), TOKENS)
    assert holds(surface, 7)
    with pytest.raises(StoreError, match="stored already"):
        surface.store(*kv(1), TOKENS)
    assert holds(surface, 7)


@pytest.mark.parametrize("variant", [V, OTHER], ids=["query-scoped", "request-local"])
def test_only_the_exact_variant_hits(edited: ProcessSurface, variant: str) -> None:
    assert edited.store(*kv(7), TOKENS, variant=variant) == WHOLE
    assert holds(edited, 7, variant)
    assert misses(edited)
    assert misses(edited, OTHER if variant == V else V)


def test_ordinary_kv_and_variants_keep_apart(edited: ProcessSurface) -> None:
    for seed, variant in enumerate((V, "", OTHER)):
        assert edited.store(*kv(seed), TOKENS, variant=variant) == WHOLE
    for seed, variant in enumerate((V, "", OTHER)):
        assert holds(edited, seed, variant)
    with pytest.raises(StoreError, match="stored already"):
        edited.store(*kv(9), TOKENS, variant=V)


@pytest.mark.parametrize("variant", ["q1short", "q2" + "b" * 32, "##tv1-" + V, V.upper()])
def test_what_is_no_variant_is_refused(edited: ProcessSurface, variant: str) -> None:
    edited.store(*kv(1), TOKENS)
    with pytest.raises(StoreError, match="variant"):
        edited.store(*kv(7), TOKENS, variant=variant)
    with pytest.raises(StoreError, match="variant"):
        edited.ask(TOKENS, variant=variant)
    assert holds(edited, 1)


def test_stock_is_given_no_variant(surface: ProcessSurface) -> None:
    if surface.patched:
        pytest.skip("this LMCache has the codemod lmcache_engine_variant")
    with pytest.raises(PrerequisiteError, match="no variants"):
        surface.store(*kv(7), TOKENS, variant=V)
    with pytest.raises(PrerequisiteError, match="no variants"):
        surface.ask(TOKENS, variant=V)
    assert misses(surface)


def test_a_store_that_falls_short_is_an_error(surface: ProcessSurface) -> None:
    with pytest.raises(StoreError, match="less than one chunk"):
        surface.store(*kv(1, CHUNK - 1), TOKENS[: CHUNK - 1])
    with pytest.raises(StoreError, match="values are not those of the tokens"):
        surface.store(kv(1)[0], kv(1)[1][:, 1:], TOKENS)
    with pytest.raises(StoreError, match="keys are not those of the tokens"):
        surface.store(*(part.float() for part in kv(1)), TOKENS)
    surface.store(*kv(1, CHUNK), TOKENS[:CHUNK])
    with pytest.raises(StoreError, match="1 chunks"):
        surface.store(*kv(1), TOKENS)
    many = 1 << 15  # 3 MiB of a memory of 10, in chunks that LMCache rounds up to 4 KiB
    with pytest.raises(StoreError, match="less than it was given"):
        surface.store(*kv(1, many), list(range(many)))
