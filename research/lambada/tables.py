"""Tables of pretrained word vectors: fastText and GloVe text, or int8 ``.npz``."""

# V = words, D = dimensions of a vector
from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import starmap
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from research.lambada.books import map_in_order
from riffle.lambada.passages import READ_ERRORS, damaged_file, decompressed
from riffle.lambada.vectors import WordVectors, check_quantized, check_table, dequantize, load_vectors

TEXTS = (".vec", ".txt", ".vec.gz", ".txt.gz", ".vec.xz", ".txt.xz")
_BLOCK_BYTES = 1 << 24


def read_table(path: Path, workers: int = 1) -> WordVectors:
    """The vectors of a table, whose suffix decides its format; ``workers`` processes parse a long text.

    Words are converted to lower case; ``Paris`` gives the vector of ``paris`` if the table has none of that spelling.
    """
    if path.suffix == ".safetensors":
        return load_vectors(path)
    if path.suffix == ".npz":
        return _lower_case(*_read_int8(path))
    if path.name.endswith(TEXTS):
        return _lower_case(*_read_text(path, workers))
    endings = ", ".join((*TEXTS, ".npz", ".safetensors"))
    raise ValueError(f"{path} is no word table: the endings {endings} are known")


def _read_int8(path: Path) -> tuple[list[str], NDArray[np.float16]]:
    """``words`` (UTF-8, one a line), ``q`` int8 ``[V, D]``, ``scale`` float32 ``[V]``; a vector is ``q * scale``."""
    try:
        with np.load(path, allow_pickle=False) as file:
            words_bytes, q_VD, scale_V = (file[name] for name in ("words", "q", "scale"))
            words = words_bytes.tobytes().decode().removesuffix("\n").split("\n")
    except KeyError as error:
        raise ValueError(f"{path} is no int8 word table: {error}; it needs words, q and scale") from None
    except OSError:
        raise
    except Exception as error:  # numpy evaluates headers as Python, which can raise anything
        raise damaged_file(path, error) from None
    check_quantized(path, words, q_VD, scale_V, np.int8)
    table_VD = dequantize(q_VD, scale_V)
    check_table(path, words, table_VD)
    return words, table_VD


def _read_text(path: Path, workers: int) -> tuple[list[str], NDArray[np.float16]]:
    """A word and its numbers in every line, after a header in fastText's files."""
    words: list[str] = []
    parts: list[NDArray[np.float16]] = []
    with path.open("rb") as raw:
        blocks = _text_blocks(decompressed(raw, path.name), path)
        parallel = workers > 1 and path.stat().st_size > _BLOCK_BYTES
        for block_words, block_VD in map_in_order(_parse, blocks, workers) if parallel else starmap(_parse, blocks):
            words += block_words
            parts.append(block_VD)
    if not words:
        raise ValueError(f"{path} holds no vectors")
    return words, np.concatenate(parts)


def _text_blocks(file: IO[bytes], path: Path) -> Iterator[tuple[list[bytes], int, int, Path]]:
    """The arguments of :func:`_parse` for one block of lines after the other."""
    dimensions, number = 0, 1
    try:
        while lines := file.readlines(_BLOCK_BYTES):
            header = int(number == 1 and len(lines[0].split()) == 2)  # fastText: how many words and dimensions
            dimensions = dimensions or (len(lines[header].split()) - 1 if len(lines) > header else 0)
            if len(lines) > header:
                if dimensions < 1:
                    raise ValueError(f"line {number + header:,} of {path} should be a word and its numbers")
                yield lines[header:], dimensions, number + header, path
            number += len(lines)
    except READ_ERRORS as error:
        raise damaged_file(path, error) from None


def _parse(lines: Sequence[bytes], dimensions: int, first: int, path: Path) -> tuple[list[str], NDArray[np.float16]]:
    """The words and vectors of some lines. A word may contain blanks: the last fields are the numbers."""
    words, table_VD = [], np.empty((len(lines), dimensions), dtype=np.float32)
    for row, line in enumerate(lines):
        word, *numbers = line.rstrip().rsplit(b" ", dimensions)
        try:
            table_VD[row] = np.array(list(map(float, numbers)), dtype=np.float32).reshape(dimensions)
        except ValueError:
            raise ValueError(
                f"line {first + row:,} of {path} should be a word and {dimensions} numbers, "
                f"it has {len(line.split())} fields"
            ) from None
        words.append(word.decode("utf-8", "replace"))
    with np.errstate(over="ignore"):
        half_VD = table_VD.astype(np.float16)
    if not (finite_V := np.isfinite(half_VD).all(axis=1)).all():
        where = f"line {first + int(finite_V.argmin()):,} of {path}"
        raise ValueError(f"{where} has a number that is not finite or beyond 16 bits (±65,504)")
    return words, half_VD


def _lower_case(words: Sequence[str], table: NDArray[np.float16]) -> WordVectors:
    """One row for each lower-case word: its own, or else the first that differs only in case."""
    rows: dict[str, int] = {}
    for row, word in enumerate(words):
        lower = word.lower()
        if lower not in rows or (word == lower and words[rows[lower]] != lower):
            rows[lower] = row
    kept = np.fromiter(rows.values(), dtype=np.int64, count=len(rows))
    return WordVectors(list(rows), table if len(kept) == len(words) else table[kept])
