# SPDX-License-Identifier: Apache-2.0
"""The words of a probe, cut to a length in token IDs.

Facts that a question at the end asks back, among sentences that say little:
the kind of text in which a wrong KV entry changes an answer within a few
tokens, and that a small model continues sensibly. Pieces are encoded one by
one and joined as IDs, so every length can be had exactly; what is cut is a
line of plain ASCII words, so the IDs always decode to whole characters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvseal.errors import OptionError
from kvseal.workload.draws import Draws
from kvseal.workload.filler import filler_sentence
from kvseal.workload.fitting import PADDING_WORDS

Encode = Callable[[str], list[int]]

TITLES = (
    "Archive", "Bakery", "Chapel", "Depot", "Estate", "Ferry", "Guild", "Harbour", "Inn", "Jetty",
    "Kitchen", "Library", "Market", "Nursery", "Observatory", "Port", "Quarry", "Railway",
    "School", "Theatre", "University", "Vineyard", "Workshop", "Yard",
)  # fmt: skip
"""One opens each prompt. No two begin with the same letter, so prompts differ from the start."""

NAMES = (
    "Anna", "Boris", "Chen", "Dalia", "Emil", "Farah", "Goran", "Hana", "Ivan", "Julia", "Karim",
    "Lena", "Marco", "Nadia", "Oscar", "Petra",
)  # fmt: skip
THINGS = (
    "lamp", "rope", "book", "drum", "vase", "coin", "map", "clock", "knife", "mirror", "basket",
    "violin", "ladder", "candle", "hammer", "blanket",
)  # fmt: skip
SIDES = ("north", "south", "east", "west")

SCRIPTS = (
    "東京の図書館では{n}冊の古い本が静かに読まれている。",
    "The gardener planted {n} seeds 🌱🌻 and watched the birds 🐦 fly by 🌈.",
    "في المكتبة القديمة {n} كتابًا على الرف الأول.",
    "L'élève a déjà rangé {n} clés près de la fenêtre.",
    "在北京的市场上，商人卖出了{n}盏灯。",
    "Старый паром перевёз {n} книг через реку.",
    "בספרייה הישנה יש {n} ספרים על המדף.",
    "The family 👨‍👩‍👧 counted {n} stars ✨ from the bridge 🌉.",
    "서울의 박물관에는 시계가 {n}개 있다.",
    "Ο φύλακας άναψε {n} λάμπες στο λιμάνι.",
    "Der Bäcker aus Köln verkaufte {n} süße Brötchen an größere Gäste.",
    "Trời mưa, và {n} chiếc thuyền nằm yên bên bờ sông.",
    "हर सुबह {n} बच्चे नदी के पास खेलते हैं।",
    "A la señora Núñez le gustan {n} canciones de otoño.",
)
"""CJK, emoji (one joined), right-to-left, accented and Indic text; {n} tells repeats apart."""

TAIL_OPENINGS = ("Meanwhile it was quiet.", "Later there was music.")
"""How the two tails of a shared-prefix pair begin, so that they part at once."""

MISSES = 3
"""Sentences that may come out too long in a row before the rest is padded."""


def titles(draws: Draws, count: int) -> list[str]:
    """Return `count` different titles in drawn order; at most len(TITLES)."""
    return draws.sample(TITLES, count)


def opening(title: str, draws: Draws) -> str:
    """Return how a prompt begins: short, its title first, and different for each seed."""
    return f"{title} notes {draws.digits(3)} by {draws.choice(NAMES)}."


@dataclass(frozen=True)
class Fact:
    """Who keeps what; the room is drawn when the sentence is written."""

    name: str
    thing: str

    def sentence(self, draws: Draws) -> str:
        """Return the fact with a drawn room."""
        room = 10 + draws.below(90)
        side = draws.choice(SIDES)
        return f" {self.name} keeps the {self.thing} in room {room} of the {side} wing."

    def question(self, prompt_format: str) -> str:
        """Return the end of a prompt that asks for this fact.

        A raw prompt breaks off in the middle of a sentence: asked in question
        form, small chat models end their answer after a few tokens.
        """
        if prompt_format == "chat":
            return f" Where does {self.name} keep the {self.thing}, and who keeps what else?"
        return f" So, as noted above, {self.name} keeps the {self.thing} in room"


def facts(draws: Draws) -> list[Fact]:
    """Return every fact there is once, in drawn order; the first is the one to ask for."""
    every = [Fact(name, thing) for name in NAMES for thing in THINGS]
    return draws.sample(every, len(every))


class Body:
    """Sentences of one prompt, given out in exact numbers of tokens."""

    def __init__(self, known: list[Fact], draws: Draws, encode: Encode, *, unicode: bool) -> None:
        self._facts = known
        self._draws = draws
        self._encode = encode
        self._scripts = draws.sample(SCRIPTS, len(SCRIPTS)) if unicode else []
        self._given = 0

    def tokens(self, count: int) -> list[int]:
        """Return `count` tokens: whole sentences, then padding for what is left."""
        found: list[int] = []
        misses = 0
        while len(found) < count and misses < MISSES:
            sentence = self._encode(self._sentence())
            fits = 0 < len(sentence) <= count - len(found)
            found += sentence if fits else []
            misses = 0 if fits else misses + 1
        return found + padding(count - len(found), self._encode)

    def _sentence(self) -> str:
        turn, self._given = self._given, self._given + 1
        if self._scripts and turn % 3 == 0:
            script = self._scripts[turn // 3 % len(self._scripts)]
            return " " + script.format(n=self._draws.digits(2))
        if turn % 3 == 1:
            return " " + filler_sentence(self._draws)
        return self._facts[turn % len(self._facts)].sentence(self._draws)


def padding(count: int, encode: Encode) -> list[int]:
    """Return `count` tokens of short ASCII words, ended by a full stop where that is one token.

    Raises:
        OptionError: when the tokenizer makes fewer tokens of a line than it has words.
    """
    stop = encode(".")
    end = stop if len(stop) == 1 and count > 1 else []
    words = [PADDING_WORDS[place % len(PADDING_WORDS)] for place in range(count)]
    line = encode(" " + " ".join(words).capitalize()) if words else []
    if len(line) < count:
        raise OptionError(
            "the tokenizer makes fewer tokens of a line than it has words",
            option="--tokenizer",
            value=f"{len(line)} tokens for {count} words",
            expected="at least one token a word",
            remedy="name the tokenizer that belongs to the model",
        )
    return line[: count - len(end)] + end
