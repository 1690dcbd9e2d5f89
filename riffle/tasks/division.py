"""Long division of binary numbers with quotient and remainder."""

# B = batch, N = width of the padded rows, L = limbs
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from riffle.tasks.arithmetic import digits_of, number, operands, significant
from riffle.tasks.base import SHOW_BLANK, Task, parse_two_numbers, render_number, trim
from riffle.tasks.padded import carries, columns, keep, pack, row_lengths, settle, take, uniform, uniform_below, unpack

OVER = 12
REMAINDER = 3
LIMB = 30  # bits handled at once
NONZERO = 30  # the lowest bits of a divisor, among which a drawn one has at least one set


def divide(a_BN: Tensor, b_BN: Tensor) -> tuple[Tensor, Tensor]:
    """Quotient and remainder of binary numbers, each ``[B, N]``: schoolbook division, one step per bit.

    The remainder is kept in limbs of 30 bits, so that a step costs little even for thousands of bits. Where the divisor
    is zero the result means nothing.
    """
    base = 1 << LIMB
    divisor_BL = pack(b_BN, 2, LIMB)
    lowest_L = (columns(divisor_BL) == 0).long()
    minus_divisor_BL = base - 1 - divisor_BL + lowest_L
    rest_BL = torch.zeros_like(divisor_BL)
    quotient = []
    for bit in reversed(range(a_BN.shape[1])):
        rest_BL = settle(2 * rest_BL + lowest_L * a_BN[:, bit, None], base)
        fits_B1 = carries(rest_BL + minus_divisor_BL, base)[:, -1:]
        rest_BL = settle(rest_BL + torch.where(fits_B1, minus_divisor_BL, 0), base)
        quotient.append(fits_B1)
    return torch.cat(quotient[::-1], dim=1).long(), unpack(rest_BL, 2, LIMB)[:, : a_BN.shape[1]]


@dataclass(frozen=True)
class Divide(Task):
    """Divide one binary number by another.

    An input of length ``l`` has a divisor of 1 to ``(l - 1) // 2`` bits, not zero, and a dividend that fills the rest;
    bit ``d`` is symbol ``d + 1``, the lowest first, and inputs shorter than 3 are blank. The answer is the quotient
    without leading zeros, the symbol :data:`REMAINDER`, and the remainder, filled up with zeros to the length of the
    input. People write ``1001 11``, highest bit first, and read ``11 remainder 0``.
    """

    name = "divide"
    summary = "Divide two binary numbers, giving quotient and remainder."
    example = ("11001", "110")
    syntax = "type two binary numbers, for example: 11001 110 or 11001/110"
    symbols: int = 13
    classes: int = 4

    def draw(self, lengths_B: Tensor, width: int, *, generator: torch.Generator) -> Tensor:
        divisor_B = 1 + uniform_below((lengths_B - 1) // 2, generator)
        at_B1 = (lengths_B - 1 - divisor_B)[:, None]
        low_B = 1 + uniform_below((1 << divisor_B.clamp(max=NONZERO)) - 1, generator)  # 1 to 2^bits - 1
        rows_BN = uniform(1, 3, (lengths_B.shape[0], width), generator)
        place_BN = columns(rows_BN) - at_B1 - 1
        low_BN = 1 + (low_B[:, None] >> place_BN.clamp(0, NONZERO)) % 2
        rows_BN = torch.where((place_BN >= 0) & (place_BN < NONZERO), low_BN, rows_BN)
        rows_BN = torch.where(place_BN == -1, OVER, rows_BN)
        return keep(rows_BN, torch.where(lengths_B < 3, 0, lengths_B))

    def answer(self, inputs_BN: Tensor) -> Tensor:
        quotient_BN, rest_BN = divide(*operands(inputs_BN, OVER))
        at_B1 = significant(quotient_BN, inputs_BN)[:, None]
        place_BN = columns(inputs_BN) - at_B1
        output_BN = torch.where(place_BN < 0, quotient_BN, take(rest_BN, place_BN - 1)) + 1
        return keep(torch.where(place_BN == 0, REMAINDER, output_BN), row_lengths(inputs_BN))

    def solve(self, symbols: list[int]) -> list[int]:
        if not symbols:
            return []
        at = symbols.index(OVER)
        a, b = ([symbol - 1 for symbol in part] for part in (symbols[:at], symbols[at + 1 :]))
        quotient, rest = divmod(number(a, 2), number(b, 2))
        output = [digit + 1 for digit in digits_of(quotient, 2)] + [REMAINDER]
        return output + [digit + 1 for digit in digits_of(rest, 2, len(symbols) - len(output))]

    def parse(self, words: Sequence[str]) -> list[int]:
        a, b = parse_two_numbers(words, 2, "/", self.syntax)
        if not any(b):
            raise ValueError(f"cannot divide by {''.join(map(str, b))}; {self.syntax}")
        a += [0] * (len(b) - len(a))
        return [digit + 1 for digit in a] + [OVER] + [digit + 1 for digit in b]

    def render(self, output: list[int]) -> str:
        output = trim(output)
        if REMAINDER not in output:
            return render_number(output, 2)
        at = output.index(REMAINDER)
        quotient, rest = (render_number(part, 2) or SHOW_BLANK for part in (output[:at], output[at + 1 :]))
        return f"{quotient} remainder {rest}"
