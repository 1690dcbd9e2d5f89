"""Tasks on long numbers that no trained network comes with: products in base 4 and 10, and division."""

# B = batch, N = width of the padded rows, K = decimal digits, L = limbs of 30 bits
from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from riffle.tasks.arithmetic import Multiplication, TwoNumbers, significant_digits
from riffle.tasks.digits import carries, digits_of, multiply, number_of, operands, propagate_carries, replace_operands
from riffle.tasks.families import Split
from riffle.tasks.number_families import PRODUCTS, Operands, number_splits
from riffle.tasks.rows import columns, crop, first_column, randint, randint_below, row_lengths, take
from riffle.tasks.structure import structured_values
from riffle.tasks.task import BLANK, SHOW_BLANK, SHOW_UNKNOWN, Task, parse_two_numbers, render_number, trim

LIMB = 30
"""Bits that a division handles at once."""


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


def mark_ends(bits_BN: Tensor) -> Tensor:
    """Bits 0 and 1 of binary-coded digits, the last one of every digit as 2 and 3."""
    return bits_BN + END * (columns(bits_BN) % BITS == BITS - 1)


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
        symbols_BN = mark_ends(unpack_digits(drawn_BK, 2, BITS)[:, :width]) + 1
        column_N = columns(symbols_BN)
        at_B1 = BITS * digits_B[:, None]
        rows_BN = take(symbols_BN, column_N - (column_N > at_B1).long())
        return crop(torch.where(column_N == at_B1, self.separator, rows_BN), 2 * BITS * digits_B + 1)

    def structured_digits(self, digits_B1: Tensor, width: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        return super().structured_digits(digits_B1 // BITS, -(-width // BITS), generator)

    def replace_digits(self, inputs_BN: Tensor, a_BK: Tensor, b_BK: Tensor) -> Tensor:
        """Inputs with other decimal digits."""
        a_BN, b_BN = (mark_ends(unpack_digits(digits_BK, 2, BITS)) for digits_BK in (a_BK, b_BK))
        return replace_operands(inputs_BN, self.separator, a_BN, b_BN)

    def restructure(self, inputs_BN: Tensor, generator: torch.Generator) -> Tensor:
        at_B1 = first_column(inputs_BN == self.separator)[:, None]
        return self.replace_digits(inputs_BN, *self.structured_digits(at_B1, inputs_BN.shape[1], generator))

    def families(self) -> dict[str, Split]:
        def split(family: Operands, rows_BN: Tensor, generator: torch.Generator) -> Tensor:
            column_BN, at_B1 = columns(rows_BN).expand_as(rows_BN), first_column(rows_BN == self.separator)[:, None]
            return self.replace_digits(rows_BN, *family(self.base, column_BN, at_B1 // BITS, generator))

        return {name: partial(split, family) for name, family in PRODUCTS.items()}

    def answer(self, inputs_BN: Tensor) -> Tensor:
        a_BK, b_BK = (pack_digits(bits_BN % 2, 2, BITS) for bits_BN in operands(inputs_BN, self.separator))
        product_BN = mark_ends(unpack_digits(multiply(a_BK, b_BK, 10), 2, BITS)[:, : inputs_BN.shape[1]])
        return crop(product_BN + 1, row_lengths(inputs_BN) - 1)

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


def with_odd_divisor(family: Operands) -> Operands:
    """The same numbers, the second one odd."""

    def odd(base: int, column_BN: Tensor, digits_B1: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        a_BN, b_BN = family(base, column_BN, digits_B1, generator)
        return a_BN, torch.where(column_BN == 0, 1, b_BN)

    return odd


QUOTIENTS = {name: with_odd_divisor(family) for name, family in PRODUCTS.items() if name != "times-zero"}
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

    def structured_digits(self, digits_B1: Tensor, width: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        a_BN, b_BN = (structured_values(2, digits_B1, width, generator) for _ in range(2))
        return a_BN, b_BN

    def restructure(self, inputs_BN: Tensor, generator: torch.Generator) -> Tensor:
        new_BN = super().restructure(inputs_BN, generator)
        _, divisor_BN = operands(new_BN, self.separator)
        return torch.where(divisor_BN.any(dim=1, keepdim=True), new_BN, inputs_BN)

    def families(self) -> dict[str, Split]:
        return number_splits(QUOTIENTS, self.base, self.separator)

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
