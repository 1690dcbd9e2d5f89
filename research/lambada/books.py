"""Novels from text to token ids and passages, in several worker processes."""

# T = tokens of a book, V = its distinct words
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
from functools import cache, partial
from itertools import chain, starmap
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from research.lambada.passages import (
    CLOSING_MARKS,
    END_MARKS,
    FUNCTION_WORDS,
    BookPassages,
    Bools,
    NgramIndex,
    PassageFilters,
    find_passages,
    previous_occurrence,
    sentence_starts,
    word_hash,
)
from research.lambada.sources import SourceText
from riffle.lambada.passages import Ints
from riffle.lambada.tokens import is_word, join_ellipses, tokenise_chunk

_PARAGRAPH = "\0"
_END, _CLOSING, _ANSWER, _FUNCTION, _WORD = 1, 2, 4, 8, 16
_OPENING = frozenset({"``", "`", "-lrb-", "-lsb-"})
_ANSWER_PATTERN = re.compile(r"[^\W\d_]{2,}(?:['-][^\W\d_]+)*|[^\W\d_](?:['-][^\W\d_]+)+")
_MOST_CACHED_CHUNKS = 1_000_000  # about 200 MB
_LEAST_CAPITALISED = 0.005
Result = TypeVar("Result")


@dataclass(frozen=True)
class Book:
    """A novel as token ids, with its passages."""

    name: str
    words: list[str]
    """Its distinct words ``[V]``."""
    tokens: NDArray[np.unsignedinteger]
    """For every token the index of its word, ``[T]``."""
    passages: BookPassages
    length: int
    """Words of the text as separated by blanks; there are about a quarter more tokens."""


class BookParser:
    """Tokenises novels and cuts passages without ``ngrams`` out of them; caches the tokens between two blanks.

    Examples::

        >>> parser = BookParser(PassageFilters(context=2, shortest_target=1), NgramIndex([], n=8))
        >>> book = parser.parse("tiny", "The cat sat. I saw the cat.")
        >>> [book.words[index] for index in book.tokens]
        ['the', 'cat', 'sat', '.', 'i', 'saw', 'the', 'cat', '.']
        >>> book.passages.examples["length"].tolist()
        [8]
    """

    def __init__(self, filters: PassageFilters, ngrams: NgramIndex) -> None:
        self.filters, self.ngrams = filters, ngrams
        self._ids: dict[str, int] = {}
        self._flags = bytearray()
        self._hashes = array("Q")
        self._cached_codes = cache(self._codes)

    def parse(self, name: str, text: str) -> Book:
        """The book of a text."""
        if self._cached_codes.cache_info().currsize > _MOST_CACHED_CHUNKS:
            self._cached_codes.cache_clear()
        chunks = _split_chunks(text)
        codes_T = np.fromiter(chain.from_iterable(map(self._cached_codes, chunks)), dtype=np.int64)
        paragraph_T = codes_T < 0
        break_T = np.roll(paragraph_T, 1)[~paragraph_T]
        codes_T = codes_T[~paragraph_T]
        ids_T, begins_T = codes_T >> 1, (codes_T & 1).astype(np.bool_)
        used_V = np.flatnonzero(np.bincount(ids_T, minlength=1))
        index_of_id = np.zeros(len(self._ids) + 1, dtype=np.uint16 if len(used_V) <= 1 << 16 else np.uint32)
        index_of_id[used_V] = np.arange(len(used_V))
        tokens_T = index_of_id[ids_T]
        words = list(self._ids)
        passages = self._find_passages(ids_T, previous_occurrence(tokens_T), begins_T, break_T)
        return Book(name, [words[id_] for id_ in used_V], tokens_T, passages, len(chunks) - int(paragraph_T.sum()))

    def _find_passages(self, ids_T: Ints, previous_T: Ints, begins_T: Bools, break_T: Bools) -> BookPassages:
        flags_T = np.frombuffer(bytes(self._flags), dtype=np.uint8)[ids_T]
        end_T, closing_T, answer_T, function_T, word_T = (
            (flags_T & flag).astype(np.bool_) for flag in (_END, _CLOSING, _ANSWER, _FUNCTION, _WORD)
        )
        if not (begins_T & answer_T).sum() > _LEAST_CAPITALISED * answer_T.sum():
            begins_T = begins_T | answer_T | function_T  # a text without capitals: every word can begin a sentence
        starts_S = sentence_starts(end_T, closing_T, begins_T, break_T)
        found = find_passages(starts_S, previous_T, end_T | closing_T, answer_T, function_T, self.filters)
        begin, last = self.ngrams.find(np.array(self._hashes, dtype=np.uint64)[ids_T], word_T)

        def without_overlap(examples: NDArray[np.void]) -> NDArray[np.void]:
            # The first n-gram that begins in an example is also the first to end, so it alone decides.
            first_end = np.append(last, len(ids_T))[np.searchsorted(begin, examples["start"])]
            return examples[first_end >= examples["start"] + examples["length"]]

        examples, mid_sentence = without_overlap(found.examples), without_overlap(found.mid_sentence)
        removed = len(found.examples) - len(examples)
        counts = found.counts | {"near-duplicate": removed, "within sentences": len(mid_sentence)}
        return BookPassages(examples, mid_sentence, counts)

    def _codes(self, chunk: str) -> tuple[int, ...]:
        """For every token of a chunk twice its word's id, plus 1 if it can begin a sentence; -1 for a paragraph."""
        if chunk == _PARAGRAPH:
            return (-1,)
        first = next((char for char in chunk if char.isalnum()), "a")
        capital = first.isupper() or first.isdigit()
        codes = []
        for token in tokenise_chunk(chunk):
            id_ = self._ids.setdefault(token, len(self._ids))
            if id_ == len(self._flags):  # a new word
                flags = _END * (token in END_MARKS) + _CLOSING * (token in CLOSING_MARKS) + _WORD * is_word(token)
                self._flags.append(flags + _ANSWER * can_be_answer(token) + _FUNCTION * (token in FUNCTION_WORDS))
                self._hashes.append(word_hash(token))
            codes.append(2 * id_ + (token in _OPENING or capital))
            capital = capital and token in _OPENING  # the capital letter belongs to the first word
        return tuple(codes)


def can_be_answer(token: str) -> bool:
    """Whether a token is a word of at least two letters; hyphens and apostrophes may join them."""
    return _ANSWER_PATTERN.fullmatch(token) is not None


def _split_chunks(text: str) -> list[str]:
    """The text split at blanks, and a mark where a paragraph ends: at a line end or, in wrapped text, an empty line."""
    text = join_ellipses(text.replace(_PARAGRAPH, " ").replace("\r\n", "\n"))
    lengths = [len(line) for line in text.split("\n", 2000)[:2000]]
    wrapped = "\n\n" in text and sorted(lengths)[len(lengths) * 99 // 100] < 100
    marked = re.sub(r"\n[ \t]*\n\s*", f" {_PARAGRAPH} ", text) if wrapped else text.replace("\n", f" {_PARAGRAPH} ")
    return marked.split()


def parse_books(
    texts: Iterable[SourceText], filters: PassageFilters, ngrams: NgramIndex, workers: int
) -> Iterator[tuple[int, Book]]:
    """Every book with the bytes of its source read so far; order and content do not depend on ``workers``."""
    if workers == 1:
        parser = BookParser(filters, ngrams)
        return ((text.consumed, parser.parse(text.name, text.read())) for text in texts)
    jobs = ((text.consumed, text.name, text.read()) for text in texts)
    return map_in_order(_parse_in_worker, jobs, workers, partial(_start_parser, filters, ngrams))


_parser: BookParser | None = None  # one in each worker process, so that its cache serves many books


def _start_parser(filters: PassageFilters, ngrams: NgramIndex) -> None:
    global _parser
    _parser = BookParser(filters, ngrams)


def _parse_in_worker(consumed: int, name: str, text: str) -> tuple[int, Book]:
    assert _parser is not None, "the process was not started by parse_books"
    return consumed, _parser.parse(name, text)


def map_in_order(
    function: Callable[..., Result],
    jobs: Iterable[tuple[Any, ...]],
    workers: int,
    initializer: Callable[[], None] | None = None,
) -> Iterator[Result]:
    """``function(*job)`` for every job in worker processes that first call ``initializer``; results in order.

    One worker is this process. Jobs are taken as they are needed: at most ``2 * workers`` of them wait in memory.
    """
    if workers == 1:
        if initializer is not None:
            initializer()
        yield from starmap(function, jobs)
        return
    # Spawned, because a forked process would inherit whatever locks other threads hold.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, _start_worker, (initializer,))
    pending: deque[Future[Result]] = deque()
    try:
        for job in jobs:
            pending.append(pool.submit(function, *job))
            if len(pending) > 2 * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool:
        raise OSError("a process died before its work was done, perhaps for want of memory: try --workers 1") from None
    finally:
        pool.shutdown(cancel_futures=True)


def _start_worker(initializer: Callable[[], None] | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the parent process
    if initializer is not None:
        initializer()
