"""Rotating a binary number by an amount given in unary."""

# B = batch, N = width of the padded rows
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from riffle.tasks.base import Task
from riffle.tasks.rows import columns, keep, row_lengths, take, uniform, uniform_below
from riffle.tasks.text import parse_number, render_chars, tokens

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
