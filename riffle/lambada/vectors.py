"""Pretrained word vectors: read from fastText and GloVe text or int8 ``.npz`` tables, kept as safetensors.

A run keeps its vectors in half precision. A shipped run has them quantised to 4 bits by GPTQ (Frantar et al. 2022): the
numbers of a vector are rounded one after the other, and later ones compensate for the error that rounding the earlier
ones makes in the output of the linear map that follows.
"""

# V = words, D = dimensions of a vector, O = outputs of the linear map that reads the vectors
from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import starmap
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from research.lambada.books import map_in_order
from research.lambada.sources import READ_ERRORS, damaged_file, decompressed
from riffle.files import compress, write_atomically

FORMAT = "riffle-vectors-1"
TEXTS = (".vec", ".txt", ".vec.gz", ".txt.gz", ".vec.xz", ".txt.xz")
CLIP_RATIOS = (1.0, 0.9, 0.8, 0.7, 0.6)
"""Clipping limits that quantisation tries, as shares of a vector's largest number; clipping gives finer steps below."""
DAMPING = 0.01
"""Added to the diagonal of GPTQ's Hessian, as a share of its mean, so that it can be inverted."""
ROWS_AT_ONCE = 4096
MOST_BYTES = 2**30
"""Bytes of a zlib stream at most: a damaged or hostile file is not inflated without end."""
_LEVELS = 7  # 4 bits: whole numbers from -7 to 7
_BLOCK_BYTES = 1 << 24


@dataclass(frozen=True)
class WordVectors:
    """Lower-case words and a vector for each."""

    words: list[str]
    """The words ``[V]``, each once, in the order of the file (usually the most common first)."""
    table: NDArray[np.float16]
    """Their vectors, float16 ``[V, D]``."""


def load_vectors(path: Path, cache: Path | None = None, workers: int = 1) -> WordVectors:
    """The vectors of a file in any of the formats, or of the cache of an earlier call.

    Words are converted to lower case; ``Paris`` gives the vector of ``paris`` if the table has none of that spelling.

    Args:
        path: The file; its suffix decides the format.
        cache: A ``.safetensors`` file to keep the result in, which is used again as long as ``path`` does not change.
        workers: Processes that parse a long text.
    """
    about = path.stat()
    source = f"{path.name} {about.st_size} {about.st_mtime_ns}"
    if path.suffix == ".safetensors":
        return _read_once(path, source)
    if cache is not None and cache.exists():
        vectors, cached_source = read_vectors(cache)
        if cached_source == source:
            return vectors
    if path.suffix == ".npz":
        vectors = _lower_case(*_read_int8(path))
    elif path.name.endswith(TEXTS):
        vectors = _lower_case(*_read_text(path, workers))
    else:
        endings = ", ".join((*TEXTS, ".npz", ".safetensors"))
        raise ValueError(f"{path} is no word table: the endings {endings} are known")
    if cache is not None:
        write_vectors(cache, vectors, source)
    return vectors


def write_vectors(
    path: Path, vectors: WordVectors, source: str = "", *, quantize_for: NDArray[np.float32] | None = None
) -> None:
    """Write vectors and what they were made from as safetensors, atomically.

    They are written in half precision or, given the matrix ``[O, D]`` of the linear map that reads them, in 4 bits:
    ``q4`` uint8 ``[V, D / 2]``, two numbers in each byte, and ``scale`` float32 ``[V]``; words and numbers are then
    stored as zlib streams.
    """
    words = "\n".join(vectors.words).encode()
    tensors: dict[str, NDArray[np.generic]]
    if quantize_for is None:
        tensors = {"words": np.frombuffer(words, dtype=np.uint8), "table": vectors.table}
    else:
        q_VD, scale_V = quantize_vectors(vectors.table, quantize_for)
        contents = {"words": words, "q4": _pack_int4(q_VD).tobytes()}
        tensors = {
            "scale": scale_V,
            **{f"{name}.zlib": np.frombuffer(compress(content), np.uint8) for name, content in contents.items()},
        }
    # One entry of metadata: with two, their order and so the bytes of the file would change from run to run.
    write_atomically(path, save(tensors, {"format": f"{FORMAT} {source}"}))


def read_vectors(path: Path) -> tuple[WordVectors, str]:
    """The vectors of a safetensors file, dequantised if need be, and what they were made from."""
    try:
        with safe_open(path, framework="np") as file:
            form, _, source = (file.metadata() or {}).get("format", "").partition(" ")
            if form != FORMAT:
                raise ValueError(f"{path} holds no word table of riffle: give the table it should be made from")
            words = _bytes(file, "words").tobytes().decode().split("\n")
            if "table" in file.keys():  # noqa: SIM118, it is no dict
                table_VD = file.get_tensor("table")
            else:
                q4_VH, scale_V = _bytes(file, "q4"), file.get_tensor("scale")
                if q4_VH.ndim == 1 and not q4_VH.size % len(words):
                    q4_VH = q4_VH.reshape(len(words), -1)
                _check_quantized(path, words, q4_VH, scale_V, np.uint8)
                table_VD = np.empty((len(words), 2 * q4_VH.shape[1]), dtype=np.float16)
                for start in range(0, len(words), ROWS_AT_ONCE):  # all at once would take 90 MB more
                    rows = slice(start, start + ROWS_AT_ONCE)
                    table_VD[rows] = _dequantize(_unpack_int4(q4_VH[rows]), scale_V[rows])
    except (SafetensorError, UnicodeDecodeError, zlib.error) as error:
        raise ValueError(f"{path} is damaged ({error}): restore it, or make it again from the original table") from None
    _check_table(path, words, table_VD)
    return WordVectors(words, table_VD), source


def _bytes(file: Any, name: str) -> NDArray[np.uint8]:
    """A tensor of a file, or the bytes that the file has as a zlib stream."""
    if f"{name}.zlib" not in file.keys():  # noqa: SIM118, it is no dict
        return file.get_tensor(name)
    content = zlib.decompressobj().decompress(file.get_tensor(f"{name}.zlib").tobytes(), MOST_BYTES)
    return np.frombuffer(content, dtype=np.uint8)


@lru_cache(maxsize=1)
def _read_once(path: Path, source: str) -> WordVectors:
    """A run's vectors, for which its model, its vocabulary and whoever checks the run ask one after the other."""
    return read_vectors(path)[0]


def quantize_vectors(
    table_VD: NDArray[np.float16], weight_OD: NDArray[np.float32]
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Vectors as whole numbers from -7 to 7, int8 ``[V, D]``, and one scale each, float32 ``[V]``, by GPTQ.

    Of several clipping limits, each vector takes the one with the smallest error after multiplication by ``weight_OD``.
    """
    # GPTQ: the Cholesky factor of the inverse Hessian says how later numbers compensate for an earlier one's error.
    hessian_DD = weight_OD.T.astype(np.float64) @ weight_OD
    hessian_DD += DAMPING * np.trace(hessian_DD) / len(hessian_DD) * np.eye(len(hessian_DD))
    upper_DD = np.linalg.cholesky(np.linalg.inv(hessian_DD)).T
    compensation_DD = (upper_DD / np.diagonal(upper_DD)[:, None]).astype(np.float32)
    q_VD, scale_V = np.zeros(table_VD.shape, dtype=np.int8), np.zeros(len(table_VD), dtype=np.float32)
    for start in range(0, len(table_VD), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        values_VD = table_VD[rows].astype(np.float32)
        largest_V, least_error_V = np.abs(values_VD).max(axis=1, initial=0), np.full(len(values_VD), np.inf)
        for ratio in CLIP_RATIOS:
            tried_scale_V = np.maximum(largest_V * np.float32(ratio / _LEVELS), np.finfo(np.float32).tiny)
            tried_VD = _round_gptq(values_VD / tried_scale_V[:, None], compensation_DD)
            error_V = np.square((tried_VD * tried_scale_V[:, None] - values_VD) @ weight_OD.T).sum(axis=1)
            better_V = error_V < least_error_V
            least_error_V = np.where(better_V, error_V, least_error_V)
            scale_V[rows] = np.where(better_V, tried_scale_V, scale_V[rows])
            q_VD[rows][better_V] = tried_VD[better_V]
    return q_VD, scale_V


def _round_gptq(values_VD: NDArray[np.float32], compensation_DD: NDArray[np.float32]) -> NDArray[np.float32]:
    """Round one column after the other; the columns to come are changed to compensate for its rounding error."""
    columns_DV = np.ascontiguousarray(values_VD.T)
    for index, column_V in enumerate(columns_DV):
        rounded_V = np.rint(column_V).clip(-_LEVELS, _LEVELS)
        columns_DV[index + 1 :] -= np.outer(compensation_DD[index, index + 1 :], column_V - rounded_V)
        column_V[:] = rounded_V
    return columns_DV.T


def _pack_int4(q_VD: NDArray[np.int8]) -> NDArray[np.uint8]:
    if q_VD.shape[1] % 2:
        raise ValueError(f"vectors of {q_VD.shape[1]} numbers cannot be kept in 4 bits: their number must be even")
    nibbles_VD = (q_VD + 8).astype(np.uint8)
    return nibbles_VD[:, ::2] | (nibbles_VD[:, 1::2] << np.uint8(4))


def _unpack_int4(q4_VH: NDArray[np.uint8]) -> NDArray[np.int8]:
    return np.stack([q4_VH & 15, q4_VH >> 4], axis=-1).reshape(len(q4_VH), -1).astype(np.int8) - np.int8(8)


def _dequantize(q_VD: NDArray[np.int8], scale_V: NDArray[np.float32]) -> NDArray[np.float16]:
    with np.errstate(over="ignore", invalid="ignore"):  # what is too large is refused by _check_table
        return (q_VD * scale_V[:, None]).astype(np.float16)


def _check_quantized(
    path: Path, words: Sequence[str], q: NDArray[np.generic], scale: NDArray[np.generic], dtype: type[np.generic]
) -> None:
    """Raise unless there are numbers of that type and a scale for every word."""
    if (q.ndim, q.dtype, len(q)) != (2, dtype, len(words)) or (scale.shape, scale.dtype) != ((len(words),), np.float32):
        found = f"numbers {q.dtype} {q.shape} and scales {scale.dtype} {scale.shape}"
        raise ValueError(f"{path} has {len(words)} words, {found}: make it again")


def _check_table(path: Path, words: Sequence[str], table: NDArray[np.generic]) -> None:
    """Raise unless there is a vector in half precision for every word; it may have no numbers if words are learned."""
    if table.ndim != 2 or table.dtype != np.float16 or len(words) != len(table):
        raise ValueError(f"{path} has {len(words)} words and vectors {table.dtype} {table.shape}: make it again")
    if not (finite_V := np.isfinite(table).all(axis=1)).all():
        word = words[int(finite_V.argmin())]
        raise ValueError(f"{path}: a number of {word[:80]!r} is not finite or beyond 16 bits (±65,504): get it again")


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
    _check_quantized(path, words, q_VD, scale_V, np.int8)
    table_VD = _dequantize(q_VD, scale_V)
    _check_table(path, words, table_VD)
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
