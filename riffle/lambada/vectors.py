"""Vectors in 8 or 4 bits a number, one scale each; told who reads them, they err where it does not look.

A word table in one safetensors file: words and their vectors, in half precision or rounded to 8 or 4 bits.

Pretrained word vectors: fastText's ``.vec``, GloVe's text, int8 tables in ``.npz``; kept as safetensors.
"""

# V = words, D = numbers of a vector, O = what a reader makes of them
# V = words, D = numbers of a vector
from __future__ import annotations

import gzip
import lzma
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path
from typing import IO, Literal, cast

import numpy as np
from numpy.typing import NDArray

from riffle.lambada.books import map_in_order

CLIPS = (1.0, 0.9, 0.8, 0.7, 0.6)
"""What rounding may take for the largest number of a vector, as shares of it: few levels err less below it."""
CHUNK = 4096
"""Words that are rounded at a time."""
SLACK = 0.01
"""What is added to how much a reader sees of each number, as a share of the mean, so that none grows for nothing."""
Bits = Literal[16, 8, 4]


def dequantize_vectors(q_VD: NDArray[np.int8], scale_V: NDArray[np.float32]) -> NDArray[np.float16]:
    """The vectors of a rounded table."""
    return (q_VD * scale_V[:, None]).astype(np.float16)


def quantize_vectors(
    table_VD: NDArray[np.float16], bits: Bits, reader_OD: NDArray[np.float32] | None
) -> dict[str, NDArray[np.generic]]:
    """A table in few bits, as the arrays of a file: whole numbers as ``q`` or, packed, ``q4``, and ``scale``.

    Args:
        table_VD: The vectors.
        bits: 8 or 4.
        reader_OD: The matrix that the vectors are multiplied with; what counts then is how far that is off.
    """
    levels = 2 ** (bits - 1) - 1
    made_up_DD = None if reader_OD is None else _made_up(reader_OD)
    q_VD, scale_V = np.zeros(table_VD.shape, dtype=np.int8), np.zeros(len(table_VD), dtype=np.float32)
    for start in range(0, len(table_VD), CHUNK):
        chunk = slice(start, start + CHUNK)
        values_VD = table_VD[chunk].astype(np.float32)
        largest_V, least_V = np.abs(values_VD).max(axis=1, initial=0), np.full(len(values_VD), np.inf)
        for clip in CLIPS:
            tried_V = np.maximum(largest_V * np.float32(clip / levels), np.finfo(np.float32).tiny)
            tried_VD = _in_turn(values_VD / tried_V[:, None], levels, made_up_DD)
            wrong_VD = tried_VD * tried_V[:, None] - values_VD
            error_V = np.square(wrong_VD if reader_OD is None else wrong_VD @ reader_OD.T).sum(axis=1)
            better_V = error_V < least_V
            least_V, scale_V[chunk] = np.where(better_V, error_V, least_V), np.where(better_V, tried_V, scale_V[chunk])
            q_VD[chunk][better_V] = tried_VD[better_V]
    return {"scale": scale_V, **({"q": q_VD} if bits == 8 else {"q4": _packed(q_VD)})}


def _made_up(reader_OD: NDArray[np.float32]) -> NDArray[np.float32]:
    """By how much each number has to change for the reader to miss least of an earlier one, ``[earlier, later]``."""
    seen_DD = reader_OD.T.astype(np.float64) @ reader_OD
    seen_DD += SLACK * np.trace(seen_DD) / len(seen_DD) * np.eye(len(seen_DD))
    upper_DD = np.linalg.cholesky(np.linalg.inv(seen_DD)).T
    return (upper_DD / np.diagonal(upper_DD)[:, None]).astype(np.float32)


def _in_turn(
    values_VD: NDArray[np.float32], levels: int, made_up_DD: NDArray[np.float32] | None
) -> NDArray[np.float32]:
    """Round numbers one after the other; those to come make up for what each one lost."""
    if made_up_DD is None:
        return np.rint(values_VD).clip(-levels, levels)
    left_DV = np.ascontiguousarray(values_VD.T)
    for place, left_V in enumerate(left_DV):
        rounded_V = np.rint(left_V).clip(-levels, levels)
        left_DV[place + 1 :] -= np.outer(made_up_DD[place, place + 1 :], left_V - rounded_V)
        left_V[:] = rounded_V
    return left_DV.T


def _packed(q_VD: NDArray[np.int8]) -> NDArray[np.uint8]:
    if q_VD.shape[1] % 2:
        raise ValueError(f"vectors of {q_VD.shape[1]} numbers cannot be kept in 4 bits: their number must be even")
    nibbles_VD = (q_VD + 8).astype(np.uint8)
    return nibbles_VD[:, ::2] | (nibbles_VD[:, 1::2] << np.uint8(4))


def unpack_int4(q4_VH: NDArray[np.uint8]) -> NDArray[np.int8]:
    """The whole numbers of ``q4``."""
    return np.stack([q4_VH & 15, q4_VH >> 4], axis=-1).reshape(len(q4_VH), -1).astype(np.int8) - np.int8(8)


FORMAT = "riffle-vectors-1"


@dataclass(frozen=True)
class WordVectors:
    """Lower-case words and a vector for each."""

    words: list[str]
    """The words ``[V]``, each once, in the order of the file (usually the most common first)."""
    table: NDArray[np.float16]
    """Their vectors, float16 ``[V, D]``; half precision is finer than what training leaves of them."""


def write_vectors(
    path: Path, vectors: WordVectors, source: str = "", *, bits: Bits = 16, reader_OD: NDArray[np.float32] | None = None
) -> None:
    """Write vectors as safetensors, atomically.

    Args:
        path: The file.
        vectors: What to write.
        source: What they were made from, to be given back by :func:`read_vectors`.
        bits: Bits of a number. With 8, ``q`` is int8 ``[V, D]`` and ``scale`` float32 ``[V]``; with 4, ``q4`` is uint8
            ``[V, D / 2]``, two numbers in each.
        reader_OD: The matrix that the vectors are multiplied with; they are then rounded so that it sees least of it.
    """
    from safetensors.numpy import save

    from riffle.files import write_atomically

    words = np.frombuffer("\n".join(vectors.words).encode(), dtype=np.uint8)
    table = {"table": vectors.table} if bits == 16 else quantize_vectors(vectors.table, bits, reader_OD)
    # One entry of metadata: with two, their order and so the bytes of the file would change from run to run.
    write_atomically(path, save({"words": words, **table}, {"format": f"{FORMAT} {source}"}))


def read_vectors(path: Path) -> tuple[WordVectors, str]:
    """What :func:`write_vectors` wrote, and what it was made from."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            form, _, source = (file.metadata() or {}).get("format", "").partition(" ")
            if form != FORMAT:
                raise ValueError(f"{path} holds no word table of riffle: give the table it should be made from")
            words = file.get_tensor("words").tobytes().decode().split("\n")
            if "table" in file.keys():  # noqa: SIM118, it is no dict
                return WordVectors(words, file.get_tensor("table")), source
            q_VD = file.get_tensor("q") if "q" in file.keys() else unpack_int4(file.get_tensor("q4"))  # noqa: SIM118
            return WordVectors(words, dequantize_vectors(q_VD, file.get_tensor("scale"))), source
    except (SafetensorError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is damaged ({error}): restore it, or make it again from the original table") from None


TEXTS = (".vec", ".txt", ".vec.gz", ".txt.gz", ".vec.xz", ".txt.xz")
_BLOCK = 1 << 24


def load_vectors(path: Path, cache: Path | None = None, workers: int = 1) -> WordVectors:
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
    return words, dequantize_vectors(q_VD, scale_V)


def _read_text(path: Path, workers: int) -> tuple[list[str], NDArray[np.float16]]:
    words: list[str] = []
    parts: list[NDArray[np.float16]] = []
    with _opened(path) as file:
        jobs = _jobs(file, path)
        several = workers > 1 and path.stat().st_size > _BLOCK
        for names, values in map_in_order(_parse, jobs, workers) if several else starmap(_parse, jobs):
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


def _lower_case(words: Sequence[str], table: NDArray[np.float16]) -> WordVectors:
    """One row for each lower-case word: its own, or else the first that differs only in case."""
    rows: dict[str, int] = {}
    for row, word in enumerate(words):
        lower = word.lower()
        if lower not in rows or (word == lower and words[rows[lower]] != lower):
            rows[lower] = row
    kept = np.fromiter(rows.values(), dtype=np.int64, count=len(rows))
    return WordVectors(list(rows), table if len(kept) == len(words) else table[kept])
