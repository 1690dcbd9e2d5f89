"""A passage as a person types it, and the words a model would end it with."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from riffle.lambada.overlap import is_words
from riffle.lambada.tokens import tokenise

_LAST_BLANK = re.compile(r"(?<!\S)_{2,}\W*$")
_BLANK = re.compile(r"(?<!\S)_{2,}(?!\w)")


class Candidate(NamedTuple):
    """A word that may be missing."""

    word: str
    probability: float
    """Of all its occurrences together."""
    positions: list[int]
    """Where it stands among the tokens of the passage."""


def read_question(text: str) -> list[str]:
    """The tokens of a passage without its last word, in place of which it may have a blank such as ``___``.

    >>> read_question("Zoe met Tim. Then Tim left ___.")
    ['zoe', 'met', 'tim', '.', 'then', 'tim', 'left']
    """
    known = _LAST_BLANK.sub("", text)
    if _BLANK.search(known):
        raise ValueError("the passage has a blank before its end: only a last word can be found, so end it there")
    tokens = tokenise(known)
    if not tokens:
        raise ValueError("the passage is empty: give the words before the one to be found")
    if not any(is_words(tokens)):
        raise ValueError(f"the passage has no words to choose from, only the marks {' '.join(tokens)}: give some words")
    return tokens


def candidates(tokens: Sequence[str], likely: Mapping[str, float], most: int) -> list[Candidate]:
    """The most likely words, marks left out.

    Args:
        tokens: The passage.
        likely: Words and how likely they are.
        most: How many words, at most.
    """
    words = [word for word, worth in zip(likely, is_words(list(likely)), strict=True) if worth]
    best = sorted(words, key=lambda word: -likely[word])[:most]
    return [Candidate(word, likely[word], [at for at, token in enumerate(tokens) if token == word]) for word in best]
