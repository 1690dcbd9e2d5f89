"""Writing a prepared corpus, as :class:`riffle.lambada.Corpus` reads it, and its statistics."""

# E = examples, W = tokens of the longest, V = distinct words
from __future__ import annotations

import contextlib
import glob
import io
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from riffle.files import LOCK_FILE, FolderInUse, FolderLock, write_atomically, write_json
from riffle.lambada.corpus import FORMAT, POSITIONS, RANK_CLASSES, STORED_DTYPE, Corpus

_TOKENS_AT_ONCE, _EXAMPLES_AT_ONCE = 1 << 22, 1 << 15


@contextlib.contextmanager
def atomic_folder(out: Path, overwrite: bool) -> Iterator[Path]:
    """A temporary folder to write to, which becomes ``out`` if the block succeeds and is deleted if it fails."""
    check_replaceable(out, overwrite)
    out.parent.mkdir(parents=True, exist_ok=True)
    for left in out.parent.glob(f".{glob.escape(out.name)}.{'[0-9a-f]' * 8}/{LOCK_FILE}"):
        with contextlib.suppress(FolderInUse), FolderLock(left.parent):  # a preparation that was killed
            shutil.rmtree(left.parent)
    temporary = out.absolute().with_name(f".{out.name}.{os.urandom(4).hex()}")
    old = temporary.with_name(f"{temporary.name}.old")
    try:
        with _ended_by_signals(), FolderLock(temporary):
            yield temporary
        for path in temporary.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        if out.exists():
            os.replace(out, old)
        os.replace(temporary, out)
    except OSError as error:
        if error.filename is None or str(temporary) in str(error.filename):
            error.filename, error.filename2 = str(out), None  # the user does not know the temporary name
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP, which end a process at once, are exceptions in the block, so that it is cleared up after."""

    def end(number: int, frame: object) -> None:
        sys.exit(128 + number)

    with contextlib.ExitStack() as restore:
        if threading.current_thread() is threading.main_thread():
            for each in {signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)}:  # Windows has one of them
                if signal.getsignal(each) is signal.SIG_DFL:
                    restore.callback(signal.signal, each, signal.signal(each, end))
        yield


def check_replaceable(out: Path, overwrite: bool) -> None:
    """Raise unless ``out`` is free, or a corpus that may be overwritten; nothing else is ever deleted."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not overwrite:
        raise ValueError(f"{out} exists already: choose another folder, or --overwrite to replace a corpus")
    Corpus(out)


class CorpusWriter:
    """Writes the token stream of a corpus, whose words can be ranked only after all texts were counted."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.length = folder, 0
        self._ids: dict[str, int] = {}
        self._counts = np.zeros(1 << 16, dtype=np.int64)
        self._file = (folder / "tokens.npy").open("w+b")
        self._begin = self._write_header()

    def append(self, words: Sequence[str], tokens_T: NDArray[np.integer], *, counted: bool = True) -> int:
        """Append tokens, indices into ``words``, and return the position of the first; ``counted`` by frequency."""
        ids = self._ids
        id_V = np.array([ids.setdefault(word, len(ids)) for word in words], dtype=np.int32)
        if len(ids) > len(self._counts):
            self._counts = np.append(self._counts, np.zeros(max(len(ids), len(self._counts)), dtype=np.int64))
        if counted and len(words):
            self._counts[id_V] += np.bincount(tokens_T, minlength=len(words))
        self._file.write(id_V[tokens_T].tobytes())
        begin, self.length = self.length, self.length + len(tokens_T)
        return begin

    def finish(self) -> None:
        """Finish ``tokens.npy``, write ``words.txt`` and ``counts.npy``; words of equal count in alphabetical order."""
        words, counts = list(self._ids), self._counts[: len(self._ids)]
        order = sorted(range(len(words)), key=lambda id_: (-counts[id_], words[id_]))  # whatever the order of texts
        rank_V = np.empty(len(words), dtype=np.int32)
        rank_V[order] = np.arange(len(words), dtype=np.int32)
        with self._file as file:
            for begin in range(self._begin, file.tell(), _TOKENS_AT_ONCE * rank_V.itemsize):
                file.seek(begin)
                ids_T = np.frombuffer(file.read(_TOKENS_AT_ONCE * rank_V.itemsize), dtype=np.int32)
                file.seek(begin)
                file.write(rank_V[ids_T].tobytes())
            file.seek(0)
            assert self._write_header() == self._begin, "numpy leaves room for any length"
        write_atomically(self.folder / "words.txt", "".join(f"{words[id_]}\n" for id_ in order).encode())
        save_array(self.folder / "counts.npy", counts[order])

    def _write_header(self) -> int:
        """Write the header of an array of the present length; returns where its data begins."""
        about = {"descr": "<i4", "fortran_order": False, "shape": (self.length,)}
        np.lib.format.write_array_header_1_0(self._file, about)
        return self._file.tell()


def write_examples(folder: Path, splits: Mapping[str, NDArray[np.void]], about: Mapping[str, Any]) -> None:
    """Write the examples of every split and, last, ``corpus.json``."""
    for split, examples in splits.items():
        for name in STORED_DTYPE.names or ():
            if len(examples) and examples[name].max() > (most := np.iinfo(STORED_DTYPE[name]).max):
                raise ValueError(f"a passage of {split} has a {name} of more than {most:,} tokens: give shorter ones")
        save_array(folder / f"{split}.npy", examples.astype(STORED_DTYPE))
    sizes = {split: len(examples) for split, examples in splits.items()}
    write_json(folder / "corpus.json", {"format": FORMAT, "splits": sizes, **about})


def save_array(path: Path, array: NDArray[Any]) -> None:
    """Write an array as ``.npy``, atomically."""
    content = io.BytesIO()  # to a file, numpy writes past Python, and a full disk would be an error without a name
    np.save(content, array)
    write_atomically(path, content.getvalue())


def corpus_statistics(corpus: Corpus, known_V: NDArray[np.bool_]) -> dict[str, Any]:
    """Token and word counts of a corpus with these known words; length and answers of the passages of each split."""
    tokens = int(corpus.counts.sum())
    return {
        "tokens": tokens,
        "different words": len(corpus.words),
        "unknown words": int(corpus.counts[~known_V].sum()) / max(tokens, 1),
        "splits": {split: _split_statistics(corpus, split, known_V) for split in corpus.splits},
    }


def _split_statistics(corpus: Corpus, split: str, known_V: NDArray[np.bool_]) -> dict[str, Any]:
    examples = corpus.examples(split)
    if not len(examples):
        return {"passages": 0}
    answers_E = corpus.tokens[examples["start"] + examples["length"] - 1]
    distance_E = _answer_distances(corpus.tokens, examples)
    unknown_E, answerable_E = ~known_V[answers_E], (distance_E > 0) & (distance_E < POSITIONS)
    class_E = np.searchsorted(list(RANK_CLASSES.values()), answers_E, side="right")
    classes = np.bincount(class_E, minlength=len(RANK_CLASSES)).tolist()
    return {
        "passages": len(examples),
        "mean length": float(examples["length"].mean()),
        "longer than 128": float((examples["length"] > POSITIONS).mean()),
        "answer in passage": float((distance_E > 0).mean()),
        "answerable": float(answerable_E.mean()),
        "unknown answers": float(unknown_E.mean()),
        "answerable unknown answers": float((unknown_E & answerable_E).mean()),
        "answers by rank": dict(zip(RANK_CLASSES, classes, strict=True)),
    }


def _answer_distances(tokens: NDArray[np.int32], examples: NDArray[np.void]) -> NDArray[np.int64]:
    """How many tokens before each answer its last occurrence in the context is, 0 if there is none, ``[E]``."""
    parts = []
    for begin in range(0, len(examples), _EXAMPLES_AT_ONCE):
        start_E1, length_E1 = (examples[name][begin : begin + _EXAMPLES_AT_ONCE, None] for name in ("start", "length"))
        answer_E1, back_W = start_E1 + length_E1 - 1, np.arange(1, length_E1.max())
        inside_EW = back_W < length_E1
        same_EW = inside_EW & (tokens[np.where(inside_EW, answer_E1 - back_W, 0)] == tokens[answer_E1])
        parts.append(np.where(same_EW.any(axis=1), same_EW.argmax(axis=1) + 1, 0))
    return np.concatenate(parts)
