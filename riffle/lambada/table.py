"""A word table in one safetensors file: words and their vectors, in half precision or rounded to 8 or 4 bits."""

# V = words, D = numbers of a vector
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

FORMAT = "riffle-vectors-1"
CLIPS = (1.0, 0.9, 0.8, 0.7, 0.6)
"""What rounding may take for the largest number of a vector, as shares of it: few levels err less below it."""

Bits = Literal[16, 8, 4]


@dataclass(frozen=True)
class Vectors:
    """Lower-case words and a vector for each."""

    words: list[str]
    """The words ``[V]``, each once, in the order of the file (usually the most common first)."""
    table: NDArray[np.float16]
    """Their vectors, float16 ``[V, D]``; half precision is finer than what training leaves of them."""


def write_vectors(path: Path, vectors: Vectors, source: str = "", *, bits: Bits = 16) -> None:
    """Write vectors as safetensors, atomically.

    Args:
        path: The file.
        vectors: What to write.
        source: What they were made from, to be given back by :func:`read_vectors`.
        bits: Bits of a number. With 8, ``q`` is int8 ``[V, D]`` and ``scale`` float32 ``[V]``; with 4, ``q4`` is uint8
            ``[V, D / 2]``, two numbers in each.
    """
    from safetensors.numpy import save

    from riffle.train.checkpoint import write_atomically

    words = np.frombuffer("\n".join(vectors.words).encode(), dtype=np.uint8)
    table = {"table": vectors.table} if bits == 16 else _rounded(vectors.table, bits)
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
            q_VD = file.get_tensor("q") if "q" in file.keys() else _unpacked(file.get_tensor("q4"))  # noqa: SIM118
            return Vectors(words, unrounded(q_VD, file.get_tensor("scale"))), source
    except (SafetensorError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is damaged ({error}): restore it, or make it again from the original table") from None


def unrounded(q_VD: NDArray[np.int8], scale_V: NDArray[np.float32]) -> NDArray[np.float16]:
    """The vectors of a rounded table."""
    return (q_VD * scale_V[:, None]).astype(np.float16)


def _rounded(table_VD: NDArray[np.float16], bits: Bits) -> dict[str, NDArray[np.generic]]:
    values_VD = table_VD.astype(np.float32)
    levels = 2 ** (bits - 1) - 1
    largest_V = np.abs(values_VD).max(axis=1, initial=0)
    least_V = np.full(len(values_VD), np.inf)
    scale_V, q_VD = largest_V, np.zeros(values_VD.shape, dtype=np.int8)
    for clip in CLIPS:
        tried_V = largest_V * (clip / levels)
        rounded_VD = np.rint(values_VD / np.maximum(tried_V, np.finfo(np.float32).tiny)[:, None]).clip(-levels, levels)
        error_V = np.square(rounded_VD * tried_V[:, None] - values_VD).sum(axis=1)
        better_V = error_V < least_V
        least_V, scale_V = np.where(better_V, error_V, least_V), np.where(better_V, tried_V, scale_V)
        q_VD[better_V] = rounded_VD[better_V]
    return {"scale": scale_V.astype(np.float32), **({"q": q_VD} if bits == 8 else {"q4": _packed(q_VD)})}


def _packed(q_VD: NDArray[np.int8]) -> NDArray[np.uint8]:
    if q_VD.shape[1] % 2:
        raise ValueError(f"vectors of {q_VD.shape[1]} numbers cannot be kept in 4 bits: their number must be even")
    nibbles_VD = (q_VD + 8).astype(np.uint8)
    return nibbles_VD[:, ::2] | (nibbles_VD[:, 1::2] << np.uint8(4))


def _unpacked(q4_VH: NDArray[np.uint8]) -> NDArray[np.int8]:
    return np.stack([q4_VH & 15, q4_VH >> 4], axis=-1).reshape(len(q4_VH), -1).astype(np.int8) - np.int8(8)
