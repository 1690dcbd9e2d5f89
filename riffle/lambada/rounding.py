"""Vectors in 8 or 4 bits a number, one scale each; told who reads them, they err where it does not look."""

# V = words, D = numbers of a vector, O = what a reader makes of them
from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

CLIPS = (1.0, 0.9, 0.8, 0.7, 0.6)
"""What rounding may take for the largest number of a vector, as shares of it: few levels err less below it."""
CHUNK = 4096
"""Words that are rounded at a time."""
SLACK = 0.01
"""What is added to how much a reader sees of each number, as a share of the mean, so that none grows for nothing."""

Bits = Literal[16, 8, 4]


def unrounded(q_VD: NDArray[np.int8], scale_V: NDArray[np.float32]) -> NDArray[np.float16]:
    """The vectors of a rounded table."""
    return (q_VD * scale_V[:, None]).astype(np.float16)


def rounded(
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


def unpacked(q4_VH: NDArray[np.uint8]) -> NDArray[np.int8]:
    """The whole numbers of ``q4``."""
    return np.stack([q4_VH & 15, q4_VH >> 4], axis=-1).reshape(len(q4_VH), -1).astype(np.int8) - np.int8(8)
