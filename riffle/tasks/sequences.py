"""Moving symbols without looking at them: copy, reverse, duplicate, pick, reverse bits; and counting up.

Rotating a binary number by an amount given in unary.
"""

# B = batch, N = width of the padded rows
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from riffle.tasks.base import BLANK, Task, parse_number, render_chars, tokens, trim
from riffle.tasks.padded import columns, keep, row_lengths, settle, take, uniform, uniform_below
from riffle.tasks.symbols import PairTask, SymbolTask
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


REST, TURN = 3, 4


@dataclass(frozen=True)
class Rotate(Task):
    """Rotate a binary number of ``n`` bits to the left by 0..n-1 places.

    An input of length ``l`` holds ``n = l // 2`` bits, the lowest first, bit ``d`` as symbol ``d + 1``; then ``n - 1``
    symbols that give the amount in unary, :data:`TURN` for every place and :data:`REST` for the others. The answer has
    ``n`` bits. People write ``10110 2``, highest bit first, and read ``11010``.
    """

    name = "rotate"
    summary = "Rotate a binary number to the left by an amount given in unary."
    example = ("10110", "2")
    syntax = "type a binary number and how many places to rotate it to the left, for example: 10110 2"
    symbols: int = 5
    classes: int = 3

    def draw(self, lengths_B: Tensor, width: int, *, generator: torch.Generator) -> Tensor:
        bits_B = lengths_B // 2
        amount_B1 = uniform_below(bits_B, generator)[:, None]
        rows_BN = uniform(1, 3, (lengths_B.shape[0], width), generator)
        place_BN = columns(rows_BN) - bits_B[:, None]
        unary_BN = torch.where(place_BN < amount_B1, TURN, REST)
        return keep(torch.where(place_BN < 0, rows_BN, unary_BN), 2 * bits_B - 1)

    def answer(self, inputs_BN: Tensor) -> Tensor:
        bits_B = (row_lengths(inputs_BN) + 1) // 2
        amount_B1 = (inputs_BN == TURN).sum(dim=1, keepdim=True)
        source_BN = (columns(inputs_BN) - amount_B1) % bits_B[:, None].clamp(min=1)
        return keep(take(inputs_BN, source_BN), bits_B)

    def solve(self, symbols: list[int]) -> list[int]:
        bits = (len(symbols) + 1) // 2
        amount = symbols.count(TURN)
        return symbols[bits - amount : bits] + symbols[: bits - amount]

    def parse(self, words: Sequence[str]) -> list[int]:
        parts = tokens(words)
        if len(parts) != 2:
            raise ValueError(f"a number and an amount are needed, got {' '.join(words)!r}; {self.syntax}")
        digits = parse_number(parts[0], 2, self.syntax)
        if not parts[1].isdecimal() or int(parts[1]) >= len(digits):
            raise ValueError(f"amount {parts[1]} is outside 0..{len(digits) - 1}; {self.syntax}")
        amount = int(parts[1])
        return [digit + 1 for digit in digits] + [TURN] * amount + [REST] * (len(digits) - 1 - amount)

    def render(self, output: list[int]) -> str:
        return render_chars(output, "01")[::-1]
