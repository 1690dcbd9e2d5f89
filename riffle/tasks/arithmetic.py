"""Long numbers: sums in base 2, 4 or 10, binary products, counting up.

The lowest digit comes first in a row of symbols; people type and read numbers as usual, the highest digit first.
"""

# B = batch, N = width of the padded rows
from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from riffle.tasks.digits import digits_of, multiply, number_of, operands, propagate_carries, replace_operands
from riffle.tasks.families import FAR, Split, value_families
from riffle.tasks.number_families import ADDITION_CASES, MULTIPLICATION_CASES, PRODUCTS, number_splits, sum_families
from riffle.tasks.rows import columns, crop, first_column, randint, randint_below, row_lengths
from riffle.tasks.structure import chosen, structured_numbers, with_carries
from riffle.tasks.task import BLANK, SymbolTask, Task, parse_two_numbers, render_number, trim


def significant_digits(digits_BN: Tensor, inputs_BN: Tensor) -> Tensor:
    """The number of digits without leading zeros: at least one, none where the input is blank, int64 ``[B]``."""
    return torch.minimum(row_lengths(digits_BN).clamp(min=1), row_lengths(inputs_BN))


class TwoNumbers(Task):
    """A task on two numbers and a separator, the shorter one padded with zeros; digit ``d`` is symbol ``d + 1``."""

    base: ClassVar[int]
    separator: ClassVar[int]
    signs: ClassVar[str]
    """What may stand between the numbers in place of a space."""
    right_aligned = True
    symbols: int = 13
    classes: int = 13

    def encode(self, digits: Sequence[int]) -> list[int]:
        """The symbols of a number."""
        return [digit + 1 for digit in digits]

    def decode(self, symbols: Sequence[int]) -> list[int]:
        """The digits of a number, the inverse of :meth:`encode`."""
        return [symbol - 1 for symbol in symbols]

    def numbers(self, symbols: list[int]) -> tuple[list[int], list[int]]:
        """The digits of both numbers of an input."""
        at = symbols.index(self.separator) if self.separator in symbols else len(symbols)
        return self.decode(symbols[:at]), self.decode(symbols[at + 1 :])

    def structured_digits(self, digits_B1: Tensor, width: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """The digits of two numbers of random structure, for :meth:`restructure`."""
        return structured_numbers(self.base, digits_B1, width, generator)

    def restructure(self, inputs_BN: Tensor, generator: torch.Generator) -> Tensor:
        digits_B1 = first_column(inputs_BN == self.separator)[:, None]
        numbers = self.structured_digits(digits_B1, inputs_BN.shape[1], generator)
        return replace_operands(inputs_BN, self.separator, *numbers)

    def join(self, a: list[int], b: list[int], digits: int = 0) -> list[int]:
        """The input of two numbers, the inverse of :meth:`numbers`; both get leading zeros up to the same length."""
        digits = max(len(a), len(b), digits)
        a, b = (number + [0] * (digits - len(number)) for number in (a, b))
        return [*self.encode(a), self.separator, *self.encode(b)]

    def parse(self, words: Sequence[str]) -> list[int]:
        return self.join(*parse_two_numbers(words, self.base, self.signs, self.syntax))

    def write(self, symbols: list[int]) -> str:
        return " ".join("".join(map(str, reversed(digits))) for digits in self.numbers(symbols))

    def label(self, symbol: int) -> str:
        if symbol == self.separator:
            return self.signs[0]
        return str(symbol - 1) if symbol != BLANK else super().label(symbol)

    def render(self, output: list[int]) -> str:
        return render_number(output, self.base)


class Arithmetic(TwoNumbers):
    """Two numbers of ``k = (length - 1) // 2`` digits each; the answer is one number."""

    leading_zeros: ClassVar[bool] = False
    """Whether the answer is padded with zeros to the length of the input."""

    def draw(self, lengths_B: Tensor, width: int, *, generator: torch.Generator) -> Tensor:
        digits_B = (lengths_B - 1) // 2
        rows_BN = randint(1, self.base + 1, (lengths_B.shape[0], width), generator)
        rows_BN = torch.where(columns(rows_BN) == digits_B[:, None], self.separator, rows_BN)
        return crop(rows_BN, 2 * digits_B + 1)

    @abstractmethod
    def combine_digits(self, a_BN: Tensor, b_BN: Tensor) -> Tensor:
        """The digits of the number to answer, for :meth:`answer`."""

    @staticmethod
    @abstractmethod
    def combine(a: int, b: int, /) -> int:
        """The number to answer, for :meth:`solve`."""

    def answer(self, inputs_BN: Tensor) -> Tensor:
        digits_BN = self.combine_digits(*operands(inputs_BN, self.separator))
        lengths_B = row_lengths(inputs_BN) if self.leading_zeros else significant_digits(digits_BN, inputs_BN)
        return crop(digits_BN + 1, lengths_B)

    def solve(self, symbols: list[int]) -> list[int]:
        if not symbols:
            return []
        value = self.combine(*(number_of(digits, self.base) for digits in self.numbers(symbols)))
        return self.encode(digits_of(value, self.base, len(symbols) if self.leading_zeros else 1))


class Addition(Arithmetic):
    """The sum of two numbers."""

    separator = 11
    signs = "+"
    carries = True
    combine = staticmethod(operator.add)

    def structured_digits(self, digits_B1: Tensor, width: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        numbers = super().structured_digits(digits_B1, width, generator)
        changed = with_carries(*numbers, self.base, generator)
        apart_B1 = chosen(0.25, digits_B1.shape[0], generator)
        a_BN, b_BN = (torch.where(apart_B1, *pair) for pair in zip(numbers, changed, strict=True))
        return a_BN, b_BN

    def families(self) -> dict[str, Split]:
        return sum_families(self.base, self.separator)

    def combine_digits(self, a_BN: Tensor, b_BN: Tensor) -> Tensor:
        return propagate_carries(a_BN + b_BN, self.base)

    def fill(self, symbols: list[int], length: int) -> list[int]:
        return self.join(*self.numbers(trim(symbols)), digits=(length - 1) // 2) if any(symbols) else symbols

    def unfill(self, output: list[int], symbols: list[int], filled: list[int]) -> list[int]:
        """The sum without leading zeros: a filled input has more of them than training taught the network to omit."""
        digits = len(output)
        while digits > 1 and output[digits - 1] in (BLANK, *self.encode([0])):
            digits -= 1
        return output[:digits]


class Multiplication(Arithmetic):
    """The product of two numbers.

    Inputs are not filled up: of the trained lengths the shipped networks have all products right without leading zeros,
    and 1 to 2% fewer with them.
    """

    separator = 12
    signs = "*x"
    leading_zeros = True
    combine = staticmethod(operator.mul)

    def families(self) -> dict[str, Split]:
        return number_splits(PRODUCTS, self.base, self.separator)

    def combine_digits(self, a_BN: Tensor, b_BN: Tensor) -> Tensor:
        return multiply(a_BN, b_BN, self.base)


class Add(Addition):
    """Binary addition."""

    name = "add"
    summary = "Add two binary numbers."
    example = ("1011", "110")
    syntax = "type two binary numbers, for example: 1011 110 or 1011+110"
    base = 2
    splits = number_splits(ADDITION_CASES, 2, Addition.separator)
    classes: int = 4


class AddBase4(Addition):
    """Addition in base 4."""

    name = "add-base4"
    summary = "Add two numbers in base 4."
    example = ("1023", "321")
    syntax = "type two numbers in base 4, for example: 1023 321 or 1023+321"
    base = 4
    classes: int = 5


class AddDecimal(Addition):
    """Decimal addition."""

    name = "add-decimal"
    summary = "Add two decimal numbers."
    example = ("1987", "44")
    syntax = "type two decimal numbers, for example: 1987 44 or 1987+44"
    base = 10
    classes: int = 11


class Multiply(Multiplication):
    """Binary multiplication."""

    name = "multiply"
    summary = "Multiply two binary numbers."
    settings = (
        *("model.features=384", "model.blocks=2", "model.dropout=0", "data.longest=0", "data.shorter=0.05"),
        *("data.full=0.3", "data.above=0", "data.offset=0"),
        *("train.steps=28000", "train.learning_rate=0.0025", "train.schedule=constant"),
    )
    example = ("1011", "110")
    syntax = "type two binary numbers, for example: 1011 110 or '1011*110'"
    base = 2
    splits = number_splits(MULTIPLICATION_CASES, 2, Multiplication.separator)
    classes: int = 4


class Increment(SymbolTask):
    """Add one to a number in base ``symbols - 1``, its digit ``d`` written as symbol ``d + 1``, the lowest first.

    The answer has as many digits as the input: the highest number is followed by zero.
    """

    name = "increment"
    summary = "Add one to a number of symbols 1..11, the lowest digit first."
    example = ("11", "11", "3", "1")

    def restructure(self, inputs_BN: Tensor, generator: torch.Generator) -> Tensor:
        carry_B1 = randint_below(row_lengths(inputs_BN) + 1, generator)[:, None]
        carries_BN = (columns(inputs_BN) < carry_B1) & chosen(0.5, inputs_BN.shape[0], generator)
        return torch.where(carries_BN, self.symbols - 1, super().restructure(inputs_BN, generator))

    def families(self) -> dict[str, Split]:
        def counted(least: int, most: int, rows_BN: Tensor, generator: torch.Generator) -> Tensor:
            """A carry over ``least`` to ``most`` of the digits, and a digit that takes it where one is left."""
            column_N, highest = columns(rows_BN), self.symbols - 1
            end_B1 = least + randint_below(torch.full_like(rows_BN[:, :1], most + 1 - least), generator)
            rows_BN = torch.where((column_N == end_B1) & (rows_BN == highest), 1, rows_BN)
            return torch.where((column_N < end_B1) & (rows_BN != BLANK), highest, rows_BN)

        carries = {"carry": partial(counted, 1, 30), f"{FAR}carry": partial(counted, 32, 2**16)}
        return value_families(self.replace_values) | carries

    def answer(self, inputs_BN: Tensor) -> Tensor:
        sums_BN = (inputs_BN - 1).clamp(min=0) + (columns(inputs_BN) == 0)
        return crop(propagate_carries(sums_BN, self.symbols - 1) + 1, row_lengths(inputs_BN))

    def solve(self, symbols: list[int]) -> list[int]:
        highest = self.symbols - 1
        carries = next((i for i, symbol in enumerate(symbols) if symbol < highest), len(symbols))
        return [1] * carries + [symbol + 1 for symbol in symbols[carries : carries + 1]] + symbols[carries + 1 :]

    def fill(self, symbols: list[int], length: int) -> list[int]:
        number = trim(symbols)
        return number + [1] * (length - len(number)) if number else symbols

    def unfill(self, output: list[int], symbols: list[int], filled: list[int]) -> list[int]:
        return output[: len(symbols)]
