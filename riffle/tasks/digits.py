"""Exact arithmetic on long numbers: a whole batch at once for the answers, plain Python for the solutions.

A batch has one number per row, its digits in the columns with the lowest first. Sums, products and differences have no
loop over digits: carries are found with one running maximum, products with one Fourier transform.
"""

# B = batch, N = width of the padded rows, K = digits per number
from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from riffle.tasks.rows import BLANK, columns, first_column, last_column_so_far, shift_right, take


def number_of(digits: Sequence[int], base: int) -> int:
    """The value of digits with the lowest first."""
    value = 0
    for digit in reversed(digits):
        value = value * base + digit
    return value


def digits_of(value: int, base: int, at_least: int = 1) -> list[int]:
    """The digits of a number with the lowest first, padded with zeros to ``at_least``."""
    digits: list[int] = []
    while value or len(digits) < at_least:
        value, digit = divmod(value, base)
        digits.append(digit)
    return digits


def operands(rows_BN: Tensor, separator: int) -> tuple[Tensor, Tensor]:
    """The digits (symbol - 1) before and after the separator, each int64 ``[B, N]`` and padded with zeros."""
    column_N = columns(rows_BN)
    at_B1 = first_column(rows_BN == separator)[:, None]
    before_BN = torch.where(column_N < at_B1, rows_BN, 0)
    after_BN = torch.where(column_N + at_B1 + 1 < rows_BN.shape[1], take(rows_BN, column_N + at_B1 + 1), 0)
    return (before_BN - 1).clamp(min=0), (after_BN - 1).clamp(min=0)


def replace_operands(rows_BN: Tensor, separator: int, a_BN: Tensor, b_BN: Tensor) -> Tensor:
    """Rows with other digits before and after the separator, the inverse of :func:`operands`."""
    column_N, at_B1 = columns(rows_BN), first_column(rows_BN == separator)[:, None]
    digits_BN = torch.where(column_N < at_B1, take(a_BN, column_N.expand_as(rows_BN)), take(b_BN, column_N - at_B1 - 1))
    return torch.where((rows_BN == BLANK) | (column_N == at_B1), rows_BN, digits_BN + 1)


def carries(sums_BK: Tensor, base: int) -> Tensor:
    """Where a carry leaves a column, for sums of digits 0..2*base-2 (column 0 may hold one more), bool ``[B, K]``.

    A column that sums to ``base - 1`` passes an incoming carry on; in every other column the sum alone decides. So a
    carry leaves a column exactly if the nearest column at or below it that does not sum to ``base - 1`` holds ``base``
    or more.
    """
    return take(sums_BK >= base, last_column_so_far(sums_BK != base - 1))


def propagate_carries(sums_BK: Tensor, base: int) -> Tensor:
    """The digits of numbers given as sums of digits, as in :func:`carries`; a carry out of the last column is lost."""
    return (sums_BK + shift_right(carries(sums_BK, base).long())) % base


def multiply(a_BK: Tensor, b_BK: Tensor, base: int) -> Tensor:
    """The ``K`` digits of the product of two numbers whose product has at most ``K`` digits.

    The sums of products of digits are integers up to ``(base - 1) ** 2 * K`` and come from a float64 Fourier transform.
    Its relative error is about ``1e-16 * log2(K)`` (5e-9 absolute, measured in base 10 at ``K = 2 ** 18``), far from
    the one half at which rounding would go wrong.
    """
    size = a_BK.shape[1]
    padded = max(2, 1 << (size - 1).bit_length())
    spectrum = torch.fft.rfft(a_BK.double(), padded) * torch.fft.rfft(b_BK.double(), padded)
    sums_BK = torch.fft.irfft(spectrum, padded)[:, :size].round().long()
    largest = (base - 1) ** 2 * size
    while largest > 2 * base - 2:  # a few rounds of carrying by one column, until every carry is at most one
        sums_BK = sums_BK % base + shift_right(sums_BK // base)
        largest = base - 1 + largest // base
    return propagate_carries(sums_BK, base)
