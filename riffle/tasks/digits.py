"""Exact arithmetic on long numbers, one number per row, its digits in the columns with the lowest first.

Nothing here loops over digits: carries are found with one running maximum, products with one Fourier transform.
"""

# B = batch, K = digits per number
from __future__ import annotations

import torch
from torch import Tensor

from riffle.tasks.rows import delay, last_column_so_far, take


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
