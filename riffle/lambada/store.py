"""Writes a corpus: in a folder beside the final one, which takes its place only when everything is there."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from riffle.lambada.corpus import FORMAT, Corpus

_BLOCK = 1 << 22


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
            for begin in range(0, self.length, _BLOCK):
                tokens[begin : begin + _BLOCK] = rank_V[raw[begin : begin + _BLOCK]]
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
