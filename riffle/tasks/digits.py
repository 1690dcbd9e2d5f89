"""Exact arithmetic on long numbers: a whole batch at once for the answers, plain Python for the solutions.

A batch has one number per row, its digits in the columns with the lowest first. Sums, products and differences have no
loop over digits: carries are found with one running maximum, products with one Fourier transform.
"""

# B = batch, N = width of the padded rows, K = digits per number, L = limbs of 30 bits
from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from riffle.tasks.rows import columns, first_column, last_column_so_far, shift_right, take

LIMB = 30
"""Bits that a division handles at once."""


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


def divide(a_BN: Tensor, b_BN: Tensor) -> tuple[Tensor, Tensor]:
    """Quotient and remainder of binary numbers, each ``[B, N]``: schoolbook division, one step per bit.

    The remainder is kept in limbs of 30 bits, so that a step costs little even for thousands of bits. Where the divisor
    is zero the result is undefined.
    """
    base = 1 << LIMB
    divisor_BL = pack_digits(b_BN, 2, LIMB)
    lowest_L = (columns(divisor_BL) == 0).long()
    minus_divisor_BL = base - 1 - divisor_BL + lowest_L
    rest_BL = torch.zeros_like(divisor_BL)
    quotient = []
    for bit in reversed(range(a_BN.shape[1])):
        rest_BL = propagate_carries(2 * rest_BL + lowest_L * a_BN[:, bit, None], base)
        fits_B1 = carries(rest_BL + minus_divisor_BL, base)[:, -1:]
        rest_BL = propagate_carries(rest_BL + torch.where(fits_B1, minus_divisor_BL, 0), base)
        quotient.append(fits_B1)
    return torch.cat(quotient[::-1], dim=1).long(), unpack_digits(rest_BL, 2, LIMB)[:, : a_BN.shape[1]]


def pack_digits(digits_BK: Tensor, base: int, group: int) -> Tensor:
    """Join every ``group`` digits to one digit of base ``base ** group``; the last one is padded with zeros."""
    grouped = F.pad(digits_BK, (0, -digits_BK.shape[1] % group)).unflatten(1, (-1, group))
    return (grouped * base ** torch.arange(group, device=digits_BK.device)).sum(dim=2)


def unpack_digits(packed_BK: Tensor, base: int, group: int) -> Tensor:
    """Undo :func:`pack_digits`; the zeros that padded the last digit remain."""
    return (packed_BK[:, :, None] // base ** torch.arange(group, device=packed_BK.device) % base).flatten(1)
