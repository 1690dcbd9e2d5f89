"""One novel from text to tokens and examples; the part of the preparation that runs in several processes.

Work for several processes whose results come back in order.
"""

# T = tokens of a book, V = its different words
from __future__ import annotations

import multiprocessing
import re
import signal
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from riffle.lambada.passages import (
    CLOSING_MARKS,
    END_MARKS,
    FoundPassages,
    NgramIndex,
    PassageFilters,
    find_passages,
    previous_occurrence,
    sentence_starts,
    word_hash,
)
from riffle.lambada.sources import Text
from riffle.lambada.tokens import FUNCTION_WORDS, cut, is_word, unify

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
    found: FoundPassages
    """Its passages."""
    length: int
    """Words as one counts them in the text, between blanks; tokens are about a quarter more."""


class BookReader:
    """Turns novels into :class:`Book`; remembers how every chunk was cut, which makes it fast.

    Args:
        filters: Which sentences become examples.
        runs: Runs of words that no example may contain.

    Examples::

        >>> book = BookReader(PassageFilters(context=2, shortest_target=1)).read("tiny", "The cat sat. I saw the cat.")
        >>> [book.words[index] for index in book.tokens]
        ['the', 'cat', 'sat', '.', 'i', 'saw', 'the', 'cat', '.']
        >>> book.found.examples["length"].tolist()
        [8]
    """

    def __init__(self, filters: PassageFilters, runs: NgramIndex | None = None) -> None:
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
    ) -> FoundPassages:
        end_T, closing_T, word_T, function_T = (
            (kinds_T & kind).astype(np.bool_) for kind in (_END, _CLOSING, _ANSWERS, _FUNCTION)
        )
        if not (begins_T & word_T).sum() > _LEAST_CAPITALS * word_T.sum():
            begins_T = begins_T | word_T | function_T  # the text has no capitals: every word can begin a sentence
        starts_S = sentence_starts(end_T, closing_T, begins_T, break_T) if len(tokens_T) else np.empty(0, np.int64)
        return find_passages(
            starts_S, previous_occurrence(tokens_T), end_T | closing_T, word_T, function_T, self.filters
        )

    def _without_runs(self, found: FoundPassages, ids_T: NDArray[np.int64], word_T: NDArray[np.bool_]) -> FoundPassages:
        assert self.runs is not None
        begin, end = self.runs.find(np.array(self._hashes, dtype=np.uint64)[ids_T], word_T)

        def clean(examples: NDArray[np.void]) -> NDArray[np.bool_]:
            # The first run that begins in an example also ends first, so it alone decides.
            first = np.append(end, len(ids_T))[np.searchsorted(begin, examples["start"])]
            return first >= examples["start"] + examples["length"]

        kept, within = clean(found.examples), clean(found.within)
        counts = found.counts | {"near-duplicate": int((~kept).sum()), "within sentences": int(within.sum())}
        return FoundPassages(found.examples[kept], found.within[within], found.distance[kept], counts)

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

    def __init__(self, reader: BookReader) -> None:
        self._reader = reader

    def __missing__(self, chunk: str) -> tuple[int, ...]:
        self[chunk] = codes = self._reader.codes(chunk)
        return codes


def content_answer(word: str) -> bool:
    """Whether a word can be an answer and is no function word."""
    return bool(_ANSWER.fullmatch(word)) and word not in FUNCTION_WORDS


def _kind(token: str) -> int:
    answer, word = bool(_ANSWER.fullmatch(token)), is_word(token)
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


Result = TypeVar("Result")
_reader: BookReader | None = None  # each worker process has one, which remembers the chunks it has seen


def read_books(
    texts: Iterable[Text], filters: PassageFilters, runs: NgramIndex, workers: int
) -> Iterator[tuple[int, Book]]:
    """Every book with the bytes of its source read so far; the order and the books do not depend on ``workers``."""
    if workers == 1:
        reader = BookReader(filters, runs)
        return ((text.consumed, reader.read(text.name, text.read())) for text in texts)
    jobs = ((text.consumed, text.name, text.read()) for text in texts)
    return map_in_order(_read, jobs, workers, _start_reader, (filters, runs))


def map_in_order(
    function: Callable[..., Result],
    jobs: Iterable[tuple[Any, ...]],
    workers: int,
    start: Callable[..., None] | None = None,
    arguments: tuple[Any, ...] = (),
) -> Iterator[Result]:
    """``function(*job)`` for every job, by ``workers`` new processes, each of which first calls ``start``.

    Only a few jobs more than there are processes are in memory, however many there are.
    """
    # Spawned, because a forked process would inherit whatever locks other threads hold.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start, initargs=(start, arguments))
    waiting: deque[Future[Result]] = deque()
    try:
        for job in jobs:
            waiting.append(pool.submit(function, *job))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool:
        raise OSError("a process died before its work was done, perhaps for want of memory: try --workers 1") from None
    finally:
        pool.shutdown(cancel_futures=True)


def _start(start: Callable[..., None] | None, arguments: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    if start is not None:
        start(*arguments)


def _start_reader(filters: PassageFilters, runs: NgramIndex) -> None:
    global _reader
    _reader = BookReader(filters, runs)


def _read(consumed: int, name: str, text: str) -> tuple[int, Book]:
    assert _reader is not None, "the process was not started by read_books"
    return consumed, _reader.read(name, text)
