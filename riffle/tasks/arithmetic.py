"""Addition and multiplication of two long numbers in base 2, 4 or 10.

Multiplication of decimal numbers whose digits are written as four bits each (binary-coded decimal).
"""

# B = batch, N = width of the padded rows
# B = batch, N = width of the padded rows, K = decimal digits
from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from riffle.tasks.base import BLANK, SHOW_BLANK, SHOW_UNKNOWN, Task, parse_two_numbers, render_number, trim
from riffle.tasks.padded import columns, first_column, keep, multiply, pack, row_lengths, settle, take, uniform, unpack
from riffle.tasks.worst_cases import Split, addition_splits, multiplication_splits

PLUS, TIMES = 11, 12


def operands(rows_BN: Tensor, separator: int) -> tuple[Tensor, Tensor]:
    """The digits (symbol - 1) before and after the separator, each int64 ``[B, N]`` and filled up with zeros."""
    column_N = columns(rows_BN)
    at_B1 = first_column(rows_BN == separator)[:, None]
    before_BN = torch.where(column_N < at_B1, rows_BN, 0)
    after_BN = torch.where(column_N + at_B1 + 1 < rows_BN.shape[1], take(rows_BN, column_N + at_B1 + 1), 0)
    return (before_BN - 1).clamp(min=0), (after_BN - 1).clamp(min=0)


def number(digits: Sequence[int], base: int) -> int:
    """The value of digits with the lowest first."""
    value = 0
    for digit in reversed(digits):
        value = value * base + digit
    return value


def digits_of(value: int, base: int, at_least: int = 1) -> list[int]:
    """The digits of a number with the lowest first, filled up with zeros to ``at_least``."""
    digits: list[int] = []
    while value or len(digits) < at_least:
        value, digit = divmod(value, base)
        digits.append(digit)
    return digits


@dataclass(frozen=True)
class Arithmetic(Task):
    """Two numbers of ``k = (length - 1) // 2`` digits with a separator between them.

    Digit ``d`` is symbol ``d + 1`` and the lowest digit comes first. People write and read numbers as usual, the
    highest digit first; the shorter one is filled up with zeros.
    """

    base: ClassVar[int]
    separator: ClassVar[int]
    signs: ClassVar[str]
    symbols: int = 13
    classes: int = 13

    def draw(self, lengths_B: Tensor, width: int, *, generator: torch.Generator) -> Tensor:
        digits_B = (lengths_B - 1) // 2
        rows_BN = uniform(1, self.base + 1, (lengths_B.shape[0], width), generator)
        rows_BN = torch.where(columns(rows_BN) == digits_B[:, None], self.separator, rows_BN)
        return keep(rows_BN, 2 * digits_B + 1)

    @abstractmethod
    def combine(self, a: int, b: int) -> int:
        """The number to answer, for :meth:`solve`."""

    def solve(self, symbols: list[int]) -> list[int]:
        if not symbols:
            return []
        at = symbols.index(self.separator)
        a, b = ([symbol - 1 for symbol in part] for part in (symbols[:at], symbols[at + 1 :]))
        value = self.combine(number(a, self.base), number(b, self.base))
        return [digit + 1 for digit in digits_of(value, self.base, self.answer_digits(len(symbols)))]

    def answer_digits(self, length: int) -> int:
        """How many digits an answer has at least, zeros included, for :meth:`solve`."""
        return 1

    def parse(self, words: Sequence[str]) -> list[int]:
        a, b = parse_two_numbers(words, self.base, self.signs, self.syntax)
        digits = max(len(a), len(b))
        a, b = a + [0] * (digits - len(a)), b + [0] * (digits - len(b))
        return [digit + 1 for digit in a] + [self.separator] + [digit + 1 for digit in b]

    def render(self, output: list[int]) -> str:
        return render_number(output, self.base)


@dataclass(frozen=True)
class Addition(Arithmetic):
    """The sum of two numbers, without leading zeros."""

    separator = PLUS
    signs = "+"

    def answer(self, inputs_BN: Tensor) -> Tensor:
        a_BN, b_BN = operands(inputs_BN, self.separator)
        sum_BN = settle(a_BN + b_BN, self.base)
        return keep(sum_BN + 1, significant(sum_BN, inputs_BN))

    def combine(self, a: int, b: int) -> int:
        return a + b


@dataclass(frozen=True)
class Multiplication(Arithmetic):
    """The product of two numbers, filled up with zeros to the length of the input."""

    separator = TIMES
    signs = "*x"

    def answer(self, inputs_BN: Tensor) -> Tensor:
        product_BN = multiply(*operands(inputs_BN, self.separator), self.base)
        return keep(product_BN + 1, row_lengths(inputs_BN))

    def combine(self, a: int, b: int) -> int:
        return a * b

    def answer_digits(self, length: int) -> int:
        return length


def significant(digits_BN: Tensor, inputs_BN: Tensor) -> Tensor:
    """How many digits are left without leading zeros, at least one, but none where the input is blank."""
    return torch.minimum(row_lengths(digits_BN).clamp(min=1), row_lengths(inputs_BN))


@dataclass(frozen=True)
class Add(Addition):
    """Binary addition."""

    name = "add"
    summary = "Add two binary numbers."
    example = ("1011", "110")
    syntax = "type two binary numbers, for example: 1011 110 or 1011+110"
    base = 2
    classes: int = 4

    @property
    def splits(self) -> Mapping[str, Split]:
        return addition_splits(self.separator)


@dataclass(frozen=True)
class AddBase4(Addition):
    """Addition in base 4."""

    name = "add-base4"
    summary = "Add two numbers in base 4."
    example = ("1023", "321")
    syntax = "type two numbers in base 4, for example: 1023 321 or 1023+321"
    base = 4
    classes: int = 5


@dataclass(frozen=True)
class AddDecimal(Addition):
    """Decimal addition."""

    name = "add-decimal"
    summary = "Add two decimal numbers."
    example = ("1987", "44")
    syntax = "type two decimal numbers, for example: 1987 44 or 1987+44"
    base = 10
    classes: int = 11


@dataclass(frozen=True)
class Multiply(Multiplication):
    """Binary multiplication."""

    name = "multiply"
    summary = "Multiply two binary numbers."
    example = ("1011", "110")
    syntax = "type two binary numbers, for example: 1011 110 or '1011*110'"
    base = 2
    classes: int = 4

    @property
    def splits(self) -> Mapping[str, Split]:
        return multiplication_splits(self.separator)


@dataclass(frozen=True)
class MultiplyBase4(Multiplication):
    """Multiplication in base 4."""

    name = "multiply-base4"
    summary = "Multiply two numbers in base 4."
    example = ("1023", "321")
    syntax = "type two numbers in base 4, for example: 1023 321 or '1023*321'"
    base = 4
    classes: int = 5


@dataclass(frozen=True)
class MultiplyDecimal(Multiplication):
    """Decimal multiplication; unlike in the other bases the product has no leading zeros."""

    name = "multiply-decimal"
    summary = "Multiply two decimal numbers."
    example = ("1987", "44")
    syntax = "type two decimal numbers, for example: 1987 44 or '1987*44'"
    base = 10
    classes: int = 11

    def answer(self, inputs_BN: Tensor) -> Tensor:
        product_BN = multiply(*operands(inputs_BN, self.separator), self.base)
        return keep(product_BN + 1, significant(product_BN, inputs_BN))

    def answer_digits(self, length: int) -> int:
        return 1


BITS = 4
END = 2  # added to the last bit of a digit, so that the ends of digits can be seen


def encode(digits: Sequence[int]) -> list[int]:
    """Decimal digits as symbols: four bits each, the lowest first, bit ``d`` as ``d + 1``, the last as ``d + 3``."""
    return [(digit >> bit) % 2 + 1 + END * (bit == BITS - 1) for digit in digits for bit in range(BITS)]


def decode(symbols: Sequence[int]) -> list[int]:
    """The digits of symbols that :func:`encode` wrote."""
    groups = [symbols[i : i + BITS] for i in range(0, len(symbols), BITS)]
    return [number([(symbol - 1) % 2 for symbol in group], 2) for group in groups]


@dataclass(frozen=True)
class MultiplyBCD(Task):
    """Multiply two decimal numbers of ``k = (length - 1) // 8`` digits, four symbols to a digit.

    The lowest digit comes first, and in it the lowest bit. The answer has ``2 * k`` digits, leading zeros included.
    People write and read decimal numbers, ``12 7`` and ``84``.
    """

    name = "multiply-bcd"
    summary = "Multiply two decimal numbers, four bits to a digit."
    example = ("12", "7")
    syntax = "type two decimal numbers, for example: 12 7 or '12*7'"
    symbols: int = 13
    classes: int = 5

    def draw(self, lengths_B: Tensor, width: int, *, generator: torch.Generator) -> Tensor:
        digits_B = (lengths_B - 1) // (2 * BITS)
        drawn_BK = uniform(0, 10, (lengths_B.shape[0], -(-width // BITS)), generator)
        symbols_BN = unpack(drawn_BK, 2, BITS)[:, :width] + 1
        column_N = columns(symbols_BN)
        symbols_BN = symbols_BN + END * (column_N % BITS == BITS - 1)
        at_B1 = BITS * digits_B[:, None]
        rows_BN = take(symbols_BN, column_N - (column_N > at_B1).long())
        return keep(torch.where(column_N == at_B1, TIMES, rows_BN), 2 * BITS * digits_B + 1)

    def answer(self, inputs_BN: Tensor) -> Tensor:
        a_BK, b_BK = (pack(bits_BN % 2, 2, BITS) for bits_BN in operands(inputs_BN, TIMES))
        product_BN = unpack(multiply(a_BK, b_BK, 10), 2, BITS)[:, : inputs_BN.shape[1]] + 1
        product_BN = product_BN + END * (columns(product_BN) % BITS == BITS - 1)
        return keep(product_BN, row_lengths(inputs_BN) - 1)

    def solve(self, symbols: list[int]) -> list[int]:
        if not symbols:
            return []
        at = symbols.index(TIMES)
        a, b = decode(symbols[:at]), decode(symbols[at + 1 :])
        digits = len(a) + len(b)
        return encode(digits_of(number(a, 10) * number(b, 10), 10, digits)) if digits else []

    def parse(self, words: Sequence[str]) -> list[int]:
        a, b = parse_two_numbers(words, 10, "*x", self.syntax)
        digits = max(len(a), len(b))
        a, b = a + [0] * (digits - len(a)), b + [0] * (digits - len(b))
        return [*encode(a), TIMES, *encode(b)]

    def render(self, output: list[int]) -> str:
        output = trim(output)
        known = {tuple(encode([digit])): str(digit) for digit in range(10)} | {(BLANK,) * BITS: SHOW_BLANK}
        groups = [tuple(output[i : i + BITS]) for i in range(0, len(output), BITS)]
        text = "".join(known.get(group, SHOW_UNKNOWN) for group in reversed(groups))
        return text.lstrip("0") or text[-1:]
