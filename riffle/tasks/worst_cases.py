"""Inputs that uniform sampling all but never draws: the worst cases of the paper's five tasks.

Every split is a function of a batch size, a length and a generator, and gives inputs ``[batch, length]``.
"""

# B = batch, N = length, K = digits per number
from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from riffle.tasks.rows import coin, columns, uniform

Split = Callable[[int, int, torch.Generator], Tensor]


def symbol_splits(symbols: int, filled: Callable[[int], int] = lambda length: length) -> dict[str, Split]:
    """Symbols 1..symbols-1 that are all equal, in order, or in reverse order; blank after ``filled(length)``."""

    def all_equal(batch: int, length: int, generator: torch.Generator) -> Tensor:
        used = filled(length)
        return F.pad(uniform(1, symbols, (batch, 1), generator).expand(batch, used), (0, length - used))

    def ordered(batch: int, length: int, generator: torch.Generator, descending: bool = False) -> Tensor:
        used = filled(length)
        rows_BN = uniform(1, symbols, (batch, used), generator).sort(dim=1, descending=descending).values
        return F.pad(rows_BN, (0, length - used))

    def reverse_ordered(batch: int, length: int, generator: torch.Generator) -> Tensor:
        return ordered(batch, length, generator, descending=True)

    return {"all-equal": all_equal, "sorted": ordered, "reversed": reverse_ordered}


Operands = Callable[[int, int, torch.Generator], tuple[Tensor, Tensor]]
"""Two numbers per row from batch size, digits and generator: bits ``[B, K]``, the lowest first."""


def longest_carry(batch: int, digits: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A carry starts somewhere and runs to the top; in every other row it starts at the very bottom.

    Row 0 is the classic 11...1 + 1; elsewhere it is random which number holds the bit that hands the carry on, and the
    bits below the start are random without a carry among them.
    """
    start_B1 = uniform(0, max(digits, 1), (batch, 1), generator)
    row_B1 = torch.arange(batch, device=generator.device)[:, None]
    start_B1 = torch.where(row_B1 % 2 == 0, 0, start_B1)
    one_BK = coin(0.5, (batch, digits), generator) | (row_B1 == 0)
    place_K = columns(one_BK)
    below_BK = coin(0.5, (batch, digits), generator)
    a_BK = torch.where(place_K < start_B1, one_BK & below_BK, one_BK | (place_K == start_B1))
    b_BK = torch.where(place_K < start_B1, ~one_BK & below_BK, ~one_BK | (place_K == start_B1))
    return a_BK.long(), b_BK.long()


def alternating_carries(batch: int, digits: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Runs of 1 + 1, which make carries, alternate with runs of 0 + 0, which swallow them; runs of 1 to 4 bits."""
    run_B1 = uniform(1, 5, (batch, 1), generator)
    place_BK = torch.arange(digits, device=generator.device) + uniform(0, 8, (batch, 1), generator)
    bits_BK = place_BK // run_B1 % 2
    return bits_BK, bits_BK


def alternating(batch: int, digits: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """0101... or 1010... in each number."""
    place_K = torch.arange(digits, device=generator.device)
    a_BK, b_BK = ((place_K + uniform(0, 2, (batch, 1), generator)) % 2 for _ in range(2))
    return a_BK, b_BK


def constant(bit: int) -> Operands:
    """Every bit of both numbers is ``bit``."""

    def operands(batch: int, digits: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        bits_BK = torch.full((batch, digits), bit, dtype=torch.int64, device=generator.device)
        return bits_BK, bits_BK

    return operands


def powers_of_two(batch: int, digits: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """One bit is set in each number."""
    place_K = torch.arange(digits, device=generator.device)
    a_BK, b_BK = ((place_K == uniform(0, max(digits, 1), (batch, 1), generator)).long() for _ in range(2))
    return a_BK, b_BK


def split_of(operands: Operands, separator: int) -> Split:
    """Write the numbers of ``operands`` as inputs of a binary task."""

    def split(batch: int, length: int, generator: torch.Generator) -> Tensor:
        digits = (length - 1) // 2
        a_BK, b_BK = operands(batch, digits, generator)
        separator_B1 = torch.full((batch, 1), separator, dtype=torch.int64, device=generator.device)
        return F.pad(torch.cat([a_BK + 1, separator_B1, b_BK + 1], dim=1), (0, length - 2 * digits - 1))

    return split


def addition_splits(separator: int) -> dict[str, Split]:
    """Worst cases of binary addition."""
    cases = {
        "longest-carry": longest_carry,
        "alternating-carries": alternating_carries,
        "all-zero": constant(0),
        "all-one": constant(1),
        "powers-of-two": powers_of_two,
    }
    return {name: split_of(operands, separator) for name, operands in cases.items()}


def multiplication_splits(separator: int) -> dict[str, Split]:
    """Worst cases of binary multiplication."""
    cases = {
        "all-zero": constant(0),
        "all-one": constant(1),
        "powers-of-two": powers_of_two,
        "alternating": alternating,
    }
    return {name: split_of(operands, separator) for name, operands in cases.items()}
