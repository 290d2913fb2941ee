# SPDX-License-Identifier: Apache-2.0
"""Make a text of exactly so many tokens around given facts and a question.

The facts stand at drawn depths among filler sentences. Whole sentences come
first, then one line of short words takes up what is left, so the text itself
has the wanted length: its token IDs are what a tokenizer makes of it, and no
prompt is cut in the middle of a word. Called by the tasks of this package.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

from kvseal.errors import OptionError
from kvseal.workload.draws import Draws
from kvseal.workload.filler import filler_sentence
from kvseal.workload.prompt import Tokenizer

PADDING_START = "Also seen:"
PADDING_WORDS = ("rain", "snow", "sand", "wood", "glass", "stone", "salt", "a", "to", "ice", "so")
MAX_RETRIES = 4


@dataclass(frozen=True)
class Fact:
    """A sentence of the prompt that matters, and how deep it stands: 0 first, 1 last."""

    depth: float
    sentence: str


@dataclass(frozen=True)
class Composition:
    """A prompt before it has a length.

    `header` opens the text and must differ between prompts, so that no two
    share their first chunk of tokens. `question` ends it without a trailing
    space, so that the model's next token is the answer's first.
    """

    header: str
    facts: tuple[Fact, ...]
    question: str
    expected: tuple[str, ...]


def header(dataset: str, index: int, draws: Draws) -> str:
    """Return an opening that no other prompt of the run has; unique by dataset and index."""
    letters = "".join(draws.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(4))
    return f"Page {index} of {dataset.replace('_', ' ')} ({letters})."


def fit(
    composition: Composition, tokens: int, tokenizer: Tokenizer, draws: Draws
) -> tuple[str, tuple[int, ...]]:
    """Return the text of exactly `tokens` tokens, and its token IDs.

    Raises:
        OptionError: when the facts and question alone are longer, or no padding
            brings this tokenizer to exactly that length.
    """
    sentences: list[str] = []

    def text(count: int, padding: str = "") -> str:
        while len(sentences) < count:
            sentences.append(filler_sentence(draws))
        return _render(composition, sentences[:count], padding)

    def length(count: int, padding: str = "") -> int:
        return len(tokenizer.encode(text(count, padding)))

    count = _most_sentences(length, tokens)
    for fewer in range(1, MAX_RETRIES + 1):
        if count < fewer:
            break
        padding = _padding(lambda words, n=count - fewer: length(n, words), tokens)  # type: ignore[misc]
        if padding is not None:
            result = text(count - fewer, padding)
            return result, tuple(tokenizer.encode(result))
    if length(count) == tokens:
        return text(count), tuple(tokenizer.encode(text(count)))
    raise OptionError(
        f"no text of this task comes to exactly {tokens} tokens with this tokenizer",
        option="WORKFLOW_KNLP_LMCACHE_SNAPKV_PROMPT_TOKENS",
        value=tokens,
        expected=f"some {length(0) + 40} or more",
        remedy="ask for another prompt length",
    )


def _render(composition: Composition, filler: list[str], padding: str) -> str:
    """Join the parts; each fact goes before the filler sentence at its depth."""
    parts: list[list[str]] = [[] for _ in range(len(filler) + 1)]
    for fact in composition.facts:
        parts[round(fact.depth * len(filler))].append(fact.sentence)
    lines = [composition.header]
    for position, facts in enumerate(parts):
        lines += facts
        lines += filler[position : position + 1]
    lines += [padding] if padding else []
    return " ".join([*lines, composition.question])


def _most_sentences(length: Callable[[int], int], tokens: int) -> int:
    """Return the largest number of filler sentences that stays within `tokens`."""
    empty = length(0)
    if empty > tokens:
        raise OptionError(
            "the prompt is too short to hold this task's facts and question",
            option="WORKFLOW_KNLP_LMCACHE_SNAPKV_PROMPT_TOKENS",
            value=tokens,
            expected=f"at least {empty + 40}",
            remedy="ask for longer prompts or for fewer needles, pairs or hops",
        )
    low, high = 0, 8
    while length(high) <= tokens:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if length(middle) <= tokens else (low, middle)
    return low


def _padding(length: Callable[[str], int], tokens: int) -> str | None:
    """Return a line of words that brings the text to `tokens`, or None if there is none."""

    def line(words: list[str]) -> str:
        return f"{PADDING_START} {' '.join(words)}."

    words = [PADDING_WORDS[0]]
    missing = tokens - length(line(words))
    if missing < 0:
        return None
    while missing > 0:
        # One common word is one token to most tokenizers; where it is more, the
        # next round takes some away or the pairs below settle the rest.
        more = range(len(words), len(words) + max(1, missing // 2))
        longer = words + [PADDING_WORDS[position % 7] for position in more]
        if length(line(longer)) > tokens:
            break
        words, missing = longer, tokens - length(line(longer))
    if missing == 0:
        return line(words)
    for tail in product(("", *PADDING_WORDS), repeat=3):
        candidate = words + [word for word in tail if word]
        if length(line(candidate)) == tokens:
            return line(candidate)
    return None
