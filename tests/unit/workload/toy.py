# SPDX-License-Identifier: Apache-2.0
"""Small tokenizers for tests, each awkward in its own way. Loaded by path."""

import re


class Letters:
    """One token a character."""

    def encode(self, text):
        return [ord(character) for character in text]

    def decode(self, token_ids):
        return "".join(map(chr, token_ids))


class Words:
    """A begin token, then one token a word, digit or sign, as most BPE tokenizers come out."""

    def __init__(self):
        self.known = {}

    def encode(self, text):
        parts = re.findall(r" ?[A-Za-z_]+|[0-9]| ?[^A-Za-z0-9_ ]| ", text)
        return [1] + [2 + self._number(part) for part in parts]

    def decode(self, token_ids):
        texts = list(self.known)
        return "".join(texts[token - 2] for token in token_ids[1:])

    def _number(self, part):
        return self.known.setdefault(part, len(self.known))


class Pairs:
    """One token for two characters: some lengths can only be reached by words of one length."""

    def encode(self, text):
        return [hash_pair(text[start : start + 2]) for start in range(0, len(text), 2)]

    def decode(self, token_ids):
        return ""


def hash_pair(text):
    return sum(ord(character) << (8 * place) for place, character in enumerate(text))


TOKENIZERS = (Letters, Words, Pairs)
