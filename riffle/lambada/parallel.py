"""Work for several processes whose results come back in order."""

from __future__ import annotations

import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from riffle.lambada.book import Book, Reader
from riffle.lambada.overlap import Runs
from riffle.lambada.sentences import Filters
from riffle.lambada.sources import Text

Result = TypeVar("Result")

_reader: Reader | None = None  # each worker process has one, which remembers the chunks it has seen


def read_books(texts: Iterable[Text], filters: Filters, runs: Runs, workers: int) -> Iterator[tuple[int, Book]]:
    """Every book with the bytes of its source read so far; the order and the books do not depend on ``workers``."""
    if workers == 1:
        reader = Reader(filters, runs)
        return ((text.consumed, reader.read(text.name, text.read())) for text in texts)
    jobs = ((text.consumed, text.name, text.read()) for text in texts)
    return in_order(_read, jobs, workers, _start_reader, (filters, runs))


def in_order(
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


def _start_reader(filters: Filters, runs: Runs) -> None:
    global _reader
    _reader = Reader(filters, runs)


def _read(consumed: int, name: str, text: str) -> tuple[int, Book]:
    assert _reader is not None, "the process was not started by read_books"
    return consumed, _reader.read(name, text)
