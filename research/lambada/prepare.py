"""From novels to a training corpus: tokenise, cut passages, filter, split by book, write.

Books are parsed in several processes; the result does not depend on how many.
"""

# E = examples, V = words of the corpus
from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from research.lambada.books import can_be_answer, parse_books
from research.lambada.corpus import CorpusWriter, atomic_folder, corpus_statistics, write_examples
from research.lambada.passages import FUNCTION_WORDS, BookPassages, NgramIndex, PassageFilters, target_start, word_hash
from research.lambada.sources import evaluation_texts, novel_texts, source_bytes, source_texts, token_bytes
from research.lambada.tables import read_table
from riffle.lambada.corpus import Corpus
from riffle.lambada.passages import EXAMPLE_DTYPE, TokenisedPassages, evaluation_splits, index_passages, split_passages
from riffle.lambada.vectors import write_vectors
from riffle.quantities import format_bytes

MAX_WORKERS = 1024
MOST_COMMON = 60_000
"""Words that count as known in the report of a corpus without vectors."""


@dataclass(frozen=True, kw_only=True)
class PrepareConfig:
    """What a corpus is prepared from, and how."""

    out: Path
    """The folder to write."""
    novels: Sequence[Path] = ()
    """Novels: files, archives or folders of them."""
    passages: Sequence[Path] = ()
    """Files of training passages, one a line."""
    evaluation: Sequence[Path] = ()
    """Files of evaluation passages; no training example may share an n-gram of words with one."""
    vectors: Path | None = None
    """A table of word vectors; the corpus keeps a copy that loads fast."""
    filters: PassageFilters = field(default_factory=PassageFilters)
    """Which sentences become passages."""
    ngram: int = 8
    """Words in a row, shared with an evaluation passage, that exclude a training example."""
    validation: float = 0.02
    """Share of the books that are held out for validation, at least one book of two or more."""
    max_per_answer: int | None = None
    """Most training examples with the same answer, None for no limit; common answers such as ``said`` repeat a lot."""
    workers: int = 2
    """Worker processes; with 1 everything runs in this process."""
    overwrite: bool = False
    """Replace an existing corpus."""

    def __post_init__(self) -> None:
        if not 0 <= self.validation < 1:
            raise ValueError(f"validation is {self.validation}: give a share of the books from 0 up to less than 1")
        if not self.novels and not self.passages:
            raise ValueError("there is nothing to learn from: give novels or passages")
        if not 1 <= self.workers <= MAX_WORKERS:
            raise ValueError(f"workers is {self.workers}: give 1 to {MAX_WORKERS}")
        if self.max_per_answer is not None and self.max_per_answer < 1:
            raise ValueError(f"most is {self.max_per_answer}: give at least 1, or nothing for no limit")

    def settings(self) -> dict[str, Any]:
        """The settings that decide the result, for ``corpus.json``; file names in place of paths."""
        names = {key: [path.name for path in getattr(self, key)] for key in ("novels", "passages", "evaluation")}
        numbers = {"run": self.ngram, "validation": self.validation, "most": self.max_per_answer}
        return names | {"filters": asdict(self.filters)} | numbers


Progress = Callable[[int, int], None]
"""Called after every book with the bytes of the novels and the words read so far."""


def prepare(config: PrepareConfig, on_progress: Progress = lambda consumed, words: None) -> dict[str, Any]:
    """Prepare a corpus and return its report, which is in ``corpus.json`` as well."""
    began = time.perf_counter()
    _check_room(config)
    with atomic_folder(config.out, config.overwrite) as folder:
        evaluation = evaluation_splits(text for path in config.evaluation for text in evaluation_texts(path))
        ngrams = NgramIndex(chain.from_iterable(evaluation.values()), config.ngram)
        writer = CorpusWriter(folder)
        books, words, counts = _add_novels(config, ngrams, writer, on_progress)
        seconds = time.perf_counter() - began
        texts = (text for path in config.passages for text in source_texts(path))
        given = [passage for text in texts for passage in split_passages(text.read(), text.name)]
        given = _filter_passages(given, ngrams, config.filters, counts)
        splits = _split_by_book(books, config.validation)
        splits["train"] = np.concatenate([splits["train"], _add_passages(writer, given, counted=True)])
        if not len(splits["train"]):
            raise ValueError(f"no training passage was found in {len(books)} books: give more text or loosen filters")
        for split, passages in evaluation.items():
            splits[split] = _add_passages(writer, passages, counted=False)
        writer.finish()
        if config.max_per_answer is not None:
            tokens = np.load(folder / "tokens.npy", mmap_mode="r")
            kept = _limit_per_answer(splits["train"], tokens, config.max_per_answer)
            counts["same answer"] = len(splits["train"]) - len(kept)
            splits["train"] = kept
        about = {"settings": config.settings()}
        write_examples(folder, splits, about)
        corpus = Corpus(folder)  # the report is made from the files, as a reader sees them
        if config.vectors:
            vectors = read_table(config.vectors, config.workers)
            write_vectors(folder / "vectors.safetensors", vectors)
            table = set(vectors.words)
            known_V = np.array([word in table for word in corpus.words], dtype=np.bool_)
            known = f"the {len(table):,} words of {config.vectors.name}"
        else:
            known_V, known = np.arange(len(corpus.words)) < MOST_COMMON, f"the {MOST_COMMON:,} most common words"
        report = corpus_statistics(corpus, known_V) | {
            "known words": known,
            "answer in passage": counts["answer in passage, function words too"] / max(counts["targets"], 1),
            "books": len(books),
            "ready-made passages": len(given),
            "sentences and targets": dict(counts),
            "words read": words,
            "seconds": seconds,
            "words per second": words / seconds,
            "seconds in all": time.perf_counter() - began,
        }
        write_examples(folder, splits, about | {"report": report})
    return report


def _check_room(config: PrepareConfig) -> None:
    """Raise a ``ValueError`` if the disk has less room than the tokens and vectors take at the very least."""
    needed = sum(map(token_bytes, (*config.novels, *config.passages)))
    if config.vectors:
        needed += config.vectors.stat().st_size // 5  # 2 bytes for a number of 8 or more characters
    disk = next(folder for folder in config.out.absolute().parents if folder.exists())
    free = shutil.disk_usage(disk).free
    if needed > free:
        rooms = f"{format_bytes(needed)} at least, and {format_bytes(free)} are free"
        raise ValueError(f"{config.out} will take {rooms}: make room, or choose a folder on another disk")


def _add_novels(
    config: PrepareConfig, ngrams: NgramIndex, writer: CorpusWriter, on_progress: Progress
) -> tuple[list[tuple[str, BookPassages]], int, Counter[str]]:
    """Write the tokens of all novels; return the passages of each, the number of words, and what was left out."""
    books = []
    counts: Counter[str] = Counter()
    words, bytes_before = 0, 0
    for path in config.novels:
        for consumed, book in parse_books(novel_texts(path), config.filters, ngrams, config.workers):
            begin = writer.append(book.words, book.tokens)
            book.passages.examples["start"] += begin
            book.passages.mid_sentence["start"] += begin
            books.append((book.name, book.passages))
            counts.update(book.passages.counts)
            words += book.length
            on_progress(bytes_before + consumed, words)
        bytes_before += source_bytes(path)
    if config.novels and not books:
        raise ValueError(f"there are no novels (.txt, .txt.xz, .tar.xz) in {', '.join(map(str, config.novels))}")
    return books, words, counts


def _add_passages(writer: CorpusWriter, passages: TokenisedPassages, *, counted: bool) -> NDArray[np.void]:
    """Write the tokens of passages; return their examples."""
    words, tokens_T, examples = index_passages(passages)
    examples["target"] = [target_start(passage) for passage in passages]
    examples["start"] += writer.append(words, tokens_T, counted=counted)
    return examples


def _filter_passages(
    passages: TokenisedPassages, ngrams: NgramIndex, filters: PassageFilters, counts: Counter[str]
) -> TokenisedPassages:
    """The given training passages that pass the same filters as those cut from novels."""
    kept = []
    for passage in passages:
        *context, answer = passage
        if filters.content and (not can_be_answer(answer) or answer in FUNCTION_WORDS):
            counts["function word"] += 1
        elif filters.in_passage and answer not in context:
            counts["answer not in passage"] += 1
        elif ngrams.overlaps(passage):
            counts["near-duplicate"] += 1
        else:
            kept.append(passage)
    return kept


def _split_by_book(books: list[tuple[str, BookPassages]], validation: float) -> dict[str, NDArray[np.void]]:
    """Examples by split. A hash of its name decides the split of a book, so a new book moves hardly any other."""
    held_out = max(round(validation * len(books)), 1) if validation and len(books) > 1 else 0
    order = sorted(range(len(books)), key=lambda index: word_hash(books[index][0]))
    trained, validated = ([books[index][1] for index in sorted(part)] for part in (order[held_out:], order[:held_out]))
    empty = np.empty(0, dtype=EXAMPLE_DTYPE)
    return {
        "train": np.concatenate([empty, *(book.examples for book in trained)]),
        "validation": np.concatenate([empty, *(book.examples for book in validated)]),
        "within": np.concatenate([empty, *(book.mid_sentence for book in trained)]),
    }


def _limit_per_answer(examples: NDArray[np.void], tokens: NDArray[np.int32], limit: int) -> NDArray[np.void]:
    """At most ``limit`` examples of every answer, a random choice with a fixed seed; their order is kept."""
    shuffled = np.random.default_rng(0).permutation(len(examples))
    answers = tokens[examples["start"] + examples["length"] - 1][shuffled]
    order = np.argsort(answers, kind="stable")
    first = np.searchsorted(answers[order], answers[order])
    return examples[np.sort(shuffled[order[np.arange(len(order)) - first < limit]])]
