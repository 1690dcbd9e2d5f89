"""Multiplication of decimal numbers whose digits are written as four bits each (binary-coded decimal)."""

# B = batch, N = width of the padded rows, K = decimal digits
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from riffle.tasks.arithmetic import TIMES, digits_of, number, operands
from riffle.tasks.base import BLANK, Task
from riffle.tasks.digits import multiply, pack, unpack
from riffle.tasks.rows import columns, keep, row_lengths, take, uniform
from riffle.tasks.text import SHOW_BLANK, SHOW_UNKNOWN, parse_two_numbers, trim

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
