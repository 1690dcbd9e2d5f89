"""A prepared corpus on disk; from a clone, ``python -m research lambada prepare`` makes one.

    corpus.json        format, settings and report; written last
    words.txt          the distinct words, most common first
    counts.npy         how often each occurs in the novels
    tokens.npy         the token stream, memory-mapped: int32 indices into words.txt
    SPLIT.npy          the examples of a split: train, validation, development, ...

Every word has an index, however rare; which of them a model knows is up to :class:`riffle.lambada.Vocabulary`.
"""

# E = examples, W = tokens of the longest, V = distinct words
from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from riffle.files import read_json, read_text
from riffle.lambada.passages import EXAMPLE_DTYPE
from riffle.quantities import quote
from riffle.schema import Range

FORMAT = "riffle-lambada-2"
AGAIN = "prepare the corpus again"
POSITIONS = 128
"""Positions of the paper's model, which reads the last 127 tokens before the answer."""
RANK_CLASSES = {"1-100": 100, "101-1,000": 1_000, "1,001-10,000": 10_000, "10,001-100,000": 100_000, "rarer": 1 << 62}
"""Frequency classes of words: the largest rank of each."""
STORED_DTYPE = np.dtype([("start", "<u4"), ("length", "<u2"), ("target", "<u2")])
"""Examples on disk; in memory they are wide enough to count with."""


class About(TypedDict):
    """What ``corpus.json`` must hold."""

    format: str
    splits: dict[str, Annotated[int, Range(ge=0)]]
    """Passages by split."""


class Corpus:
    """Reads a prepared corpus.

    Args:
        folder: Its folder; one without a finished corpus is a ``ValueError``.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        about = read_json(self.folder / "corpus.json", About, what="record of a corpus", remedy=AGAIN)
        if about is None:
            raise ValueError(f"{folder} holds no prepared corpus: make one with python -m research lambada prepare")
        self.about: About = about
        if about["format"] != FORMAT:
            raise ValueError(f"{folder} has the format {quote(about['format'])}, not {FORMAT!r}: {AGAIN}")

    @property
    def splits(self) -> list[str]:
        """The names of the splits."""
        return list(self.about["splits"])

    @property
    def held_out(self) -> list[str]:
        """The splits that are not trained on and have passages."""
        return [name for name, size in self.about["splits"].items() if size and name not in ("train", "within")]

    @cached_property
    def words(self) -> list[str]:
        """The distinct words, most common first; a token is an index into them."""
        path = self.folder / "words.txt"
        words = read_text(path).split("\n")[:-1]
        if len(words) != len(self.counts):
            raise ValueError(f"{path} has {len(words)} words, not {len(self.counts)}: {AGAIN}")
        return words

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """How often each word occurs in the novels."""
        return self._load("counts.npy", np.dtype(np.int64))

    @cached_property
    def tokens(self) -> NDArray[np.int32]:
        """The token stream, memory-mapped."""
        tokens = self._load("tokens.npy", np.dtype(np.int32), mmap_mode="c")  # torch wants to be able to write
        if len(tokens) and not 0 <= tokens.min() <= tokens.max() < len(self.counts):
            raise ValueError(f"{self.folder}/tokens.npy has tokens outside words.txt: {AGAIN}")
        return tokens

    def examples(self, split: str) -> NDArray[np.void]:
        """The examples of a split, as :data:`~riffle.lambada.passages.EXAMPLE_DTYPE`."""
        if split not in self.about["splits"]:
            raise ValueError(f"{self.folder} has no split {split!r}; it has {', '.join(self.splits)}")
        examples = self._load(f"{split}.npy", STORED_DTYPE).astype(EXAMPLE_DTYPE)
        start, length, target = (examples[name] for name in ("start", "length", "target"))
        inside = (start >= 0) & (length > 0) & (start <= len(self.tokens) - length) & (target >= 0) & (target < length)
        if len(examples) != self.about["splits"][split] or not inside.all():
            raise ValueError(f"{self.folder}/{split}.npy is not the file that was prepared: {AGAIN}")
        return examples

    def passage(self, example: np.void) -> tuple[list[str], str]:
        """The words of an example's context, and its answer."""
        start, length = int(example["start"]), int(example["length"])
        words = [self.words[token] for token in self.tokens[start : start + length]]
        return words[:-1], words[-1]

    def _load(self, name: str, dtype: np.dtype[Any], **options: Any) -> NDArray[Any]:
        path = self.folder / name
        try:
            array = np.load(path, allow_pickle=False, **options)
        except FileNotFoundError:
            raise ValueError(f"{path} is missing: {AGAIN}") from None
        except OSError:
            raise
        except Exception as error:  # numpy evaluates headers as Python, which can raise anything
            raise ValueError(f"{path} is cut short or damaged ({error}): {AGAIN}") from None
        if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype != dtype:
            raise ValueError(f"{path} is no list of {dtype}: {AGAIN}")
        return array
