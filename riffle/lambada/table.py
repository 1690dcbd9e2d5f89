"""A word table in one safetensors file: lower-case words and their vectors, in half precision or rounded to int8."""

# V = words, D = numbers of a vector
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

FORMAT = "riffle-vectors-1"


@dataclass(frozen=True)
class Vectors:
    """Lower-case words and a vector for each."""

    words: list[str]
    """The words ``[V]``, each once, in the order of the file (usually the most common first)."""
    table: NDArray[np.float16]
    """Their vectors, float16 ``[V, D]``; half precision is finer than what training leaves of them."""


def write_vectors(path: Path, vectors: Vectors, source: str = "", *, int8: bool = False) -> None:
    """Write vectors as safetensors, atomically.

    Args:
        path: The file.
        vectors: What to write.
        source: What they were made from, to be given back by :func:`read_vectors`.
        int8: Whether to round them: half the room, ``q`` int8 ``[V, D]`` and ``scale`` float32 ``[V]``.
    """
    from safetensors.numpy import save

    from riffle.train.checkpoint import write_atomically

    words = np.frombuffer("\n".join(vectors.words).encode(), dtype=np.uint8)
    table = _rounded(vectors.table) if int8 else {"table": vectors.table}
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
            return Vectors(words, unrounded(file.get_tensor("q"), file.get_tensor("scale"))), source
    except (SafetensorError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is damaged ({error}): restore it, or make it again from the original table") from None


def unrounded(q_VD: NDArray[np.int8], scale_V: NDArray[np.float32]) -> NDArray[np.float16]:
    """The vectors of an int8 table."""
    return (q_VD * scale_V[:, None]).astype(np.float16)


def _rounded(table_VD: NDArray[np.float16]) -> dict[str, NDArray[np.generic]]:
    values_VD = table_VD.astype(np.float32)
    scale_V = np.abs(values_VD).max(axis=1, initial=0) / 127
    q_VD = np.rint(values_VD / np.maximum(scale_V, np.finfo(np.float32).tiny)[:, None])
    return {"q": q_VD.astype(np.int8), "scale": scale_V}
