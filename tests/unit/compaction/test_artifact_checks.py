# SPDX-License-Identifier: Apache-2.0
"""What torch and numpy arrays show to the checks before a store."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="no torch: run in the engine environment")
numpy = pytest.importorskip("numpy", reason="no numpy: as above")

from kvseal.compaction.artifact_checks import TensorReader, check_before_store  # noqa: E402
from kvseal.errors import TransformError  # noqa: E402
from kvseal.identity import Algorithm, Format, Rope, TensorParallel, seal  # noqa: E402

READER = TensorReader()
SOURCE = [5, 6, 7, 8]


def sealed(keys: Any, values: Any, dtype: str = "float32") -> Any:
    form = Format("m", "r", "l", dtype, Rope("default", "10000", ()), 2, 4, 3, TensorParallel(1, 2))
    return seal(
        algorithm=Algorithm("a", 1, "x"), parameters={}, source_token_ids=SOURCE,
        retained_positions=torch.tensor([1, 3]), format=form, keys=keys, values=values,
        digest_payload=READER,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64", "int8"])
def test_bytes_are_those_of_memory_in_row_order(dtype: str) -> None:
    tensor = torch.arange(24).reshape(2, 3, 4).to(getattr(torch, dtype))
    expected = bytes(tensor.untyped_storage())
    assert b"".join(READER.chunks(tensor)) == expected
    turned = tensor.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    assert not turned.is_contiguous()
    assert b"".join(READER.chunks(turned)) == expected
    assert b"".join(READER.chunks(tensor.transpose(0, 1))) != expected
    if dtype != "bfloat16":
        assert b"".join(READER.chunks(tensor.numpy())) == expected
        assert b"".join(READER.chunks(numpy.asfortranarray(tensor.numpy()))) == expected


def test_known_bytes_are_little_endian() -> None:
    ones = torch.ones(1, 1, dtype=torch.float32)
    assert b"".join(READER.chunks(ones)) == b"\x00\x00\x80\x3f"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64", "float8_e5m2"])
def test_what_is_not_finite_is_found_anywhere(value: float, dtype: str) -> None:
    for place in ((0, 0, 0), (1, 2, 3), (1, 0, 0), (0, 2, 3)):
        tensor = torch.zeros(2, 3, 4)
        assert READER.is_finite(tensor.to(getattr(torch, dtype)))
        tensor[place] = value
        assert not READER.is_finite(tensor.to(getattr(torch, dtype)))
        if dtype in ("float32", "float64", "float16"):
            assert not READER.is_finite(tensor.to(getattr(torch, dtype)).numpy())


def test_integers_and_extremes_are_finite() -> None:
    assert READER.is_finite(torch.full((2, 2), -128, dtype=torch.int8))
    assert READER.is_finite(torch.full((2, 2), torch.finfo(torch.float16).max).half())


@pytest.mark.filterwarnings("error")
def test_read_only_memory_is_read() -> None:
    array = numpy.frombuffer(b"\x01\x02\x03\x04", dtype=numpy.uint8).reshape(2, 2)
    assert READER.is_finite(array)
    assert b"".join(READER.chunks(array)) == b"\x01\x02\x03\x04"


@pytest.mark.parametrize("shape", [(), (4,), (0, 3), (2, 0)])
def test_nothing_is_no_kv(shape: tuple[int, ...]) -> None:
    for array in (torch.zeros(shape), numpy.zeros(shape)):
        with pytest.raises(TransformError, match="holds nothing"):
            READER.is_finite(array)
        with pytest.raises(TransformError, match="holds nothing"):
            list(READER.chunks(array))


@pytest.mark.parametrize("library", ["torch", "numpy"])
def test_an_artifact_passes_and_every_damage_is_caught(library: str) -> None:
    def arrays() -> list[Any]:
        torch.manual_seed(1)
        made = [torch.randn(3, 2, 2, 4) for _ in range(2)]
        return made if library == "torch" else [tensor.numpy() for tensor in made]

    artifact = sealed(*arrays())
    check_before_store(artifact, SOURCE)
    assert artifact.manifest.payload_sha256 == sealed(*arrays()).manifest.payload_sha256
    for name in ("keys", "values"):
        for value, match in ((float("nan"), "NaN"), (1.5, "payload_sha256")):
            artifact = sealed(*arrays())
            getattr(artifact, name)[2, 1, 1, 3] = value
            with pytest.raises(TransformError, match=match):
                check_before_store(artifact, SOURCE)
    with pytest.raises(TransformError, match="prefix_sha256"):
        check_before_store(sealed(*arrays()), [5, 6, 7, 9])
    with pytest.raises(TransformError, match=r"source\.parent"):
        check_before_store(sealed(*arrays()), SOURCE, source_variant="r1" + "a" * 32)
    with pytest.raises(TransformError, match=r"manifest\.format"):
        other = sealed(*arrays(), dtype="bfloat16").manifest.format
        check_before_store(sealed(*arrays()), SOURCE, expected_format=other)
    with pytest.raises(TransformError, match=r"keys\.dtype"):
        check_before_store(sealed(*arrays(), dtype="bfloat16"), SOURCE)


def test_the_payload_digest_is_the_documented_one() -> None:
    keys, values = torch.zeros(3, 2, 2, 4), torch.ones(3, 2, 2, 4)
    state = hashlib.sha256(b"kvseal.payload.v1\n")
    state.update(b"keys float32 3x2x2x4\n" + bytes(keys.untyped_storage()))
    state.update(b"values float32 3x2x2x4\n" + bytes(values.untyped_storage()))
    assert sealed(keys, values).manifest.payload_sha256 == state.hexdigest()
