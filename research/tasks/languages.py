"""Tasks of every class of the Chomsky hierarchy on strings: counting, finite automata, a stack, copies, order.

With those of :mod:`research.tasks.expressions` and :mod:`research.tasks.unequal` they are the fifteen tasks
of Delétang et al., *Neural Networks and the Chomsky Hierarchy* (ICLR 2023). Where a task of the paper has the
same rule, only the alphabet is another one.
"""

# B = batch, N = width of the padded rows, M = N + 1 levels of a stack
from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor

from riffle.tasks.rows import columns, crop, first_column, randint, randint_below, row_lengths, take
from riffle.tasks.sequences import Duplicate, Reverse, Sort
from riffle.tasks.task import BLANK, SymbolTask
from riffle.tasks.token_tasks import ClassTask, TokenTask

BITS = "type bits separated by spaces, for example: 0 1 1 0"


class BitTask(TokenTask, SymbolTask):
    """A task on a string of bits; bit ``d`` is symbol ``d + 1``."""

    alphabet = answers = "0 1"
    free = (range(1, 3),)
    example: ClassVar[tuple[str, ...]] = ("0", "1", "1", "0")
    syntax = BITS
    symbols: int = 3
    classes: int = 3


class EvenPairs(ClassTask, BitTask):
    """Say whether the number of unequal neighbours, 01 or 10, is even (0) or odd (1)."""

    name = "even-pairs"
    summary = "Say whether the number of unequal neighbours is even or odd."
    answers = "even odd"
    symbols: int = 3
    classes: int = 3

    def classify(self, inputs_BN: Tensor) -> Tensor:
        last_B1 = take(inputs_BN, row_lengths(inputs_BN)[:, None] - 1)
        return (inputs_BN[:, 0] != last_B1[:, 0]).long()

    def class_of(self, symbols: list[int]) -> int:
        return sum(a != b for a, b in pairwise(symbols)) % 2


class Parity(ClassTask, BitTask):
    """Say whether the number of ones is even (0) or odd (1)."""

    name = "parity"
    summary = "Say whether the number of ones is even or odd."
    answers = "even odd"
    symbols: int = 3
    classes: int = 3

    def classify(self, inputs_BN: Tensor) -> Tensor:
        return (inputs_BN == 2).sum(dim=1) % 2

    def class_of(self, symbols: list[int]) -> int:
        return symbols.count(2) % 2


CIRCLE = 5


class Cycle(ClassTask, SymbolTask):
    """Walk on a circle of five places, one step back, none or one forward for each symbol, and say where it ends."""

    name = "cycle"
    summary = "Say where steps on a circle of five places end."
    example = ("on", "on", "stay", "back", "on")
    syntax = "type steps back, stay or on, separated by spaces, for example: on on stay back on"
    alphabet = "back stay on"
    answers = "0 1 2 3 4"
    free = (range(1, 4),)
    symbols: int = 4
    classes: int = 1 + CIRCLE

    def classify(self, inputs_BN: Tensor) -> Tensor:
        return torch.where(inputs_BN == BLANK, 0, inputs_BN - 2).sum(dim=1) % CIRCLE

    def class_of(self, symbols: list[int]) -> int:
        place = 0
        for symbol in symbols:
            place = (place + symbol - 2) % CIRCLE
        return place


class ReverseBits(BitTask, Reverse):
    """Give the bits in reverse order."""

    name = "reverse-bits"
    summary = "Reverse bits."


class DuplicateBits(BitTask, Duplicate):
    """Write the bits twice in a row; an input of length ``l`` holds ``l // 2``, see :class:`Duplicate`."""

    name = "duplicate-bits"
    summary = "Write bits twice."
    example = ("0", "1", "1")

    def parse(self, words: Sequence[str]) -> list[int]:
        symbols = super().parse(words)
        return symbols + [BLANK] * len(symbols)


class BucketSort(TokenTask, Sort):
    """Put symbols 0 to 4 in ascending order."""

    name = "bucket-sort"
    summary = "Sort the symbols 0 to 4."
    example = ("4", "2", "0", "3", "2")
    syntax = "type symbols 0 to 4 separated by spaces, for example: 4 2 0 3 2"
    alphabet = answers = "0 1 2 3 4"
    free = (range(1, 6),)
    symbols: int = 6
    classes: int = 6


class OddsFirst(BitTask):
    """Give the symbols at the odd places 1, 3, 5, ..., counted from 0, then those at the even ones."""

    name = "odds-first"
    summary = "Give the bits at odd places, then those at even ones."

    def answer(self, inputs_BN: Tensor) -> Tensor:
        lengths_B = row_lengths(inputs_BN)
        column_N, odd_B1 = columns(inputs_BN), lengths_B[:, None] // 2
        source_BN = torch.where(column_N < odd_B1, 2 * column_N + 1, 2 * (column_N - odd_B1))
        return crop(take(inputs_BN, source_BN), lengths_B)

    def solve(self, symbols: list[int]) -> list[int]:
        return symbols[1::2] + symbols[::2]


MISSING = 3


class MissingDuplicate(ClassTask, BitTask):
    """Say which bit is missing in a string that is written twice.

    An input of length ``l`` holds a string of ``l // 2`` bits twice, with :data:`MISSING` in place of one of them.
    """

    name = "missing-duplicate"
    summary = "Say which bit is missing in a string that is written twice."
    example = ("0", "1", "1", "0", "0", "?", "1", "0")
    syntax = "type bits twice, with a ? in place of one of them, for example: 0 1 1 0 0 ? 1 0"
    alphabet = "0 1 ?"
    symbols: int = 4
    classes: int = 3

    def draw(self, lengths_B: Tensor, width: int, *, generator: torch.Generator) -> Tensor:
        size_B = lengths_B // 2 * 2
        rows_BN = crop(randint(1, MISSING, (len(lengths_B), width), generator), size_B)
        missing_B1 = randint_below(size_B, generator)[:, None]
        rows_BN = torch.where((columns(rows_BN) == missing_B1) & (rows_BN != BLANK), MISSING, rows_BN)
        return self.complete(rows_BN)

    def complete(self, inputs_BN: Tensor) -> Tensor:
        half_B1, column_N = row_lengths(inputs_BN)[:, None] // 2, columns(inputs_BN)
        copied_BN = (column_N >= half_B1) & (column_N < 2 * half_B1) & (inputs_BN != MISSING)
        first_BN = take(inputs_BN, column_N - half_B1)
        return torch.where(copied_BN & (first_BN != MISSING), first_BN, inputs_BN)

    def classify(self, inputs_BN: Tensor) -> Tensor:
        lengths_B1 = row_lengths(inputs_BN)[:, None]
        at_B1 = first_column(inputs_BN == MISSING)[:, None]
        return take(inputs_BN, (at_B1 + lengths_B1 // 2) % lengths_B1.clamp(min=1))[:, 0] - 1

    def class_of(self, symbols: list[int]) -> int:
        half, odd = divmod(len(symbols), 2)
        pairs = list(zip(symbols[:half], symbols[half:], strict=False))
        if odd or symbols.count(MISSING) != 1 or any(a != b for a, b in pairs if MISSING not in (a, b)):
            raise ValueError("this is no string that is written twice with one ?")
        return next(min(pair) for pair in pairs if MISSING in pair) - 1


POP, PUSH, END = 3, 4, 3
"""Input symbols of a stack's actions, :data:`PUSH` and the next one for a 0 and a 1; the output's end."""


class Stack(TokenTask):
    """Give a stack after some actions, its top first, then :data:`END`.

    An input of length ``l`` has 1 to ``l - 1`` bits, the bottom first, and actions that remove the top or push a bit;
    an empty stack stays as it is where there is nothing to remove.
    """

    name = "stack"
    summary = "Carry out actions on a stack of bits, and give what is left."
    example = ("0", "1", "1", "0", "push1", "pop", "pop")
    syntax = "type bits, then pop, push0 or push1, for example: 0 1 1 0 push1 pop pop"
    alphabet = "0 1 pop push0 push1"
    answers = "0 1 end"
    free = (range(1, 3), range(POP, 6))
    symbols: int = 6
    classes: int = 4

    def draw(self, lengths_B: Tensor, width: int, *, generator: torch.Generator) -> Tensor:
        bits_B1 = 1 + randint_below(lengths_B - 1, generator)[:, None]
        shape = (len(lengths_B), width)
        bits_BN, actions_BN = randint(1, POP, shape, generator), randint(POP, self.symbols, shape, generator)
        return crop(torch.where(columns(bits_BN) < bits_B1, bits_BN, actions_BN), lengths_B)

    def answer(self, inputs_BN: Tensor) -> Tensor:
        column_N, width = columns(inputs_BN), inputs_BN.shape[1]
        step_BN = torch.where(inputs_BN == BLANK, 0, torch.where(inputs_BN == POP, -1, 1))
        total_BN = step_BN.cumsum(dim=1)
        height_BN = total_BN - total_BN.cummin(dim=1).values.clamp(max=0)  # never below 0
        level_BN = torch.where(step_BN == 1, height_BN, 0)
        pushed_BM = torch.zeros_like(inputs_BN[:, :1]).repeat(1, width + 1)  # the last cell that filled a level
        pushed_BM = pushed_BM.scatter_reduce(1, level_BN, column_N.expand_as(level_BN), "amax")
        top_B1 = height_BN[:, -1:]
        symbol_BN = take(inputs_BN, take(pushed_BM, top_B1 - column_N))
        bit_BN = torch.where(symbol_BN < POP, symbol_BN, symbol_BN - PUSH + 1)
        filled_B = top_B1[:, 0] + (row_lengths(inputs_BN) > 0)
        return crop(torch.where(column_N < top_B1, bit_BN, END), filled_B)

    def solve(self, symbols: list[int]) -> list[int]:
        stack: list[int] = []
        for before, symbol in zip([1, *symbols], symbols, strict=False):
            if symbol < POP:
                if before >= POP:
                    raise ValueError("a bit stands after an action")
                stack.append(symbol)
            elif symbol >= PUSH:
                stack.append(symbol - PUSH + 1)
            elif stack:
                stack.pop()
        return [*reversed(stack), END] if symbols else []
