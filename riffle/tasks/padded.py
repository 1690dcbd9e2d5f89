"""Blank-padded rows of symbols: measuring, cropping, picking and drawing them, a whole batch at once.

Exact arithmetic on long numbers, one number per row, its digits in the columns with the lowest first.

Nothing here loops over digits: carries are found with one running maximum, products with one Fourier transform.
"""

# B = batch, N = width of the padded rows, M = width of the result
# B = batch, K = digits per number
from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from riffle.tasks.base import BLANK


def columns(rows_BN: Tensor) -> Tensor:
    """The column numbers 0..N-1 of the rows, int64 ``[N]``."""
    return torch.arange(rows_BN.shape[1], device=rows_BN.device)


def row_lengths(rows_BN: Tensor) -> Tensor:
    """Length of every row without its trailing blanks, int64 ``[B]``."""
    return torch.where(rows_BN != BLANK, columns(rows_BN) + 1, 0).amax(dim=1)


def keep(rows_BN: Tensor, lengths_B: Tensor) -> Tensor:
    """The first ``lengths_B`` symbols of every row, blanks after them."""
    return torch.where(columns(rows_BN) < lengths_B[:, None], rows_BN, BLANK)


def take(rows_BN: Tensor, index_BM: Tensor) -> Tensor:
    """``rows[b, index[b, m]]``; an index outside the row reads its nearest cell, for the caller to mask."""
    return rows_BN.gather(1, index_BM.clamp(0, rows_BN.shape[1] - 1))


def delay(rows_BN: Tensor, steps: int = 1, fill: int = 0) -> Tensor:
    """Every row moved ``steps`` columns to the right, ``fill`` coming in and the last columns falling out."""
    return F.pad(rows_BN, (steps, 0), value=fill)[:, : rows_BN.shape[1]]


def first_column(mask_BN: Tensor) -> Tensor:
    """The first column where the mask holds, ``N`` where it never does, int64 ``[B]``."""
    return torch.where(mask_BN, columns(mask_BN), mask_BN.shape[1]).amin(dim=1)


def last_column_so_far(mask_BN: Tensor) -> Tensor:
    """For every cell the last column up to it where the mask holds, -1 where there is none, int64 ``[B, N]``."""
    return torch.where(mask_BN, columns(mask_BN), -1).cummax(dim=1).values


def uniform(low: int, high: int, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Whole numbers ``low <= x < high``, int64, on the generator's device."""
    return torch.randint(low, high, shape, generator=generator, device=generator.device)


def chances(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Numbers ``0 <= x < 1``, float64, on the generator's device."""
    return torch.rand(shape, generator=generator, device=generator.device, dtype=torch.float64)


def uniform_below(bounds_B: Tensor, generator: torch.Generator) -> Tensor:
    """One whole number ``0 <= x < bound`` per entry; a bound below 1 gives 0."""
    below_B = (chances(bounds_B.shape, generator) * bounds_B).long()
    return torch.minimum(below_B, bounds_B - 1).clamp(min=0)


def coin(probability: float | Tensor, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """True with the given probability, bool, on the generator's device."""
    return chances(shape, generator) < probability


def carries(sums_BK: Tensor, base: int) -> Tensor:
    """Where a carry leaves a column, for sums of digits 0..2*base-2 (column 0 may hold one more), bool ``[B, K]``.

    A column that sums to ``base - 1`` hands on whatever comes in, every other column decides by itself; so a carry
    leaves a column exactly if the nearest column at or below it that decides by itself holds ``base`` or more.
    """
    return take(sums_BK >= base, last_column_so_far(sums_BK != base - 1))


def settle(sums_BK: Tensor, base: int) -> Tensor:
    """The digits of numbers given as sums of digits, as in :func:`carries`; a carry out of the last column is lost."""
    return (sums_BK + delay(carries(sums_BK, base).long())) % base


def multiply(a_BK: Tensor, b_BK: Tensor, base: int) -> Tensor:
    """The ``K`` digits of the product of two numbers whose product has at most ``K`` digits.

    The sums of products of digits are whole numbers up to ``(base - 1) ** 2 * K`` and come from a float64 Fourier
    transform. Its error is some ``1e-16 * log2(K)`` of that bound (5e-9 seen in base 10 at ``K = 2 ** 18``), far from
    the one half at which rounding would go wrong.
    """
    size = a_BK.shape[1]
    padded = max(2, 1 << (size - 1).bit_length())
    spectrum = torch.fft.rfft(a_BK.double(), padded) * torch.fft.rfft(b_BK.double(), padded)
    sums_BK = torch.fft.irfft(spectrum, padded)[:, :size].round().long()
    largest = (base - 1) ** 2 * size
    while largest > 2 * base - 2:  # a few rounds of handing carries on by one column, until one carry at most is left
        sums_BK = sums_BK % base + delay(sums_BK // base)
        largest = base - 1 + largest // base
    return settle(sums_BK, base)


def pack(digits_BK: Tensor, base: int, group: int) -> Tensor:
    """Join every ``group`` digits to one digit of base ``base ** group``; the last one is filled up with zeros."""
    missing = -digits_BK.shape[1] % group
    grouped = torch.nn.functional.pad(digits_BK, (0, missing)).unflatten(1, (-1, group))
    return (grouped * base ** torch.arange(group, device=digits_BK.device)).sum(dim=2)


def unpack(packed_BK: Tensor, base: int, group: int) -> Tensor:
    """Undo :func:`pack`, the digits that filled it up included."""
    return (packed_BK[:, :, None] // base ** torch.arange(group, device=packed_BK.device) % base).flatten(1)
