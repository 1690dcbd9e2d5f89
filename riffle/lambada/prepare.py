"""From novels to a training set: the whole preparation, book by book in several processes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from riffle.lambada.book import Book, content_answer
from riffle.lambada.corpus import Corpus
from riffle.lambada.overlap import Runs, word_hash
from riffle.lambada.parallel import read_books
from riffle.lambada.passages import Passages, index, read_evaluation, read_passages
from riffle.lambada.report import describe, known_words
from riffle.lambada.sentences import EXAMPLE, Filters
from riffle.lambada.sources import novels, size, texts
from riffle.lambada.store import Stream, staged, write_index
from riffle.lambada.table import Vectors
from riffle.lambada.vectors import load_vectors


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to prepare."""

    out: Path
    """The folder to make."""
    novels: Sequence[Path] = ()
    """Novels: files, archives or folders of them."""
    passages: Sequence[Path] = ()
    """Ready-made training passages, one a line."""
    evaluation: Sequence[Path] = ()
    """Passages to measure by; no training example may share a run of words with one."""
    vectors: Path | None = None
    """A word table; the corpus keeps a copy of it that loads fast."""
    filters: Filters = field(default_factory=Filters)
    """Which sentences become examples."""
    run: int = 8
    """So many words in a row, shared with an evaluation passage, exclude an example."""
    validation: float = 0.02
    """Share of the books kept for validation, at least one of two or more."""
    most: int | None = None
    """Training examples with the same answer, at most; nearly all of ``said`` teach the same."""
    workers: int = 2
    """Processes; 1 works without any but this one."""
    overwrite: bool = False
    """Replace a corpus that is there."""

    def __post_init__(self) -> None:
        if not 0 <= self.validation < 1:
            raise ValueError(f"validation is {self.validation}: give a share of the books from 0 up to less than 1")
        if not self.novels and not self.passages:
            raise ValueError("there is nothing to learn from: give novels or passages")
        if self.workers < 1:
            raise ValueError(f"workers is {self.workers}: give at least 1")
        if self.most is not None and self.most < 1:
            raise ValueError(f"most is {self.most}: give at least 1, or nothing for no limit")


class _Indexed(NamedTuple):
    """A book in the stream."""

    name: str
    examples: NDArray[np.void]
    within: NDArray[np.void]


Progress = Callable[[int, int], None]
"""Called after every book with the bytes of the sources that were read and the words so far."""


def prepare(plan: Plan, on_progress: Progress | None = None) -> dict[str, Any]:
    """Prepare a corpus and return its report, which is in ``corpus.json`` as well."""
    began = time.perf_counter()
    with staged(plan.out, plan.overwrite) as folder:
        evaluation = read_evaluation(plan.evaluation)
        runs = Runs(list(chain.from_iterable(evaluation.values())), plan.run)
        stream = Stream(folder)
        books, read, counts = _add_novels(plan, runs, stream, on_progress)
        seconds = time.perf_counter() - began
        ready = _wanted(
            [p for path in plan.passages for t in texts(path) for p in read_passages(t)], runs, plan, counts
        )
        splits = _split(books, plan.validation)
        splits["train"] = np.concatenate([splits["train"], _add_passages(stream, ready, counted=True)])
        if not len(splits["train"]):
            raise ValueError(
                f"no training passage was found in {len(books)} books: give more text or loosen the filters"
            )
        for split, passages in evaluation.items():
            splits[split] = _add_passages(stream, passages, counted=False)
        stream.finish()
        if plan.most is not None:
            kept = _at_most(splits["train"], np.load(folder / "tokens.npy", mmap_mode="r"), plan.most)
            counts["same answer"] = len(splits["train"]) - len(kept)
            splits["train"] = kept
        table = load_vectors(plan.vectors, folder / "vectors.safetensors", plan.workers) if plan.vectors else None
        about: dict[str, Any] = {"settings": _settings(plan)}
        write_index(folder, splits, about)  # the report is made from what is on disk, as a reader would see it
        corpus = Corpus(folder)
        known_V = known_words(corpus, table.words if table else None)
        report = describe(corpus, known_V) | {
            "known words": _known(plan.vectors, table),
            "answer in passage": counts["answer in passage, function words too"] / max(counts["targets"], 1),
            "books": len(books),
            "ready-made passages": len(ready),
            "sentences and targets": dict(counts),
            "words read": read,
            "seconds": seconds,
            "words per second": read / seconds,
            "seconds in all": time.perf_counter() - began,
        }
        write_index(folder, splits, about | {"report": report})
    return report


def total_size(plan: Plan) -> int:
    """Bytes of the novels on disk, the end of the progress bar."""
    return sum(size(path) for path in plan.novels)


def _add_novels(
    plan: Plan, runs: Runs, stream: Stream, on_progress: Progress | None
) -> tuple[list[_Indexed], int, Counter[str]]:
    books: list[_Indexed] = []
    counts: Counter[str] = Counter()
    read, before = 0, 0
    for path in plan.novels:
        for consumed, book in read_books(novels(path), plan.filters, runs, plan.workers):
            books.append(_add_book(stream, book))
            counts.update(book.found.counts)
            read += book.length
            if on_progress:
                on_progress(before + consumed, read)
        before += size(path)
    if plan.novels and not books:
        raise ValueError(f"there are no novels (.txt, .txt.xz, .tar.xz) in {', '.join(map(str, plan.novels))}")
    return books, read, counts


def _add_book(stream: Stream, book: Book) -> _Indexed:
    examples, within = book.found.examples.copy(), book.found.within.copy()
    begin = stream.add(book.words, book.tokens)
    examples["start"] += begin
    within["start"] += begin
    return _Indexed(book.name, examples, within)


def _add_passages(stream: Stream, passages: Passages, *, counted: bool) -> NDArray[np.void]:
    words = list(dict.fromkeys(chain.from_iterable(passages)))
    numbers = {word: number for number, word in enumerate(words)}
    tokens = np.array([numbers[word] for word in chain.from_iterable(passages)], dtype=np.int64)
    return index(passages, stream.add(words, tokens, counted=counted))


def _wanted(passages: Passages, runs: Runs, plan: Plan, counts: Counter[str]) -> Passages:
    """The ready-made passages that pass the same filters as those of the novels."""
    wanted = []
    for passage in passages:
        if plan.filters.content and not content_answer(passage[-1]):
            counts["function word"] += 1
        elif plan.filters.in_passage and passage[-1] not in passage[:-1]:
            counts["answer not in passage"] += 1
        elif runs.within(passage):
            counts["near-duplicate"] += 1
        else:
            wanted.append(passage)
    return wanted


def _split(books: list[_Indexed], share: float) -> dict[str, NDArray[np.void]]:
    """Whole books to either side, chosen by a hash of their names, so that a new book moves hardly any other."""
    held = max(round(share * len(books)), 1) if share and len(books) > 1 else 0
    chosen = set(sorted(range(len(books)), key=lambda number: word_hash(books[number].name))[:held])
    nothing = np.empty(0, dtype=EXAMPLE)
    return {
        "train": np.concatenate([nothing, *(book.examples for i, book in enumerate(books) if i not in chosen)]),
        "validation": np.concatenate([nothing, *(book.examples for i, book in enumerate(books) if i in chosen)]),
        "within": np.concatenate([nothing, *(book.within for i, book in enumerate(books) if i not in chosen)]),
    }


def _known(path: Path | None, table: Vectors | None) -> str:
    return f"the {len(table.words):,} words of {path.name}" if table and path else "the 60,000 most common words"


def _at_most(examples: NDArray[np.void], tokens: NDArray[np.int32], most: int) -> NDArray[np.void]:
    """The examples without those, chosen at random but always alike, that are too many for their answer."""
    mixed = np.random.default_rng(0).permutation(len(examples))
    answers = tokens[examples["start"] + examples["length"] - 1][mixed]
    order = np.argsort(answers, kind="stable")
    first = np.searchsorted(answers[order], answers[order])
    return examples[np.sort(mixed[order[np.arange(len(order)) - first < most]])]


def _settings(plan: Plan) -> dict[str, Any]:
    """What the result depends on; names instead of paths, which mean nothing on another machine."""
    names = {key: [path.name for path in getattr(plan, key)] for key in ("novels", "passages", "evaluation")}
    return names | {"filters": asdict(plan.filters), "run": plan.run, "validation": plan.validation, "most": plan.most}
