# SPDX-License-Identifier: Apache-2.0
"""Small deterministic tokenizers for tests of the probes. Loaded by path."""

import re

from kvseal.errors import OptionError

BOS, BEFORE, AFTER = 1, (2, 3, 4, 5, 6), (7, 8)
RESERVED = 16


class Bytes:
    """One token a UTF-8 byte: a cut in the middle of a character would show."""

    has_bos = True
    before, after = BEFORE, AFTER

    def encode(self, text):
        return [RESERVED + byte for byte in text.encode("utf-8")]

    def decode(self, token_ids):
        data = bytes(token - RESERVED for token in token_ids if token >= RESERVED)
        return data.decode("utf-8")

    def bos(self):
        return [BOS] if self.has_bos else []

    def chat_frame(self):
        return list(self.before), list(self.after)


class Words(Bytes):
    """One token a word or sign with the space before it, as most tokenizers come out."""

    def __init__(self):
        self._known = []

    def encode(self, text):
        return [RESERVED + self._number(part) for part in re.findall(r" ?\w+| ?[^\w ]| ", text)]

    def decode(self, token_ids):
        return "".join(self._known[token - RESERVED] for token in token_ids if token >= RESERVED)

    def _number(self, part):
        if part not in self._known:
            self._known.append(part)
        return self._known.index(part)


class LongFrame(Words):
    """A chat template of 40 tokens before and 9 after the content; no first token."""

    has_bos = False
    before, after = tuple([2] * 40), tuple([7] * 9)


class Base(Words):
    """A base model: no chat template."""

    def chat_frame(self):
        raise OptionError(
            "the model has no chat template",
            option="--prompt-format",
            value="chat",
            remedy="use --prompt-format raw",
        )


TOKENIZERS = (Bytes, Words, LongFrame)
