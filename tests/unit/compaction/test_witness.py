# SPDX-License-Identifier: Apache-2.0
"""The reference decodes as ordinary decoding does, from a cache that was given to it."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="no torch: run in the engine environment")
transformers = pytest.importorskip("transformers", reason="no transformers: as above")

from kvseal.compaction.rope import rerotate  # noqa: E402
from kvseal.compaction.rope_config import rope_from_config  # noqa: E402
from kvseal.compaction.snapkv import SnapKV  # noqa: E402
from kvseal.compaction.witness import decode_reference  # noqa: E402
from kvseal.errors import TransformError  # noqa: E402

TAIL = [3, 141, 59, 26]
NEW = 12


def greedy_without_a_cache(model: Any, ids: list[int], **mask: Any) -> tuple[list[int], list[Any]]:
    """Token IDs and logits by recomputing the whole prompt for every token."""
    ids, logits = list(ids), []
    with torch.inference_mode():
        for _ in range(NEW):
            seen = mask["attention_mask"] if mask else torch.ones(1, 0, dtype=torch.long)
            ones = torch.ones(1, len(ids) - seen.shape[1], dtype=torch.long)
            output = model(
                torch.tensor([ids]),
                attention_mask=torch.cat([seen, ones], 1),
                position_ids=torch.arange(len(ids))[None],
                use_cache=False,
            )
            logits.append(output.logits[0, -1])
            ids.append(int(logits[-1].argmax()))
    return ids[-NEW:], logits


def test_whole_cache_gives_the_ordinary_answer(prefill: Any) -> None:
    decoded = decode_reference(prefill.model, prefill.keys, prefill.values, TAIL, NEW)
    expected, logits = greedy_without_a_cache(prefill.model, prefill.token_ids + TAIL)
    assert list(decoded.token_ids) == expected
    assert len(set(expected)) > NEW // 2  # an answer worth comparing
    margins = [float(step.topk(2).values.diff().abs()) for step in logits]
    assert decoded.top2_margins == pytest.approx(margins, abs=1e-3)


def test_nothing_dropped_gives_the_ordinary_answer(prefill: Any) -> None:
    rope = rope_from_config(prefill.model.config.to_dict())
    source = (prefill.queries, prefill.keys, prefill.values, prefill.token_ids)
    kept = SnapKV(10, 16, 5).apply(*source, rope, chunk_tokens=160)
    assert kept.retained_tokens == 160
    decoded = decode_reference(prefill.model, kept.keys, kept.values, TAIL, NEW, rope=rope)
    expected, _ = greedy_without_a_cache(prefill.model, prefill.token_ids + TAIL)
    assert list(decoded.token_ids) == expected


def test_dropping_changes_the_answer(prefill: Any) -> None:
    """The must-miss of the test before: the given cache is really what is decoded from."""
    rope = rope_from_config(prefill.model.config.to_dict())
    source = (prefill.queries, prefill.keys, prefill.values, prefill.token_ids)
    kept = SnapKV(75, 16, 5).apply(*source, rope)
    decoded = decode_reference(prefill.model, kept.keys, kept.values, TAIL, NEW, rope=rope)
    expected, _ = greedy_without_a_cache(prefill.model, prefill.token_ids + TAIL)
    assert list(decoded.token_ids) != expected


@pytest.mark.parametrize(
    "rope_parameters",
    [
        {"rope_type": "default", "rope_theta": 10000.0},
        {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0},
        {
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 4.0,
            "original_max_position_embeddings": 64,
        },
        {
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    ],
    ids=lambda fields: fields["rope_type"],
)
def test_a_moved_suffix_answers_as_it_did_where_it_stood(
    make_prefill: Callable[..., Any], rope_parameters: dict[str, Any]
) -> None:
    """Attention sees distances only: hiding 70 tokens and moving the rest by 70 is the same."""
    full = make_prefill(rope_parameters=rope_parameters)
    rope = rope_from_config(full.model.config.to_dict())
    old, new = torch.arange(70, 160), torch.arange(90)
    keys = rerotate(full.keys[:, 70:], old, new, rope)
    decoded = decode_reference(full.model, keys, full.values[:, 70:], TAIL, NEW, rope=rope)

    # The same without a rotation: the whole cache, its first 70 rows masked.
    cache = transformers.DynamicCache()
    for layer in range(3):
        sides = (full.keys, full.values)
        cache.update(*(side[layer].transpose(0, 1)[None].clone() for side in sides), layer)
    named = inspect.signature(full.model.forward).parameters
    cache_argument = "cache" if "cache" in named else "past_key_values"
    step, at, expected = TAIL, 160, []
    with torch.inference_mode():
        while len(expected) < NEW:
            mask = torch.ones(1, at + len(step), dtype=torch.long)
            mask[:, :70] = 0
            logits = full.model(
                torch.tensor([step]),
                attention_mask=mask,
                position_ids=torch.arange(at, at + len(step))[None],
                **{cache_argument: cache},
            ).logits[0, -1]
            at, step = at + len(step), [int(logits.argmax())]
            expected += step
    assert list(decoded.token_ids) == expected
    unmoved = decode_reference(full.model, full.keys[:, 70:], full.values[:, 70:], TAIL, NEW)
    assert list(unmoved.token_ids) != expected


def test_end_of_sequence_ends_the_answer_and_is_part_of_it(prefill: Any) -> None:
    source = (prefill.keys, prefill.values, TAIL, NEW)
    whole = decode_reference(prefill.model, *source).token_ids
    stop = next(i for i in range(2, NEW) if whole[i] not in whole[:i])
    cut = decode_reference(prefill.model, *source, eos_token_ids=[whole[stop], 210])
    assert cut.token_ids == whole[: stop + 1]
    assert len(cut.top2_margins) == stop + 1
    ignored = decode_reference(prefill.model, *source, eos_token_ids=[whole[stop]], ignore_eos=True)
    assert ignored.token_ids == whole
    # Without the argument, the generation configuration's: a number or a list.
    for known in (whole[stop], [210, whole[stop]]):
        model = copy.copy(prefill.model)
        model.generation_config = transformers.GenerationConfig(eos_token_id=known)
        assert decode_reference(model, *source).token_ids == cut.token_ids


def test_given_cache_is_not_changed(prefill: Any) -> None:
    before = prefill.keys.clone(), prefill.values.clone()
    decode_reference(prefill.model, prefill.keys, prefill.values, TAIL, 2)
    assert torch.equal(prefill.keys, before[0])
    assert torch.equal(prefill.values, before[1])


LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0] * 8,
    "long_factor": [4.0] * 8,
    "original_max_position_embeddings": 512,
}


def test_another_table_than_the_engines_is_refused(make_prefill: Callable[..., Any]) -> None:
    """transformers takes the short factors for 164 tokens; an engine for 1024 the long ones."""
    full = make_prefill(tokens=160, rope_parameters=LONGROPE)
    config = full.model.config.to_dict()
    source = (full.model, full.keys, full.values, TAIL, 2)
    short = rope_from_config(config, max_model_len_tokens=512)
    assert len(decode_reference(*source, rope=short).token_ids) == 2
    with pytest.raises(TransformError, match="another table") as caught:
        decode_reference(*source, rope=rope_from_config(config, max_model_len_tokens=1024))
    assert caught.value.option == "rope"


def test_another_attention_scale_is_refused(make_prefill: Callable[..., Any]) -> None:
    """transformers honours yarn's attention_factor, vLLM does not read it."""
    fields = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "attention_factor": 1.5}
    fields["original_max_position_embeddings"] = 256
    full = make_prefill(tokens=40, rope_parameters=fields)
    rope = rope_from_config(full.model.config.to_dict())
    with pytest.raises(TransformError, match="attention scale"):
        decode_reference(full.model, full.keys, full.values, TAIL, 1, rope=rope)


def test_linear_table_is_recognised(make_prefill: Callable[..., Any]) -> None:
    fields = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
    full = make_prefill(tokens=40, rope_parameters=fields)
    rope = rope_from_config(full.model.config.to_dict())
    decode_reference(full.model, full.keys, full.values, TAIL, 1, rope=rope)
    wrong = dataclasses.replace(rope, scaling=(("factor", 2.0),))
    with pytest.raises(TransformError, match="another table"):
        decode_reference(full.model, full.keys, full.values, TAIL, 1, rope=wrong)


def test_refused(prefill: Any) -> None:
    model, keys, values = prefill.model, prefill.keys, prefill.values
    half = copy.deepcopy(model).half()
    training = copy.deepcopy(model).train()
    for arguments, option in [
        ((half, keys, values, TAIL, 1), "model"),
        ((training, keys, values, TAIL, 1), "model"),
        ((model, keys[:2], values[:2], TAIL, 1), "keys, values"),
        ((model, keys, values[:, :-1], TAIL, 1), "keys, values"),
        ((model, keys[0], values, TAIL, 1), "keys"),
        ((model, keys, values, [], 1), "tail_token_ids"),
        ((model, keys, values, TAIL, 0), "new_tokens"),
    ]:
        with pytest.raises(TransformError) as caught:
            decode_reference(*arguments)
        assert caught.value.option == option
