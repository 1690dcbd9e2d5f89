"""Worst cases of the paper's five tasks, which uniform sampling hardly ever draws."""

# B = batch, N = width of the padded rows
from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from riffle.tasks.rows import bernoulli, columns, crop, first_column, randint, randint_below, sort_rows, take
from riffle.tasks.task import BLANK, Split

SYMBOL_SPLITS: dict[str, Split] = {
    "all-equal": lambda rows_BN, generator: torch.where(rows_BN == BLANK, BLANK, rows_BN[:, :1]),
    "sorted": lambda rows_BN, generator: sort_rows(rows_BN),
    "reversed": lambda rows_BN, generator: rows_BN.sort(dim=1, descending=True).values,
}
Operands = Callable[[Tensor, Tensor, torch.Generator], tuple[Tensor, Tensor]]
"""The bits of two numbers per row, from their columns ``[B, N]``, the numbers of digits ``[B, 1]`` and a generator."""


def longest_carry(column_BN: Tensor, digits_B1: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A carry that starts at a random bit, in every other row at the lowest, and runs to the highest.

    Row 0 is 11...1 + 1; in the others it is random which of the two numbers has the bit that passes the carry on, and
    the bits below the start are random but make no carry.
    """
    row_B1 = torch.arange(column_BN.shape[0], device=generator.device)[:, None]
    start_B1 = torch.where(row_B1 % 2 == 0, 0, randint_below(digits_B1, generator))
    one_BN = bernoulli(0.5, (*column_BN.shape,), generator) | (row_B1 == 0)
    below_BN = bernoulli(0.5, (*column_BN.shape,), generator)
    a_BN = torch.where(column_BN < start_B1, one_BN & below_BN, one_BN | (column_BN == start_B1))
    b_BN = torch.where(column_BN < start_B1, ~one_BN & below_BN, ~one_BN | (column_BN == start_B1))
    return a_BN.long(), b_BN.long()


def alternating_carries(column_BN: Tensor, digits_B1: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Runs of 1 + 1, which make carries, alternate with runs of 0 + 0, which absorb them; runs of 1 to 4 bits."""
    run_B1, shift_B1 = (randint(low, high, (column_BN.shape[0], 1), generator) for low, high in ((1, 5), (0, 8)))
    bits_BN = (column_BN + shift_B1) // run_B1 % 2
    return bits_BN, bits_BN


def alternating(column_BN: Tensor, digits_B1: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """0101... or 1010... in each number."""
    a_BN, b_BN = ((column_BN + randint(0, 2, (column_BN.shape[0], 1), generator)) % 2 for _ in range(2))
    return a_BN, b_BN


def powers_of_two(column_BN: Tensor, digits_B1: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """One bit is set in each number."""
    a_BN, b_BN = ((column_BN == randint_below(digits_B1, generator)).long() for _ in range(2))
    return a_BN, b_BN


BINARY_CASES: dict[str, Operands] = {
    "all-zero": lambda column_BN, digits_B1, generator: (torch.zeros_like(column_BN), torch.zeros_like(column_BN)),
    "all-one": lambda column_BN, digits_B1, generator: (torch.ones_like(column_BN), torch.ones_like(column_BN)),
    "powers-of-two": powers_of_two,
}
ADDITION_CASES = {"longest-carry": longest_carry, "alternating-carries": alternating_carries, **BINARY_CASES}
MULTIPLICATION_CASES = {**BINARY_CASES, "alternating": alternating}


def binary_splits(cases: dict[str, Operands], separator: int) -> dict[str, Split]:
    """Splits that replace the two binary numbers of every row by those of the cases."""

    def split(operands: Operands, rows_BN: Tensor, generator: torch.Generator) -> Tensor:
        digits_B1 = first_column(rows_BN == separator)[:, None]
        column_BN = columns(rows_BN).expand_as(rows_BN)
        a_BN, b_BN = operands(column_BN, digits_B1, generator)
        bits_BN = torch.where(column_BN < digits_B1, a_BN, take(b_BN, column_BN - digits_B1 - 1))
        return crop(torch.where(column_BN == digits_B1, separator, bits_BN + 1), 2 * digits_B1[:, 0] + 1)

    return {name: partial(split, operands) for name, operands in cases.items()}
