"""Tasks on rows of plain symbols, or of pairs of them: what they share in drawing, typing and showing."""

# B = batch, N = width of the padded rows
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from riffle.tasks.base import SHOW_BLANK, Task, parse_pair, parse_symbols, render_symbols, tokens, trim
from riffle.tasks.padded import keep, uniform


@dataclass(frozen=True)
class SymbolTask(Task):
    """A task whose input is a row of symbols drawn uniformly from 1..symbols-1.

    People write the symbols as numbers, ``7 3 9 1``; so are outputs shown, a blank inside them as ``_``.
    """

    syntax = "type symbols as whole numbers separated by spaces, for example: 7 3 9 1"
    symbols: int = 12
    classes: int = 12

    def filled(self, lengths_B: Tensor) -> Tensor:
        """How many cells an input of each length fills."""
        return lengths_B

    def draw(self, lengths_B: Tensor, width: int, *, generator: torch.Generator) -> Tensor:
        rows_BN = uniform(1, self.symbols, (lengths_B.shape[0], width), generator)
        return keep(rows_BN, self.filled(lengths_B))

    def parse(self, words: Sequence[str]) -> list[int]:
        return parse_symbols(words, self.symbols - 1, self.syntax)

    def render(self, output: list[int]) -> str:
        return render_symbols(output)


@dataclass(frozen=True)
class PairTask(SymbolTask):
    """A task on key, value pairs: an input of length ``l`` holds ``l // 2`` of them, key and value side by side.

    People write ``3:9 1:4``; so are outputs shown.
    """

    syntax = "type pairs key:value separated by spaces, for example: 3:9 1:4 2:2"

    def filled(self, lengths_B: Tensor) -> Tensor:
        return lengths_B // 2 * 2

    def parse(self, words: Sequence[str]) -> list[int]:
        pairs = [parse_pair(token, self.symbols - 1, self.syntax) for token in tokens(words)]
        if not pairs:
            raise ValueError(f"there is no pair in the input; {self.syntax}")
        return [symbol for pair in pairs for symbol in pair]

    def render(self, output: list[int]) -> str:
        shown = [str(symbol) if symbol else SHOW_BLANK for symbol in trim(output)]
        return " ".join(":".join(shown[i : i + 2]) for i in range(0, len(shown), 2))
