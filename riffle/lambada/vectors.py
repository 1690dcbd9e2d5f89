"""Pretrained word vectors: fastText's ``.vec``, GloVe's text, int8 tables in ``.npz``; kept as safetensors."""

# V = words, D = numbers of a vector
from __future__ import annotations

import gzip
import lzma
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from itertools import starmap
from pathlib import Path
from typing import IO, cast

import numpy as np
from numpy.typing import NDArray

from riffle.lambada.parallel import in_order
from riffle.lambada.rounding import unrounded
from riffle.lambada.table import Vectors, read_vectors, write_vectors

TEXTS = (".vec", ".txt", ".vec.gz", ".txt.gz", ".vec.xz", ".txt.xz")
_BLOCK = 1 << 24


def load_vectors(path: Path, cache: Path | None = None, workers: int = 1) -> Vectors:
    """The vectors of a file, in any of the forms, or of the cache of an earlier call.

    Words are folded to lower case: where a table has ``Paris`` but no ``paris``, the vector serves the latter.

    Args:
        path: The file; what it is, its ending says.
        cache: A ``.safetensors`` file to keep the result in. It is used again as long as ``path`` does not change.
        workers: Processes that read a long text.
    """
    source = f"{path.name} {path.stat().st_size} {path.stat().st_mtime_ns}"
    if path.suffix == ".safetensors":
        return read_vectors(path)[0]
    if cache is not None and cache.exists():
        vectors, origin = read_vectors(cache)
        if origin == source:
            return vectors
    if path.suffix == ".npz":
        words, table = _read_int8(path)
    elif path.name.endswith(TEXTS):
        words, table = _read_text(path, workers)
    else:
        raise ValueError(
            f"{path} is no word table: the endings {', '.join((*TEXTS, '.npz', '.safetensors'))} are known"
        )
    vectors = _lower_case(words, table)
    if cache is not None:
        write_vectors(cache, vectors, source)
    return vectors


def _read_int8(path: Path) -> tuple[list[str], NDArray[np.float16]]:
    """``words`` (UTF-8, one a line), ``q`` int8 ``[V, D]``, ``scale`` float32 ``[V]``; a vector is ``q * scale``."""
    try:
        with np.load(path, allow_pickle=False) as file:
            words_bytes, q_VD, scale_V = (file[name] for name in ("words", "q", "scale"))
    except KeyError as error:
        raise ValueError(f"{path} is no int8 word table: {error}; it needs words, q and scale") from None
    except (zipfile.BadZipFile, ValueError, EOFError) as error:
        raise ValueError(f"{path} is cut short or damaged ({error}); get it again") from None
    words = words_bytes.tobytes().decode().split("\n")
    words = words[:-1] if words[-1] == "" else words
    if q_VD.ndim != 2 or q_VD.dtype != np.int8 or not len(words) == len(q_VD) == len(scale_V):
        raise ValueError(f"{path} has {len(words)} words, q {q_VD.dtype} {q_VD.shape} and {len(scale_V)} scales")
    return words, unrounded(q_VD, scale_V)


def _read_text(path: Path, workers: int) -> tuple[list[str], NDArray[np.float16]]:
    words: list[str] = []
    parts: list[NDArray[np.float16]] = []
    with _opened(path) as file:
        jobs = _jobs(file, path)
        several = workers > 1 and path.stat().st_size > _BLOCK
        for names, values in in_order(_parse, jobs, workers) if several else starmap(_parse, jobs):
            words += names
            parts.append(values)
    if not words:
        raise ValueError(f"{path} holds no vectors")
    return words, np.concatenate(parts)


def _jobs(file: IO[bytes], path: Path) -> Iterator[tuple[list[bytes], int, int, Path]]:
    """What :func:`_parse` takes, for one block of lines after the other."""
    width = 0
    for number, lines in _blocks(file, path):
        if number == 1 and len(lines[0].split()) == 2:
            lines, number = lines[1:], 2  # fastText's header: how many words, how many numbers each
        if lines:
            width = width or len(lines[0].split()) - 1
            yield lines, width, number, path


def _parse(lines: Sequence[bytes], width: int, first: int, path: Path) -> tuple[list[str], NDArray[np.float16]]:
    """The words and vectors of some lines; the fast way, and the careful one where that does not come out even."""
    split = [line.partition(b" ") for line in lines]
    values = _numbers(split) if all(rest.rstrip().count(b" ") == width - 1 for _, _, rest in split) else None
    if values is None or len(values) != width * len(lines):
        split = [_careful(line, width, first + number, path) for number, line in enumerate(lines)]
        values = _numbers(split)
    assert values is not None, "every line was looked at"
    table = values.reshape(len(lines), width)
    wrong = np.flatnonzero(~np.isfinite(table).all(axis=1))
    if len(wrong):
        raise ValueError(f"line {first + int(wrong[0]):,} of {path} has a number that is not finite")
    return [word.decode("utf-8", "replace") for word, _, _ in split], table.astype(np.float16)


def _numbers(split: Sequence[tuple[bytes, bytes, bytes]]) -> NDArray[np.float32] | None:
    """All numbers of some lines, or nothing where one is not a number."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)  # how older versions of numpy say it
        try:
            return np.fromstring(b" ".join(rest for _, _, rest in split), dtype=np.float32, sep=" ")
        except (ValueError, DeprecationWarning):
            return None


def _careful(line: bytes, width: int, number: int, path: Path) -> tuple[bytes, bytes, bytes]:
    """A line whose word may have blanks in it: the last ``width`` fields are its numbers."""
    fields = line.rstrip().rsplit(b" ", width)
    try:
        list(map(float, fields[1:]))
        fits = len(fields) == width + 1
    except ValueError:
        fits = False
    if not fits:
        found = len(line.split()) - 1
        raise ValueError(f"line {number:,} of {path} should be a word and {width} numbers, it has {found} fields more")
    return fields[0], b" ", b" ".join(fields[1:])


def _blocks(file: IO[bytes], path: Path) -> Iterator[tuple[int, list[bytes]]]:
    """Lines in blocks, with the number of the first."""
    number = 1
    try:
        while lines := file.readlines(_BLOCK):
            yield number, lines
            number += len(lines)
    except (EOFError, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} is cut short or damaged ({error}); get it again") from None


def _opened(path: Path) -> IO[bytes]:
    opener = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    return cast("IO[bytes]", opener(path, "rb"))  # type: ignore[operator]  # three openers of one shape


def _lower_case(words: Sequence[str], table: NDArray[np.float16]) -> Vectors:
    """One row for each lower-case word: its own, or else the first that differs only in case."""
    rows: dict[str, int] = {}
    for row, word in enumerate(words):
        lower = word.lower()
        if lower not in rows or (word == lower and words[rows[lower]] != lower):
            rows[lower] = row
    kept = np.fromiter(rows.values(), dtype=np.int64, count=len(rows))
    return Vectors(list(rows), table if len(kept) == len(words) else table[kept])
