"""Nested brackets: are they balanced, and how do open ones close?"""

# B = batch, N = width of the padded rows, M = N + 1 heights before and after every cell
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from riffle.tasks.base import BLANK, Task
from riffle.tasks.brackets import balanced, draw_balanced, heights_after, opens, random_heights, spell
from riffle.tasks.rows import coin, columns, keep, row_lengths, take, uniform, uniform_below
from riffle.tasks.text import render_chars, render_symbols

BRACKETS = "()[]{}<>"
UNBALANCED, BALANCED = 1, 2
SPOILINGS = 4  # how often spoiling is tried before a row is spoilt for certain; one try fails about once in ten


@dataclass(frozen=True)
class BracketTask(Task):
    """A task on rows of brackets of ``(symbols - 1) // 2`` kinds, typed as they are: ``([])``."""

    symbols: int = 5
    classes: int = 5

    @property
    def kinds(self) -> int:
        """How many kinds of brackets there are."""
        return (self.symbols - 1) // 2

    @property
    def alphabet(self) -> str:
        """The brackets in the order of their symbols."""
        return BRACKETS[: 2 * self.kinds]

    def parse(self, words: Sequence[str]) -> list[int]:
        text = "".join("".join(words).split())
        if not text:
            raise ValueError(f"there is no bracket in the input; {self.syntax}")
        for char in text:
            if char not in self.alphabet:
                raise ValueError(f"{char!r} in {text!r} is not one of the brackets {self.alphabet}; {self.syntax}")
        return [self.alphabet.index(char) + 1 for char in text]


@dataclass(frozen=True)
class Dyck(BracketTask):
    """Say whether brackets are balanced: :data:`BALANCED` or :data:`UNBALANCED` in the first cell.

    An input of length ``l`` has ``l`` brackets if ``l`` is even and ``l - 1`` if it is odd, balanced in half of the
    cases; in the other half some brackets of a balanced row are replaced. An input of length 1 is a single bracket.
    People write ``([])`` and read ``balanced`` or ``not balanced``.
    """

    name = "dyck"
    summary = "Say whether nested brackets are balanced."
    example = ("([()])[]",)
    syntax = "type brackets, for example: '([()])[]'"
    classes: int = 3

    def draw(self, lengths_B: Tensor, width: int, *, generator: torch.Generator) -> Tensor:
        batch = lengths_B.shape[0]
        rows_BN = draw_balanced(lengths_B, width, self.kinds, generator)
        spoil_B = coin(0.5, (batch,), generator)
        for _ in range(SPOILINGS):
            spoilt_BN = self.spoil(rows_BN, lengths_B, generator)
            rows_BN = torch.where((spoil_B & balanced(rows_BN))[:, None], spoilt_BN, rows_BN)
        first_N = columns(rows_BN) == 0
        rows_BN = torch.where((spoil_B & balanced(rows_BN))[:, None] & first_N, 2, rows_BN)  # closes what is not open
        single_BN = torch.where(first_N, uniform(1, self.symbols, (batch, 1), generator), BLANK)
        return torch.where(lengths_B[:, None] == 1, single_BN, rows_BN)

    def spoil(self, rows_BN: Tensor, lengths_B: Tensor, generator: torch.Generator) -> Tensor:
        """Replace 1 to 4 brackets by random ones; the row may stay balanced by chance."""
        count_B1 = uniform(1, 5, (rows_BN.shape[0], 1), generator)
        for i in range(4):
            column_B1 = uniform_below(lengths_B // 2 * 2, generator)[:, None]
            other_B1 = uniform(1, self.symbols, (rows_BN.shape[0], 1), generator)
            rows_BN = torch.where((i < count_B1) & (columns(rows_BN) == column_B1), other_B1, rows_BN)
        return rows_BN

    def answer(self, inputs_BN: Tensor) -> Tensor:
        verdict_B1 = torch.where(balanced(inputs_BN), BALANCED, UNBALANCED)[:, None]
        return keep(verdict_B1.expand_as(inputs_BN), row_lengths(inputs_BN).clamp(max=1))

    def solve(self, symbols: list[int]) -> list[int]:
        if not symbols:
            return []
        open_brackets: list[int] = []
        for symbol in symbols:
            if symbol % 2:
                open_brackets.append(symbol)
            elif not open_brackets or open_brackets.pop() != symbol - 1:
                return [UNBALANCED]
        return [UNBALANCED if open_brackets else BALANCED]

    def render(self, output: list[int]) -> str:
        shown = render_symbols(output)
        return {str(BALANCED): "balanced", str(UNBALANCED): "not balanced"}.get(shown, shown)


@dataclass(frozen=True)
class DyckContinue(BracketTask):
    """Close the brackets that are still open, the innermost first.

    An input of length ``l`` has ``l`` brackets, the last of which opens. People write ``([()[`` and read ``]])``.
    """

    name = "dyck-continue"
    summary = "Close the brackets that are still open."
    example = ("([()[",)
    syntax = "type brackets of which some are still open, for example: '([()['"

    def draw(self, lengths_B: Tensor, width: int, *, generator: torch.Generator) -> Tensor:
        heights_BM = random_heights(lengths_B.shape[0], width, self.kinds, generator)
        last_B1 = lengths_B[:, None] - 1
        opened_B1 = take(heights_BM, last_B1) + 1
        heights_BM = torch.where(columns(heights_BM) > last_B1, opened_B1, heights_BM)
        return spell(heights_BM, lengths_B, self.kinds, generator)

    def answer(self, inputs_BN: Tensor) -> Tensor:
        width = inputs_BN.shape[1]
        after_BN = heights_after(inputs_BN)
        level_BN = torch.where(opens(inputs_BN), after_BN, 0).clamp(0, width)
        latest_BM = torch.zeros_like(inputs_BN[:, :1]).repeat(1, width + 1)  # the last bracket that opens a level
        latest_BM = latest_BM.scatter_reduce(1, level_BN, columns(inputs_BN).expand_as(level_BN), "amax")
        open_B1 = after_BN[:, -1:]
        opener_BN = take(latest_BM, open_B1 - columns(inputs_BN))
        return keep(take(inputs_BN, opener_BN) + 1, open_B1[:, 0])

    def solve(self, symbols: list[int]) -> list[int]:
        open_brackets: list[int] = []
        for symbol in symbols:
            if symbol % 2:
                open_brackets.append(symbol)
            else:
                open_brackets.pop()
        return [symbol + 1 for symbol in reversed(open_brackets)]

    def parse(self, words: Sequence[str]) -> list[int]:
        symbols = super().parse(words)
        open_brackets: list[int] = []
        for symbol in symbols:
            if symbol % 2:
                open_brackets.append(symbol)
            elif not open_brackets or open_brackets.pop() != symbol - 1:
                text = render_chars(symbols, self.alphabet)
                raise ValueError(f"{self.alphabet[symbol - 1]!r} in {text!r} closes nothing; {self.syntax}")
        return symbols

    def render(self, output: list[int]) -> str:
        return render_chars(output, self.alphabet)
