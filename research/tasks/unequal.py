"""Sums and products of binary numbers of unequal lengths, and square roots."""

# B = batch, N = width of the padded rows, K = digits of a root, L = limbs of 30 bits
from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from research.tasks.languages import BitTask
from research.tasks.numbers import LIMB
from riffle.tasks.arithmetic import Add, Arithmetic, Multiply, significant_digits
from riffle.tasks.digits import carries, digits_of, number_of, operands, propagate_carries
from riffle.tasks.families import Split
from riffle.tasks.rows import columns, crop, randint, randint_below, row_lengths, shift_right, take
from riffle.tasks.task import Task, trim

END = 3


class UnequalNumbers(Arithmetic):
    """Two binary numbers that together fill ``length - 1`` cells, and one that answers them, followed by :data:`END`.

    Where the first one ends is uniform. An input shorter than 3 is a single number.
    """

    splits: ClassVar[dict[str, Split]] = {}
    leading_zeros = False
    classes: int = 4
    fill, unfill = Task.fill, Task.unfill

    def draw(self, lengths_B: Tensor, width: int, *, generator: torch.Generator) -> Tensor:
        first_B = 1 + randint_below(lengths_B - 2, generator)
        at_B1 = torch.where(lengths_B < 3, width, first_B)[:, None]
        rows_BN = randint(1, 3, (len(lengths_B), width), generator)
        return crop(torch.where(columns(rows_BN) == at_B1, self.separator, rows_BN), lengths_B)

    def answer(self, inputs_BN: Tensor) -> Tensor:
        digits_BN = self.combine_digits(*operands(inputs_BN, self.separator))
        end_B = significant_digits(digits_BN, inputs_BN)
        rows_BN = torch.where(columns(inputs_BN) < end_B[:, None], digits_BN + 1, END)
        return crop(rows_BN, end_B + (end_B > 0))

    def solve(self, symbols: list[int]) -> list[int]:
        return [*super().solve(symbols), END] if symbols else []

    def join(self, a: list[int], b: list[int], digits: int = 0) -> list[int]:
        return [*self.encode(a), self.separator, *self.encode(b)]

    def render(self, output: list[int]) -> str:
        return super().render([symbol for symbol in trim(output) if symbol != END])


class AddUnequal(UnequalNumbers, Add):
    """Binary addition of numbers of unequal lengths."""

    name = "add-unequal"
    summary = "Add two binary numbers of unequal lengths."


class MultiplyUnequal(UnequalNumbers, Multiply):
    """Binary multiplication of numbers of unequal lengths."""

    name = "multiply-unequal"
    summary = "Multiply two binary numbers of unequal lengths."


def square_root(bits_BN: Tensor) -> Tensor:
    """The ``K = (N + 1) // 2`` bits of the root, rounded down, of a binary number, both with the lowest bit first.

    Two bits of the number give one of the root: a step of schoolbook division whose divisor grows. Numbers are kept in
    limbs of 30 bits.
    """
    base, size = 1 << LIMB, bits_BN.shape[1]
    limbs = -(-(size // 2 + 3) // LIMB)  # the remainder is at most twice the root
    root_BL = torch.zeros_like(bits_BN[:, :1]).repeat(1, limbs)
    rest_BL, root_bits = root_BL, []
    lowest_L = (torch.arange(limbs, device=bits_BN.device) == 0).long()
    for low in reversed(range(0, size, 2)):
        pair_B1 = bits_BN[:, low : low + 1] + (2 * bits_BN[:, low + 1 : low + 2] if low + 1 < size else 0)
        rest_BL = shifted(rest_BL, 2) + lowest_L * pair_B1
        minus_BL = base - 1 - shifted(root_BL, 2) - lowest_L  # minus 4 * root + 1, but for the 1 that is added below
        difference_BL = rest_BL + minus_BL + lowest_L
        fits_B1 = carries(difference_BL, base)[:, -1:]
        rest_BL = torch.where(fits_B1, propagate_carries(difference_BL, base), rest_BL)
        root_BL = shifted(root_BL, 1) + lowest_L * fits_B1
        root_bits.append(fits_B1)
    return torch.cat(root_bits[::-1], dim=1).long()


def shifted(limbs_BL: Tensor, bits: int) -> Tensor:
    """A number in limbs times a power of two; it must have room for the result."""
    return (limbs_BL << bits) % (1 << LIMB) + shift_right(limbs_BL >> (LIMB - bits))


class SquareRoot(BitTask):
    """Give the square root, rounded down, of a binary number with its highest bit first.

    A number of ``n`` bits has a root of ``ceil(n / 2)``, leading zeros included.
    """

    name = "square-root"
    summary = "Give the square root of a binary number, rounded down."
    example = ("1", "0", "0", "1", "0", "1")

    def answer(self, inputs_BN: Tensor) -> Tensor:
        lengths_B1, column_N = row_lengths(inputs_BN)[:, None], columns(inputs_BN)
        from_lowest_BN = crop(take(inputs_BN, lengths_B1 - 1 - column_N), lengths_B1[:, 0])
        root_BK = square_root((from_lowest_BN - 1).clamp(min=0))
        digits_B1 = (lengths_B1 + 1) // 2
        return crop(take(root_BK, digits_B1 - 1 - column_N) + 1, digits_B1[:, 0])

    def solve(self, symbols: list[int]) -> list[int]:
        if not symbols:
            return []
        value = number_of([symbol - 1 for symbol in reversed(symbols)], 2)
        return [digit + 1 for digit in reversed(digits_of(math.isqrt(value), 2, (len(symbols) + 1) // 2))]
