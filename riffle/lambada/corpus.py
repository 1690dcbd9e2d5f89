"""A prepared corpus on disk: one memory-mapped stream of tokens and an index of examples for every split.

    corpus.json        the form, the settings and the report; written last
    words.txt          the different words, most common first
    counts.npy         how often each occurs in the novels
    tokens.npy         int32, for every token the number of its word
    SPLIT.npy          the examples of a split: train, validation, development, ...

Every word has a number here, however rare; which of them a model knows is for
:class:`riffle.lambada.Vocabulary` to say.

Writes a corpus: in a folder beside the final one, which takes its place only when everything is there.

What a prepared corpus holds, in numbers.
"""

# E = examples, W = tokens of the longest, V = different words
from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from riffle.lambada.passages import EXAMPLE_DTYPE

FORMAT = "riffle-lambada-1"


class Passage(NamedTuple):
    """A passage and its answer."""

    context: list[str]
    """The words before the answer."""
    answer: str
    """The word that was there."""


class Corpus:
    """Reads what ``riffle lambada prepare`` wrote.

    Args:
        folder: The folder it wrote.

    Raises:
        ValueError: The folder holds no finished corpus.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        try:
            self.about: dict[str, Any] = json.loads((self.folder / "corpus.json").read_text())
        except FileNotFoundError:
            raise ValueError(f"{folder} holds no prepared corpus: make one with riffle lambada prepare") from None
        except json.JSONDecodeError as error:
            raise ValueError(f"{folder}/corpus.json is damaged ({error}): prepare the corpus again") from None
        if self.about.get("format") != FORMAT:
            raise ValueError(f"{folder} has the form {self.about.get('format')!r}, not {FORMAT!r}: prepare it again")

    @property
    def splits(self) -> list[str]:
        """The names of the splits."""
        return list(self.about["splits"])

    @property
    def held_out(self) -> list[str]:
        """The splits that nothing is learned from, as far as they have passages."""
        return [name for name, size in self.about["splits"].items() if size and name not in ("train", "within")]

    @cached_property
    def words(self) -> list[str]:
        """The different words, most common first; a token is an index into them."""
        words = (self.folder / "words.txt").read_text(encoding="utf-8").split("\n")[:-1]
        if len(words) != len(self.counts):
            raise ValueError(
                f"{self.folder}/words.txt has {len(words)} words, not {len(self.counts)}: prepare it again"
            )
        return words

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """How often each word occurs in the novels."""
        return self._load("counts.npy")

    @cached_property
    def tokens(self) -> NDArray[np.int32]:
        """The stream, memory-mapped."""
        return self._load("tokens.npy", mapped=True)

    def examples(self, split: str) -> NDArray[np.void]:
        """The examples of a split: ``start`` in the stream, ``length`` with the answer, offset of the ``target``."""
        if split not in self.about["splits"]:
            raise ValueError(f"{self.folder} has no split {split!r}; it has {', '.join(self.splits)}")
        examples = self._load(f"{split}.npy")
        if examples.dtype != EXAMPLE_DTYPE or len(examples) != self.about["splits"][split]:
            raise ValueError(f"{self.folder}/{split}.npy is not the file that was prepared: prepare it again")
        return examples

    def passage(self, example: np.void) -> Passage:
        """An example in words."""
        start, length = int(example["start"]), int(example["length"])
        words = [self.words[number] for number in self.tokens[start : start + length]]
        return Passage(words[:-1], words[-1])

    def last_tokens(self, examples: NDArray[np.void], width: int) -> NDArray[np.int32]:
        """The last ``width`` tokens of every example, the answer last, int32 ``[E, width]``; -1 where there is none."""
        offset = np.arange(-width, 0)
        length = examples["length"].astype(np.int64)[:, None]
        inside = offset >= -length
        where = np.where(inside, examples["start"][:, None] + length + offset, 0)
        return np.where(inside, self.tokens[where], np.int32(-1))

    def _load(self, name: str, mapped: bool = False) -> NDArray[Any]:
        path = self.folder / name
        try:
            return np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
        except FileNotFoundError:
            raise ValueError(f"{path} is missing: prepare the corpus again") from None
        except (ValueError, EOFError) as error:
            raise ValueError(f"{path} is cut short or damaged ({error}): prepare the corpus again") from None


_BLOCK_store = 1 << 22


@contextlib.contextmanager
def staged(out: Path, overwrite: bool) -> Iterator[Path]:
    """A folder to write to; it becomes ``out`` if the block ends without an exception, and vanishes otherwise."""
    refuse_existing(out, overwrite)
    out.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}."))
    old = staging.with_name(f"{staging.name}.old")
    try:
        yield staging
        for file in staging.iterdir():
            _sync(file)
        staging.chmod(0o755)
        if out.exists():
            os.replace(out, old)
        os.replace(staging, out)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def refuse_existing(out: Path, overwrite: bool) -> None:
    """Raise unless ``out`` is free, or holds a corpus that may be replaced."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not overwrite:
        raise ValueError(f"{out} exists already: choose another folder, or --overwrite to replace a corpus")
    Corpus(out)  # whatever is no corpus of ours is never deleted


class Stream:
    """The tokens of all books, one behind the other, while their words are still being counted.

    Args:
        folder: Where the stream grows.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.length = folder, 0
        self.numbers: dict[str, int] = {}
        self.counts = np.zeros(1 << 16, dtype=np.int64)
        self._path = folder / "tokens.raw"
        self._file = self._path.open("wb")

    def add(self, words: Sequence[str], tokens_T: NDArray[np.integer], *, counted: bool = True) -> int:
        """Append tokens, given as indices into ``words``; returns where they begin."""
        new = self.numbers
        number_V = np.array([new.setdefault(word, len(new)) for word in words], dtype=np.int32)
        if len(new) > len(self.counts):
            self.counts = np.concatenate([self.counts, np.zeros(max(len(new), len(self.counts)), dtype=np.int64)])
        if counted and len(words):
            self.counts[number_V] += np.bincount(tokens_T, minlength=len(words))
        number_V[tokens_T].tofile(self._file)
        begin, self.length = self.length, self.length + len(tokens_T)
        return begin

    def finish(self) -> tuple[list[str], NDArray[np.int64]]:
        """Write ``tokens.npy``, ``words.txt`` and ``counts.npy`` with the most common word first; returns the last two.

        Words that are equally common stand in alphabetical order, so the result does not depend on the order of work.
        """
        self._file.close()
        words = list(self.numbers)
        counts = self.counts[: len(words)]
        order = sorted(range(len(words)), key=lambda number: (-counts[number], words[number]))
        rank_V = np.empty(len(words), dtype=np.int32)
        rank_V[order] = np.arange(len(words), dtype=np.int32)
        if self.length:
            raw = np.memmap(self._path, dtype=np.int32, mode="r")
            shape = (self.length,)
            tokens = np.lib.format.open_memmap(self.folder / "tokens.npy", mode="w+", dtype=np.int32, shape=shape)
            for begin in range(0, self.length, _BLOCK_store):
                tokens[begin : begin + _BLOCK_store] = rank_V[raw[begin : begin + _BLOCK_store]]
            tokens.flush()
            del tokens, raw
        self._path.unlink()
        words = [words[number] for number in order]
        (self.folder / "words.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
        np.save(self.folder / "counts.npy", counts[order])
        return words, counts[order]


def write_index(folder: Path, splits: Mapping[str, NDArray[np.void]], about: Mapping[str, Any]) -> None:
    """Write the examples of every split and, last, ``corpus.json``."""
    for split, examples in splits.items():
        np.save(folder / f"{split}.npy", examples)
    sizes = {split: len(examples) for split, examples in splits.items()}
    content = json.dumps({"format": FORMAT, "splits": sizes, **about}, indent=2, ensure_ascii=False)
    (folder / "corpus.json").write_text(content + "\n", encoding="utf-8")


def _sync(file: Path) -> None:
    with file.open("rb") as handle:
        os.fsync(handle.fileno())


POSITIONS = 128
"""Positions of the paper's model: of a longer passage only the last so many tokens are read."""
RANK_CLASSES = {"1-100": 100, "101-1,000": 1_000, "1,001-10,000": 10_000, "10,001-100,000": 100_000, "rarer": None}
"""Frequency classes of words by their rank in the novels."""
_BLOCK = 1 << 15


def describe(corpus: Corpus, known_V: NDArray[np.bool_]) -> dict[str, Any]:
    """Numbers about a corpus and each of its splits.

    Args:
        corpus: The corpus.
        known_V: Which of its words a model would know.
    """
    total = max(int(corpus.counts.sum()), 1)
    unknown = int(corpus.counts[~known_V].sum())
    return {
        "tokens": int(corpus.counts.sum()),
        "different words": len(corpus.words),
        "unknown words": unknown / total,
        "splits": {split: describe_split(corpus, split, known_V) for split in corpus.splits},
    }


def describe_split(corpus: Corpus, split: str, known_V: NDArray[np.bool_]) -> dict[str, Any]:
    """Passages, lengths, whether the answer occurs, whether it is known, and how common it is."""
    examples = corpus.examples(split)
    if not len(examples):
        return {"passages": 0}
    answers, anywhere, reachable = _answers(corpus, examples)
    unknown = ~known_V[answers]
    limits = [limit for limit in RANK_CLASSES.values() if limit is not None]
    classes = np.bincount(np.searchsorted(limits, answers, side="right"), minlength=len(RANK_CLASSES))
    return {
        "passages": len(examples),
        "mean length": float(examples["length"].mean()),
        "longer than 128": float((examples["length"] > POSITIONS).mean()),
        "answer in passage": float(anywhere.mean()),
        "answerable": float(reachable.mean()),
        "unknown answers": float(unknown.mean()),
        "answerable unknown answers": float((unknown & reachable).mean()),
        "answers by rank": {name: int(count) for name, count in zip(RANK_CLASSES, classes, strict=True)},
    }


def known_words(corpus: Corpus, words: list[str] | None, most_common: int = 60_000) -> NDArray[np.bool_]:
    """Which words of a corpus are among ``words``, or among its most common ones if no list is given."""
    if words is None:
        return np.arange(len(corpus.words)) < most_common
    table = frozenset(words)
    return np.fromiter((word in table for word in corpus.words), dtype=np.bool_, count=len(corpus.words))


def _answers(
    corpus: Corpus, examples: NDArray[np.void]
) -> tuple[NDArray[np.int32], NDArray[np.bool_], NDArray[np.bool_]]:
    """For every example its answer, whether that occurs before, and whether so in what the model reads."""
    answers, anywhere, reachable = [], [], []
    for begin in range(0, len(examples), _BLOCK):
        some = examples[begin : begin + _BLOCK]
        tokens_EW = corpus.last_tokens(some, max(int(some["length"].max()), POSITIONS))
        same_EW = tokens_EW[:, :-1] == tokens_EW[:, -1:]
        answers.append(tokens_EW[:, -1])
        anywhere.append(same_EW.any(axis=1))
        reachable.append(same_EW[:, 1 - POSITIONS :].any(axis=1))
    return np.concatenate(answers), np.concatenate(anywhere), np.concatenate(reachable)
