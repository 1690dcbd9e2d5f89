"""Pretrained word vectors, kept as safetensors: in half precision in a corpus or run, in 4 bits in a shipped run."""

# V = words, D = dimensions of a vector, H = D / 2 bytes
from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from riffle.files import write_atomically

FORMAT = "riffle-vectors-1"
ROWS_AT_ONCE = 4096


@dataclass(frozen=True)
class WordVectors:
    """Lower-case words and a vector for each."""

    words: list[str]
    """The words ``[V]``, each once, in the order of the file (usually the most common first)."""
    table: NDArray[np.float16]
    """Their vectors, float16 ``[V, D]``."""


def write_vectors(path: Path, vectors: WordVectors) -> None:
    """Write vectors as safetensors in half precision, atomically."""
    words = np.frombuffer("\n".join(vectors.words).encode(), dtype=np.uint8)
    write_atomically(path, save({"words": words, "table": vectors.table}, {"format": FORMAT}))


def load_vectors(path: Path) -> WordVectors:
    """The vectors of a file that :func:`write_vectors` wrote, or a shipped run's."""
    about = path.stat()
    return _load_once(path, about.st_size, about.st_mtime_ns)


@lru_cache(maxsize=1)
def _load_once(path: Path, size: int, changed: int) -> WordVectors:
    """A run's vectors, for which its model, its vocabulary and whoever checks the run ask one after the other."""
    try:
        with safe_open(path, framework="np") as file:
            if (file.metadata() or {}).get("format", "").split(" ")[0] != FORMAT:
                raise ValueError(f"{path} holds no word table of riffle: give the table it should be made from")
            words = _bytes(file, "words").tobytes().decode().split("\n")
            if "table" in file.keys():  # noqa: SIM118, it is no dict
                table_VD = file.get_tensor("table")
            else:
                q4_VH, scale_V = _bytes(file, "q4"), file.get_tensor("scale")
                if q4_VH.ndim == 1 and not q4_VH.size % len(words):
                    q4_VH = q4_VH.reshape(len(words), -1)
                check_quantized(path, words, q4_VH, scale_V, np.uint8)
                table_VD = np.empty((len(words), 2 * q4_VH.shape[1]), dtype=np.float16)
                for start in range(0, len(words), ROWS_AT_ONCE):  # all at once would take 90 MB more
                    rows = slice(start, start + ROWS_AT_ONCE)
                    table_VD[rows] = dequantize(_unpack_int4(q4_VH[rows]), scale_V[rows])
    except (SafetensorError, UnicodeDecodeError, zlib.error) as error:
        raise ValueError(f"{path} is damaged ({error}): restore it, or make it again from the original table") from None
    check_table(path, words, table_VD)
    return WordVectors(words, table_VD)


def _bytes(file: Any, name: str) -> NDArray[np.uint8]:
    """A tensor of a file, or the bytes that the file has as a zlib stream."""
    if f"{name}.zlib" not in file.keys():  # noqa: SIM118, it is no dict
        return file.get_tensor(name)
    stream = file.get_tensor(f"{name}.zlib").tobytes()
    content = zlib.decompressobj().decompress(stream, 2**30)  # a hostile file is not inflated without end
    return np.frombuffer(content, dtype=np.uint8)


def _unpack_int4(q4_VH: NDArray[np.uint8]) -> NDArray[np.int8]:
    return np.stack([q4_VH & 15, q4_VH >> 4], axis=-1).reshape(len(q4_VH), -1).astype(np.int8) - np.int8(8)


def dequantize(q_VD: NDArray[np.int8], scale_V: NDArray[np.float32]) -> NDArray[np.float16]:
    """Vectors from whole numbers and a scale for each."""
    with np.errstate(over="ignore", invalid="ignore"):  # what is too large is refused by check_table
        return (q_VD * scale_V[:, None]).astype(np.float16)


def check_quantized(
    path: Path, words: Sequence[str], q: NDArray[np.generic], scale: NDArray[np.generic], dtype: type[np.generic]
) -> None:
    """Raise unless there are numbers of that type and a scale for every word."""
    if (q.ndim, q.dtype, len(q)) != (2, dtype, len(words)) or (scale.shape, scale.dtype) != ((len(words),), np.float32):
        found = f"numbers {q.dtype} {q.shape} and scales {scale.dtype} {scale.shape}"
        raise ValueError(f"{path} has {len(words)} words, {found}: make it again")


def check_table(path: Path, words: Sequence[str], table: NDArray[np.generic]) -> None:
    """Raise unless every word has a finite vector in half precision."""
    if table.ndim != 2 or table.dtype != np.float16 or len(words) != len(table):
        raise ValueError(f"{path} has {len(words)} words and vectors {table.dtype} {table.shape}: make it again")
    if not (finite_V := np.isfinite(table).all(axis=1)).all():
        word = words[int(finite_V.argmin())]
        raise ValueError(f"{path}: a number of {word[:80]!r} is not finite or beyond 16 bits (±65,504): get it again")
