"""One novel from text to tokens and examples; the part of the preparation that runs in several processes."""

# T = tokens of a book, V = its different words
from __future__ import annotations

import re
from array import array
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from riffle.lambada.function_words import FUNCTION_WORDS
from riffle.lambada.overlap import Runs, is_words, word_hash
from riffle.lambada.sentences import (
    CLOSING_MARKS,
    END_MARKS,
    Filters,
    Found,
    find_passages,
    previous_occurrence,
    sentence_starts,
)
from riffle.lambada.tokens import cut, unify

PARAGRAPH = "\0"
_END, _CLOSING, _ANSWERS, _FUNCTION, _WORD = 1, 2, 4, 8, 16
_OPENING = frozenset({"``", "`", "-lrb-", "-lsb-"})
_ANSWER = re.compile(r"[^\W\d_]{2,}(?:['-][^\W\d_]+)*|[^\W\d_](?:['-][^\W\d_]+)+")
_CHUNKS = 1_000_000  # remembered at most, about 200 MB
_LEAST_CAPITALS = 0.005


@dataclass(frozen=True)
class Book:
    """A novel as numbers."""

    name: str
    words: list[str]
    """Its different words ``[V]``."""
    tokens: NDArray[np.unsignedinteger]
    """For every token the index of its word, ``[T]``."""
    found: Found
    """Its passages."""
    length: int
    """Words as one counts them in the text, between blanks; tokens are about a quarter more."""


class Reader:
    """Turns novels into :class:`Book`; remembers how every chunk was cut, which makes it fast.

    Args:
        filters: Which sentences become examples.
        runs: Runs of words that no example may contain.

    Examples::

        >>> book = Reader(Filters(context=2, shortest_target=1)).read("tiny", "The cat sat. I saw the cat.")
        >>> [book.words[index] for index in book.tokens]
        ['the', 'cat', 'sat', '.', 'i', 'saw', 'the', 'cat', '.']
        >>> book.found.examples["length"].tolist()
        [8]
    """

    def __init__(self, filters: Filters, runs: Runs | None = None) -> None:
        self.filters, self.runs = filters, runs
        self._ids: dict[str, int] = {}
        self._words: list[str] = []
        self._kinds = bytearray()
        self._hashes = array("Q")
        self._chunks = _Chunks(self)

    def read(self, name: str, text: str) -> Book:
        """The book of a text."""
        if len(self._chunks) > _CHUNKS:
            self._chunks.clear()
        chunks = _split(text)
        codes_T = np.fromiter(chain.from_iterable(map(self._chunks.__getitem__, chunks)), dtype=np.int64)
        break_T = codes_T < 0
        length = len(chunks) - int(break_T.sum())
        codes_T, break_T = codes_T[~break_T], _shift(break_T)
        ids_T, begins_T = codes_T >> 1, (codes_T & 1).astype(np.bool_)
        used_V = np.flatnonzero(np.bincount(ids_T, minlength=1))
        compact = np.zeros(len(self._words) + 1, dtype=np.uint16 if len(used_V) <= 1 << 16 else np.uint32)
        compact[used_V] = np.arange(len(used_V))
        tokens_T = compact[ids_T]
        kinds_T = np.frombuffer(bytes(self._kinds), dtype=np.uint8)[ids_T]
        found = self._passages(tokens_T, kinds_T, begins_T, break_T)
        if self.runs is not None:
            found = self._without_runs(found, ids_T, (kinds_T & _WORD).astype(np.bool_))
        return Book(name, [self._words[index] for index in used_V], tokens_T, found, length)

    def _passages(
        self,
        tokens_T: NDArray[np.unsignedinteger],
        kinds_T: NDArray[np.uint8],
        begins_T: NDArray[np.bool_],
        break_T: NDArray[np.bool_],
    ) -> Found:
        end_T, closing_T, word_T, function_T = (
            (kinds_T & kind).astype(np.bool_) for kind in (_END, _CLOSING, _ANSWERS, _FUNCTION)
        )
        if not (begins_T & word_T).sum() > _LEAST_CAPITALS * word_T.sum():
            begins_T = begins_T | word_T | function_T  # the text has no capitals: every word can begin a sentence
        starts_S = sentence_starts(end_T, closing_T, begins_T, break_T) if len(tokens_T) else np.empty(0, np.int64)
        return find_passages(
            starts_S, previous_occurrence(tokens_T), end_T | closing_T, word_T, function_T, self.filters
        )

    def _without_runs(self, found: Found, ids_T: NDArray[np.int64], word_T: NDArray[np.bool_]) -> Found:
        assert self.runs is not None
        begin, end = self.runs.find(np.array(self._hashes, dtype=np.uint64)[ids_T], word_T)

        def clean(examples: NDArray[np.void]) -> NDArray[np.bool_]:
            # The first run that begins in an example also ends first, so it alone decides.
            first = np.append(end, len(ids_T))[np.searchsorted(begin, examples["start"])]
            return first >= examples["start"] + examples["length"]

        kept, within = clean(found.examples), clean(found.within)
        counts = found.counts | {"near-duplicate": int((~kept).sum()), "within sentences": int(within.sum())}
        return Found(found.examples[kept], found.within[within], found.distance[kept], counts)

    def codes(self, chunk: str) -> tuple[int, ...]:
        """For every token of a chunk twice its word's number, plus 1 if it can begin a sentence."""
        if chunk == PARAGRAPH:
            return (-1,)
        first = next((char for char in chunk if char.isalnum()), "a")
        capital = first.isupper() or first.isdigit()
        codes = []
        for token in cut(chunk):
            begins = token in _OPENING or capital
            capital = capital and token in _OPENING  # the capital belongs to the first word
            codes.append(2 * self._number(token) + begins)
        return tuple(codes)

    def _number(self, word: str) -> int:
        number = self._ids.setdefault(word, len(self._words))
        if number == len(self._words):
            self._words.append(word)
            self._kinds.append(_kind(word))
            self._hashes.append(word_hash(word))
        return number


class _Chunks(dict[str, tuple[int, ...]]):
    """How chunks are cut, found out at their first use."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def __missing__(self, chunk: str) -> tuple[int, ...]:
        self[chunk] = codes = self._reader.codes(chunk)
        return codes


def content_answer(word: str) -> bool:
    """Whether a word can be an answer and is no function word."""
    return bool(_ANSWER.fullmatch(word)) and word not in FUNCTION_WORDS


def _kind(token: str) -> int:
    answer, word = bool(_ANSWER.fullmatch(token)), is_words([token])[0]
    marks = _END * (token in END_MARKS) + _CLOSING * (token in CLOSING_MARKS)
    return marks + _ANSWERS * answer + _FUNCTION * (token in FUNCTION_WORDS) + _WORD * word


def _split(text: str) -> list[str]:
    """The chunks of a text, with :data:`PARAGRAPH` where a paragraph ends."""
    text = unify(text.replace(PARAGRAPH, " ").replace("\r\n", "\n"))
    lengths = [len(line) for line in text.split("\n", 2000)[:2000]]  # the beginning shows how lines are used
    wrapped = "\n\n" in text and sorted(lengths)[len(lengths) * 99 // 100] < 100
    marked = re.sub(r"\n[ \t]*\n\s*", f" {PARAGRAPH} ", text) if wrapped else text.replace("\n", f" {PARAGRAPH} ")
    return marked.split()


def _shift(break_T: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which of the other tokens follow a paragraph mark."""
    follows = np.zeros(len(break_T), dtype=np.bool_)
    follows[1:] = break_T[:-1]
    return follows[~break_T]
