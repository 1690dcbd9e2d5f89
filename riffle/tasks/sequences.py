"""Moving symbols without looking at them: copy, reverse, duplicate, pick, reverse bits; and counting up."""

# B = batch, N = width of the padded rows
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from riffle.tasks.base import BLANK
from riffle.tasks.digits import settle
from riffle.tasks.rows import columns, keep, row_lengths, take
from riffle.tasks.symbols import PairTask, SymbolTask
from riffle.tasks.text import trim
from riffle.tasks.worst_cases import Split, symbol_splits


@dataclass(frozen=True)
class Identity(SymbolTask):
    """Give the symbols back as they are."""

    name = "id"
    summary = "Copy the symbols."
    example = ("7", "3", "9", "1")

    def answer(self, inputs_BN: Tensor) -> Tensor:
        return inputs_BN.clone()

    def solve(self, symbols: list[int]) -> list[int]:
        return list(symbols)


@dataclass(frozen=True)
class Reverse(SymbolTask):
    """Give the symbols in reverse order."""

    name = "reverse"
    summary = "Reverse the symbols."
    example = ("7", "3", "9", "1")

    def answer(self, inputs_BN: Tensor) -> Tensor:
        lengths_B = row_lengths(inputs_BN)
        return keep(take(inputs_BN, lengths_B[:, None] - 1 - columns(inputs_BN)), lengths_B)

    def solve(self, symbols: list[int]) -> list[int]:
        return symbols[::-1]

    @property
    def splits(self) -> Mapping[str, Split]:
        return symbol_splits(self.symbols)


@dataclass(frozen=True)
class Duplicate(SymbolTask):
    """Write the symbols twice in a row.

    An input of length ``l`` holds ``l // 2`` symbols, the blanks after them leave room for the copy. An input that
    leaves less room than that gets as much of the answer as fits.
    """

    name = "duplicate"
    summary = "Write the symbols twice."
    example = ("7", "3", "9")
    reach = 2

    def filled(self, lengths_B: Tensor) -> Tensor:
        return lengths_B // 2

    def answer(self, inputs_BN: Tensor) -> Tensor:
        lengths_B = row_lengths(inputs_BN)
        return keep(take(inputs_BN, columns(inputs_BN) % lengths_B[:, None].clamp(min=1)), 2 * lengths_B)

    def solve(self, symbols: list[int]) -> list[int]:
        return trim(symbols) * 2

    def parse(self, words: Sequence[str]) -> list[int]:
        symbols = super().parse(words)
        return symbols + [BLANK] * len(symbols)

    @property
    def splits(self) -> Mapping[str, Split]:
        return symbol_splits(self.symbols)


@dataclass(frozen=True)
class ReversePairs(PairTask):
    """Give the pairs in reverse order, each pair as it is."""

    name = "rev2"
    summary = "Reverse the order of key, value pairs."
    example = ("3:9", "1:4", "2:2")

    def answer(self, inputs_BN: Tensor) -> Tensor:
        lengths_B = row_lengths(inputs_BN)
        column_N = columns(inputs_BN)
        source_BN = lengths_B[:, None] - 2 - column_N + 2 * (column_N % 2)
        return keep(take(inputs_BN, source_BN), lengths_B)

    def solve(self, symbols: list[int]) -> list[int]:
        pairs = [symbols[i : i + 2] for i in range(0, len(symbols), 2)]
        return [symbol for pair in reversed(pairs) for symbol in pair]


@dataclass(frozen=True)
class Left(SymbolTask):
    """Give the first symbol."""

    name = "left"
    summary = "Give the first symbol."
    example = ("7", "3", "9", "1")

    def answer(self, inputs_BN: Tensor) -> Tensor:
        return torch.where(columns(inputs_BN) == 0, inputs_BN, BLANK)

    def solve(self, symbols: list[int]) -> list[int]:
        return symbols[:1]


@dataclass(frozen=True)
class Right(SymbolTask):
    """Give the last symbol, in the first cell."""

    name = "right"
    summary = "Give the last symbol."
    example = ("7", "3", "9", "1")

    def answer(self, inputs_BN: Tensor) -> Tensor:
        last_B1 = take(inputs_BN, row_lengths(inputs_BN)[:, None] - 1)
        return torch.where(columns(inputs_BN) == 0, last_B1, BLANK)

    def solve(self, symbols: list[int]) -> list[int]:
        return symbols[-1:]


@dataclass(frozen=True)
class BitReversal(SymbolTask):
    """Cell ``i`` gets the symbol of the cell whose number has the bits of ``i`` in reverse order.

    ``n`` symbols have numbers of ``(n - 1).bit_length()`` bits; where the reversed number is ``n`` or more, it is taken
    modulo ``n``. A permutation when ``n`` is a power of two, otherwise some symbols come twice and some not at all.
    """

    name = "bit-reversal"
    summary = "Move every symbol to the cell with the bit-reversed number."
    example = ("1", "2", "3", "4", "5", "6", "7", "8")

    def answer(self, inputs_BN: Tensor) -> Tensor:
        lengths_B1 = row_lengths(inputs_BN)[:, None]
        column_N = columns(inputs_BN)
        source_BN = torch.zeros_like(inputs_BN)
        for bit in range((inputs_BN.shape[1] - 1).bit_length()):
            counts_B1 = (lengths_B1 - 1) >> bit > 0  # the row's column numbers have this bit
            source_BN = torch.where(counts_B1, 2 * source_BN + (column_N >> bit) % 2, source_BN)
        return keep(take(inputs_BN, source_BN % lengths_B1.clamp(min=1)), lengths_B1[:, 0])

    def solve(self, symbols: list[int]) -> list[int]:
        bits = (len(symbols) - 1).bit_length()
        reversed_numbers = [int(f"{i:0{bits}b}"[::-1], 2) for i in range(len(symbols))]
        return [symbols[number % len(symbols)] for number in reversed_numbers]


@dataclass(frozen=True)
class Increment(SymbolTask):
    """Add one to a number in base ``symbols - 1``, its digit ``d`` written as symbol ``d + 1``, the lowest first.

    The answer has as many digits as the input: the highest number is followed by zero.
    """

    name = "increment"
    summary = "Add one to a number of symbols 1..11, the lowest digit first."
    example = ("11", "11", "3", "1")

    def answer(self, inputs_BN: Tensor) -> Tensor:
        sums_BN = (inputs_BN - 1).clamp(min=0) + (columns(inputs_BN) == 0)
        return keep(settle(sums_BN, self.symbols - 1) + 1, row_lengths(inputs_BN))

    def solve(self, symbols: list[int]) -> list[int]:
        output = list(symbols)
        for i, symbol in enumerate(symbols):
            if symbol < self.symbols - 1:
                output[i] = symbol + 1
                break
            output[i] = 1
        return output
