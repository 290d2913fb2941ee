# SPDX-License-Identifier: Apache-2.0
"""Text in exact numbers of tokens, and what stands where a sentence does not fit."""

import pytest

from kvseal.workload.draws import Draws
from kvseal.workload.probes.text import Body, facts, padding, titles


@pytest.mark.parametrize("count", range(8))
def test_padding_has_its_length_and_ends_as_a_sentence(toys, count):
    for tokenizer in (toys.Words(), toys.Bytes()):
        ids = padding(count, tokenizer.encode)
        assert len(ids) == count
        assert tokenizer.decode(ids).endswith(".") == (count > 1)


def test_titles_differ_in_their_first_letter():
    drawn = titles(Draws("t"), 24)
    assert len({title[0] for title in drawn}) == 24


def test_facts_do_not_contradict_each_other():
    known = facts(Draws("t"))
    assert len({(fact.name, fact.thing) for fact in known}) == len(known)


@pytest.mark.parametrize("unicode", [False, True])
def test_a_body_goes_on_where_it_left_off(toys, unicode):
    tokenizer = toys.Words()
    body = Body(facts(Draws("f")), Draws("b"), tokenizer.encode, unicode=unicode)
    first, second = body.tokens(200), body.tokens(200)
    assert len(first) == len(second) == 200
    assert first != second
    assert tokenizer.decode(first).isascii() != unicode
