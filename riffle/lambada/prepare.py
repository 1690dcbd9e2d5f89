"""Ready-made passages, one a line, whose last word is the answer: LAMBADA's own files and others of their form.

From novels to a training set: the whole preparation, book by book in several processes.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from riffle.lambada.books import Book, content_answer, read_books
from riffle.lambada.corpus import Corpus, Stream, describe, known_words, staged, write_index
from riffle.lambada.passages import CLOSING_MARKS, END_MARKS, EXAMPLE_DTYPE, NgramIndex, PassageFilters, word_hash
from riffle.lambada.sources import EVALUATION, Text, evaluation, novels, size, texts
from riffle.lambada.tokens import tokenise
from riffle.lambada.vectors import WordVectors, load_vectors

TokenisedPassages = list[list[str]]


def read_passages(text: Text) -> TokenisedPassages:
    """The passages of a file; empty lines are passed over.

    A file in which every line is lower case was tokenised before and is taken word for word, other text is tokenised.
    """
    content = text.read()
    cut = str.split if content == content.lower() else tokenise
    passages = [cut(line) for line in content.split("\n") if line.strip()]
    if not passages:
        raise ValueError(f"{text.name} holds no passage: one a line is expected")
    for number, passage in enumerate(passages, 1):
        if len(passage) < 2:
            raise ValueError(f"passage {number} of {text.name} is one word: an answer needs words before it")
    return passages


def read_evaluation(paths: Iterable[Path]) -> dict[str, TokenisedPassages]:
    """Passages by split. LAMBADA's file names say which split they are, any other file is named by itself."""
    splits: dict[str, TokenisedPassages] = {}
    for path in paths:
        found = list(_named(path))
        if not found:
            raise ValueError(f"{path} holds none of LAMBADA's files {', '.join(f'{name}.txt' for name in EVALUATION)}")
        for split, passages in found:
            if split in splits or split in ("train", "validation", "within"):
                raise ValueError(f"{path} would be a second split {split!r}: rename the file or leave it out")
            splits[split] = passages
    return splits


def _named(path: Path) -> Iterable[tuple[str, TokenisedPassages]]:
    whole = path.is_dir() or ".tar" in path.name or path.name.endswith(".tgz")
    for text in evaluation(path) if whole else texts(path):
        yield EVALUATION.get(text.stem, text.stem), read_passages(text)


def index_passages(passages: Sequence[Sequence[str]], begin: int) -> NDArray[np.void]:
    """The examples of passages that lie one behind the other from token ``begin`` of a stream on."""
    examples = np.empty(len(passages), dtype=EXAMPLE_DTYPE)
    examples["length"] = [len(passage) for passage in passages]
    examples["start"] = begin + np.cumsum(examples["length"], dtype=np.int64) - examples["length"]
    examples["target"] = [target_start(passage) for passage in passages]
    return examples


def target_start(passage: Sequence[str]) -> int:
    """Where the last sentence of a passage begins, as far as one can tell without capitals: after any end mark.

    >>> target_start("he ran . she saw him".split()), target_start("`` no ! '' he said".split())
    (3, 4)
    """
    marks = END_MARKS | CLOSING_MARKS
    last = len(passage) - 1
    while last > 0 and passage[last] in marks:
        last -= 1
    for at in range(last, 0, -1):
        before = at - 1
        while before > 0 and passage[before] in CLOSING_MARKS:
            before -= 1
        if passage[before] in END_MARKS and passage[at] not in CLOSING_MARKS and passage[at] not in END_MARKS:
            return at
    return 0


@dataclass(frozen=True, kw_only=True)
class PrepareConfig:
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
    filters: PassageFilters = field(default_factory=PassageFilters)
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


def prepare(plan: PrepareConfig, on_progress: Progress | None = None) -> dict[str, Any]:
    """Prepare a corpus and return its report, which is in ``corpus.json`` as well."""
    began = time.perf_counter()
    with staged(plan.out, plan.overwrite) as folder:
        evaluation = read_evaluation(plan.evaluation)
        runs = NgramIndex(list(chain.from_iterable(evaluation.values())), plan.run)
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


def total_size(plan: PrepareConfig) -> int:
    """Bytes of the novels on disk, the end of the progress bar."""
    return sum(size(path) for path in plan.novels)


def _add_novels(
    plan: PrepareConfig, runs: NgramIndex, stream: Stream, on_progress: Progress | None
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


def _add_passages(stream: Stream, passages: TokenisedPassages, *, counted: bool) -> NDArray[np.void]:
    words = list(dict.fromkeys(chain.from_iterable(passages)))
    numbers = {word: number for number, word in enumerate(words)}
    tokens = np.array([numbers[word] for word in chain.from_iterable(passages)], dtype=np.int64)
    return index_passages(passages, stream.add(words, tokens, counted=counted))


def _wanted(
    passages: TokenisedPassages, runs: NgramIndex, plan: PrepareConfig, counts: Counter[str]
) -> TokenisedPassages:
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
    nothing = np.empty(0, dtype=EXAMPLE_DTYPE)
    return {
        "train": np.concatenate([nothing, *(book.examples for i, book in enumerate(books) if i not in chosen)]),
        "validation": np.concatenate([nothing, *(book.examples for i, book in enumerate(books) if i in chosen)]),
        "within": np.concatenate([nothing, *(book.within for i, book in enumerate(books) if i not in chosen)]),
    }


def _known(path: Path | None, table: WordVectors | None) -> str:
    return f"the {len(table.words):,} words of {path.name}" if table and path else "the 60,000 most common words"


def _at_most(examples: NDArray[np.void], tokens: NDArray[np.int32], most: int) -> NDArray[np.void]:
    """The examples without those, chosen at random but always alike, that are too many for their answer."""
    mixed = np.random.default_rng(0).permutation(len(examples))
    answers = tokens[examples["start"] + examples["length"] - 1][mixed]
    order = np.argsort(answers, kind="stable")
    first = np.searchsorted(answers[order], answers[order])
    return examples[np.sort(mixed[order[np.arange(len(order)) - first < most]])]


def _settings(plan: PrepareConfig) -> dict[str, Any]:
    """What the result depends on; names instead of paths, which mean nothing on another machine."""
    names = {key: [path.name for path in getattr(plan, key)] for key in ("novels", "passages", "evaluation")}
    return names | {"filters": asdict(plan.filters), "run": plan.run, "validation": plan.validation, "most": plan.most}
