"""A word table in one safetensors file: words and their vectors, in half precision or rounded to 8 or 4 bits."""

# V = words, D = numbers of a vector, O = what a reader makes of them
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from riffle.lambada.rounding import Bits, rounded, unpacked, unrounded

FORMAT = "riffle-vectors-1"


@dataclass(frozen=True)
class Vectors:
    """Lower-case words and a vector for each."""

    words: list[str]
    """The words ``[V]``, each once, in the order of the file (usually the most common first)."""
    table: NDArray[np.float16]
    """Their vectors, float16 ``[V, D]``; half precision is finer than what training leaves of them."""


def write_vectors(
    path: Path, vectors: Vectors, source: str = "", *, bits: Bits = 16, reader_OD: NDArray[np.float32] | None = None
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

    from riffle.train.checkpoint import write_atomically

    words = np.frombuffer("\n".join(vectors.words).encode(), dtype=np.uint8)
    table = {"table": vectors.table} if bits == 16 else rounded(vectors.table, bits, reader_OD)
    # One entry of metadata: with two, their order and so the bytes of the file would change from run to run.
    write_atomically(path, save({"words": words, **table}, {"format": f"{FORMAT} {source}"}))


def read_vectors(path: Path) -> tuple[Vectors, str]:
    """What :func:`write_vectors` wrote, and what it was made from."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            form, _, source = (file.metadata() or {}).get("format", "").partition(" ")
            if form != FORMAT:
                raise ValueError(f"{path} holds no word table of riffle: give the table it should be made from")
            words = file.get_tensor("words").tobytes().decode().split("\n")
            if "table" in file.keys():  # noqa: SIM118, it is no dict
                return Vectors(words, file.get_tensor("table")), source
            q_VD = file.get_tensor("q") if "q" in file.keys() else unpacked(file.get_tensor("q4"))  # noqa: SIM118
            return Vectors(words, unrounded(q_VD, file.get_tensor("scale"))), source
    except (SafetensorError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is damaged ({error}): restore it, or make it again from the original table") from None
