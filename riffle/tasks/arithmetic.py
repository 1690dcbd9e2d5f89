"""Long numbers: sums and products in base 2, 4 or 10, products of binary-coded decimals, binary division.

The lowest digit comes first in a row of symbols; people type and read numbers as usual, the highest digit first.
"""

# B = batch, N = width of the padded rows, K = decimal digits
from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from riffle.tasks.digits import (
    digits_of,
    divide,
    multiply,
    number_of,
    operands,
    pack_digits,
    propagate_carries,
    unpack_digits,
)
from riffle.tasks.rows import columns, crop, first_column, randint, randint_below, row_lengths, take
from riffle.tasks.structure import chosen, structured_numbers, structured_values, with_carries
from riffle.tasks.task import BLANK, SHOW_BLANK, SHOW_UNKNOWN, Task, parse_two_numbers, render_number, trim
from riffle.tasks.worst_cases import ADDITION_CASES, MULTIPLICATION_CASES, binary_splits


def significant_digits(digits_BN: Tensor, inputs_BN: Tensor) -> Tensor:
    """How many digits remain without leading zeros, at least one, but none where the input is blank, int64 ``[B]``."""
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
        """The digits of two numbers of every structure, for :meth:`restructure`."""
        return structured_numbers(self.base, digits_B1, width, generator)

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
    """Two numbers of ``k = (length - 1) // 2`` digits each, and one number that answers them."""

    leading_zeros: ClassVar[bool] = False
    """Whether the answer is padded with zeros to the length of the input."""

    def draw(self, lengths_B: Tensor, width: int, *, generator: torch.Generator) -> Tensor:
        digits_B = (lengths_B - 1) // 2
        rows_BN = randint(1, self.base + 1, (lengths_B.shape[0], width), generator)
        rows_BN = torch.where(columns(rows_BN) == digits_B[:, None], self.separator, rows_BN)
        return crop(rows_BN, 2 * digits_B + 1)

    def restructure(self, inputs_BN: Tensor, generator: torch.Generator) -> Tensor:
        column_N, digits_B1 = columns(inputs_BN), first_column(inputs_BN == self.separator)[:, None]
        a_BN, b_BN = self.structured_digits(digits_B1, inputs_BN.shape[1], generator)
        digits_BN = torch.where(column_N < digits_B1, a_BN, take(b_BN, column_N - digits_B1 - 1))
        is_digit_BN = (inputs_BN != BLANK) & (column_N != digits_B1)
        return torch.where(is_digit_BN, digits_BN + 1, inputs_BN)

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
    combine = staticmethod(operator.add)

    def structured_digits(self, digits_B1: Tensor, width: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        numbers = super().structured_digits(digits_B1, width, generator)
        changed = with_carries(*numbers, self.base, generator)
        apart_B1 = chosen(0.25, digits_B1.shape[0], generator)
        a_BN, b_BN = (torch.where(apart_B1, *pair) for pair in zip(numbers, changed, strict=True))
        return a_BN, b_BN

    def combine_digits(self, a_BN: Tensor, b_BN: Tensor) -> Tensor:
        return propagate_carries(a_BN + b_BN, self.base)

    def fill(self, symbols: list[int], length: int) -> list[int]:
        return self.join(*self.numbers(trim(symbols)), digits=(length - 1) // 2) if any(symbols) else symbols

    def unfill(self, output: list[int], symbols: list[int], filled: list[int]) -> list[int]:
        """The sum without leading zeros, of which the network was asked to leave out more than it ever saw."""
        digits = len(output)
        while digits > 1 and output[digits - 1] in (BLANK, *self.encode([0])):
            digits -= 1
        return output[:digits]


class Multiplication(Arithmetic):
    """The product of two numbers.

    It is not filled up: the networks with trained weights have products of every trained length right as they are, and
    1 to 2% fewer with leading zeros.
    """

    separator = 12
    signs = "*x"
    leading_zeros = True
    combine = staticmethod(operator.mul)

    def combine_digits(self, a_BN: Tensor, b_BN: Tensor) -> Tensor:
        return multiply(a_BN, b_BN, self.base)


class Add(Addition):
    """Binary addition."""

    name = "add"
    summary = "Add two binary numbers."
    example = ("1011", "110")
    syntax = "type two binary numbers, for example: 1011 110 or 1011+110"
    base = 2
    splits = binary_splits(ADDITION_CASES, Addition.separator)
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
    example = ("1011", "110")
    syntax = "type two binary numbers, for example: 1011 110 or '1011*110'"
    base = 2
    splits = binary_splits(MULTIPLICATION_CASES, Multiplication.separator)
    classes: int = 4


class MultiplyBase4(Multiplication):
    """Multiplication in base 4."""

    name = "multiply-base4"
    summary = "Multiply two numbers in base 4."
    example = ("1023", "321")
    syntax = "type two numbers in base 4, for example: 1023 321 or '1023*321'"
    base = 4
    classes: int = 5


class MultiplyDecimal(Multiplication):
    """Decimal multiplication; unlike in the other bases the product has no leading zeros."""

    name = "multiply-decimal"
    summary = "Multiply two decimal numbers."
    example = ("1987", "44")
    syntax = "type two decimal numbers, for example: 1987 44 or '1987*44'"
    base = 10
    leading_zeros = False
    classes: int = 11


BITS = 4
END = 2
"""Added to the last bit of a binary-coded digit, so that the network can see where digits end."""


class MultiplyBCD(TwoNumbers):
    """Multiply two decimal numbers of ``k = (length - 1) // 8`` digits, each digit as four bits.

    The lowest digit comes first, and in it the lowest bit: bit ``d`` is symbol ``d + 1``, the last of a digit
    ``d + 3``. The answer has ``2 * k`` digits, leading zeros included. People type and read decimal numbers, ``12 7``
    and ``84``.
    """

    name = "multiply-bcd"
    summary = "Multiply two decimal numbers, four bits to a digit."
    example = ("12", "7")
    syntax = "type two decimal numbers, for example: 12 7 or '12*7'"
    base = 10
    separator = 12
    signs = "*x"
    classes: int = 5
    label = Task.label

    def encode(self, digits: Sequence[int]) -> list[int]:
        return [(digit >> bit) % 2 + 1 + END * (bit == BITS - 1) for digit in digits for bit in range(BITS)]

    def decode(self, symbols: Sequence[int]) -> list[int]:
        bits = [(symbol - 1) % 2 for symbol in symbols]
        return [number_of(bits[i : i + BITS], 2) for i in range(0, len(bits), BITS)]

    def draw(self, lengths_B: Tensor, width: int, *, generator: torch.Generator) -> Tensor:
        digits_B = (lengths_B - 1) // (2 * BITS)
        drawn_BK = randint(0, 10, (lengths_B.shape[0], -(-width // BITS)), generator)
        symbols_BN = unpack_digits(drawn_BK, 2, BITS)[:, :width] + 1
        column_N = columns(symbols_BN)
        symbols_BN = symbols_BN + END * (column_N % BITS == BITS - 1)
        at_B1 = BITS * digits_B[:, None]
        rows_BN = take(symbols_BN, column_N - (column_N > at_B1).long())
        return crop(torch.where(column_N == at_B1, self.separator, rows_BN), 2 * BITS * digits_B + 1)

    def restructure(self, inputs_BN: Tensor, generator: torch.Generator) -> Tensor:
        column_N, at_B1 = columns(inputs_BN), first_column(inputs_BN == self.separator)[:, None]
        width = -(-inputs_BN.shape[1] // BITS)
        a_BN, b_BN = (
            unpack_digits(digits_BK, 2, BITS) for digits_BK in self.structured_digits(at_B1 // BITS, width, generator)
        )
        bits_BN = torch.where(
            column_N < at_B1, take(a_BN, column_N.expand_as(inputs_BN)), take(b_BN, column_N - at_B1 - 1)
        )
        is_bit_BN = (inputs_BN != BLANK) & (column_N != at_B1)
        return torch.where(is_bit_BN, inputs_BN - (inputs_BN - 1) % 2 + bits_BN, inputs_BN)

    def answer(self, inputs_BN: Tensor) -> Tensor:
        a_BK, b_BK = (pack_digits(bits_BN % 2, 2, BITS) for bits_BN in operands(inputs_BN, self.separator))
        product_BN = unpack_digits(multiply(a_BK, b_BK, 10), 2, BITS)[:, : inputs_BN.shape[1]] + 1
        product_BN = product_BN + END * (columns(product_BN) % BITS == BITS - 1)
        return crop(product_BN, row_lengths(inputs_BN) - 1)

    def solve(self, symbols: list[int]) -> list[int]:
        a, b = self.numbers(symbols)
        digits = len(a) + len(b)
        return self.encode(digits_of(number_of(a, 10) * number_of(b, 10), 10, digits)) if digits else []

    def render(self, output: list[int]) -> str:
        output = trim(output)
        known = {tuple(self.encode([digit])): str(digit) for digit in range(10)} | {(BLANK,) * BITS: SHOW_BLANK}
        groups = [tuple(output[i : i + BITS]) for i in range(0, len(output), BITS)]
        text = "".join(known.get(group, SHOW_UNKNOWN) for group in reversed(groups))
        return text.lstrip("0") or text[-1:]


REMAINDER = 3
NONZERO = 30
"""The lowest bits of a divisor, among which a drawn one has at least one set."""


class Divide(TwoNumbers):
    """Divide one binary number by another.

    An input of length ``l`` has a divisor of 1 to ``(l - 1) // 2`` bits, not zero, and a dividend that takes the other
    cells; inputs shorter than 3 are blank. The answer is the quotient without leading zeros, the symbol
    :data:`REMAINDER`, and the remainder, padded with zeros to the length of the input. People type ``1001 11``, and
    read ``11 remainder 0``.
    """

    name = "divide"
    summary = "Divide two binary numbers, giving quotient and remainder."
    example = ("11001", "110")
    syntax = "type two binary numbers, for example: 11001 110 or 11001/110"
    base = 2
    separator = 12
    signs = "/"
    right_aligned = False
    classes: int = 4

    def draw(self, lengths_B: Tensor, width: int, *, generator: torch.Generator) -> Tensor:
        divisor_B = 1 + randint_below((lengths_B - 1) // 2, generator)
        at_B1 = (lengths_B - 1 - divisor_B)[:, None]
        low_B = 1 + randint_below((1 << divisor_B.clamp(max=NONZERO)) - 1, generator)  # 1 to 2^bits - 1
        rows_BN = randint(1, 3, (lengths_B.shape[0], width), generator)
        bit_BN = columns(rows_BN) - at_B1 - 1
        low_BN = 1 + (low_B[:, None] >> bit_BN.clamp(0, NONZERO)) % 2
        rows_BN = torch.where((bit_BN >= 0) & (bit_BN < NONZERO), low_BN, rows_BN)
        rows_BN = torch.where(bit_BN == -1, self.separator, rows_BN)
        return crop(rows_BN, torch.where(lengths_B < 3, 0, lengths_B))

    def restructure(self, inputs_BN: Tensor, generator: torch.Generator) -> Tensor:
        column_N, at_B1 = columns(inputs_BN), first_column(inputs_BN == self.separator)[:, None]
        bits_BN, divisor_BN = (structured_values(2, at_B1, inputs_BN.shape[1], generator) for _ in range(2))
        bits_BN = torch.where(column_N < at_B1, bits_BN, take(divisor_BN, column_N - at_B1 - 1))
        is_bit_BN = (inputs_BN != BLANK) & (column_N != at_B1)
        nonzero_B1 = (is_bit_BN & (column_N > at_B1) & (bits_BN > 0)).any(dim=1, keepdim=True)
        return torch.where(is_bit_BN & nonzero_B1, bits_BN + 1, inputs_BN)

    def answer(self, inputs_BN: Tensor) -> Tensor:
        quotient_BN, rest_BN = divide(*operands(inputs_BN, self.separator))
        after_BN = columns(inputs_BN) - significant_digits(quotient_BN, inputs_BN)[:, None]
        output_BN = torch.where(after_BN < 0, quotient_BN, take(rest_BN, after_BN - 1)) + 1
        return crop(torch.where(after_BN == 0, REMAINDER, output_BN), row_lengths(inputs_BN))

    def solve(self, symbols: list[int]) -> list[int]:
        if not symbols:
            return []
        a, b = (number_of(digits, 2) for digits in self.numbers(symbols))
        quotient, rest = divmod(a, b)
        output = [*self.encode(digits_of(quotient, 2)), REMAINDER]
        return output + self.encode(digits_of(rest, 2, len(symbols) - len(output)))

    def parse(self, words: Sequence[str]) -> list[int]:
        a, b = parse_two_numbers(words, 2, self.signs, self.syntax)
        if not any(b):
            raise ValueError(f"cannot divide by {''.join(map(str, b))}; {self.syntax}")
        return [*self.encode(a + [0] * (len(b) - len(a))), self.separator, *self.encode(b)]

    def render(self, output: list[int]) -> str:
        output = trim(output)
        if REMAINDER not in output:
            return super().render(output)
        at = output.index(REMAINDER)
        quotient, rest = (render_number(part, 2) or SHOW_BLANK for part in (output[:at], output[at + 1 :]))
        return f"{quotient} remainder {rest}"
