"""A prepared corpus on disk: one memory-mapped stream of tokens and an index of examples for every split.

    corpus.json        the form, the settings and the report; written last
    words.txt          the different words, most common first
    counts.npy         how often each occurs in the novels
    tokens.npy         int32, for every token the number of its word
    SPLIT.npy          the examples of a split: train, validation, development, ...

Every word has a number here, however rare; which of them a model knows is for :class:`riffle.lambada.Words` to say.
"""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from riffle.lambada.sentences import EXAMPLE

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
        if examples.dtype != EXAMPLE or len(examples) != self.about["splits"][split]:
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
