"""Tasks in which the answer at a cell depends on the cells up to it, as causal models have them."""

# B = batch, N = width of the padded rows, V = symbols
from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from riffle.tasks.rows import columns, crop, rand, randint, row_lengths, take
from riffle.tasks.sequences import PairTask
from riffle.tasks.task import BLANK, SymbolTask, trim


def last_before(symbols_BN: Tensor, allowed_BN: Tensor, count: int) -> Tensor:
    """For every cell the last allowed column before it with the same symbol, -1 where there is none, ``[B, N]``."""
    own_BNV = F.one_hot(symbols_BN, count).bool() & allowed_BN[..., None]
    last_BNV = torch.where(own_BNV, columns(symbols_BN)[:, None], -1).cummax(dim=1).values
    before_BNV = F.pad(last_BNV, (0, 0, 1, 0), value=-1)[:, :-1]
    return before_BNV.gather(2, symbols_BN[..., None])[..., 0]


class RunningSum(SymbolTask):
    """Give at every cell the sum of the digits 0..4 up to it, modulo 5; digit ``d`` is the symbol ``d + 1``."""

    name = "running-sum"
    summary = "Add up digits modulo 5, with the sum so far at every digit."
    example = ("3", "5", "1", "2")
    syntax = "type digits plus 1 as whole numbers 1..5 separated by spaces, for example: 3 5 1 2"
    symbols: int = 6
    classes: int = 6

    def answer(self, inputs_BN: Tensor) -> Tensor:
        return crop((inputs_BN - 1).clamp(min=0).cumsum(dim=1) % 5 + 1, row_lengths(inputs_BN))

    def solve(self, symbols: list[int]) -> list[int]:
        return [sum(symbol - 1 for symbol in symbols[: i + 1]) % 5 + 1 for i in range(len(symbols))]


class Induction(SymbolTask):
    """Give at every cell what came after the last earlier cell with the same symbol, a blank where there is none."""

    name = "induction"
    summary = "Predict that what followed a symbol the last time follows it again."
    example = ("7", "3", "9", "7", "3")
    symbols: int = 17
    classes: int = 17

    def answer(self, inputs_BN: Tensor) -> Tensor:
        last_BN = last_before(inputs_BN, inputs_BN != BLANK, self.symbols)
        return torch.where((last_BN >= 0) & (inputs_BN != BLANK), take(inputs_BN, last_BN + 1), BLANK)

    def solve(self, symbols: list[int]) -> list[int]:
        after: dict[int, int] = {}
        answers = []
        for i, symbol in enumerate(symbols):
            if i:
                after[symbols[i - 1]] = symbol
            answers.append(after.get(symbol, BLANK))
        return trim(answers)


class Recall(PairTask):
    """Give at every key of key, value pairs the value that it had last; a blank at values and at new keys.

    This is multi-query associative recall (Arora et al., 2024) in which every key of a pair is also asked for. A row
    has a quarter as many keys as pairs, so that most come again, after as long as they can in long rows.
    """

    name = "recall"
    summary = "Recall at every key of key, value pairs the value that came with it last."
    example = ("3:9", "5:2", "3:4", "5:1")
    symbols: int = 65
    classes: int = 65

    def draw(self, lengths_B: Tensor, width: int, *, generator: torch.Generator) -> Tensor:
        shape, filled_B = (len(lengths_B), (width + 1) // 2), self.filled(lengths_B)
        keys_B1 = (filled_B // 8).clamp(1, self.symbols - 1)[:, None]
        first_B1 = randint(0, self.symbols - 1, (len(lengths_B), 1), generator)
        keys_BP = (first_B1 + (rand(shape, generator) * keys_B1).long()) % (self.symbols - 1) + 1
        values_BP = randint(1, self.symbols, shape, generator)
        return crop(torch.stack([keys_BP, values_BP], dim=2).flatten(1)[:, :width], filled_B)

    def answer(self, inputs_BN: Tensor) -> Tensor:
        key_BN = (columns(inputs_BN) % 2 == 0) & (inputs_BN != BLANK)
        last_BN = last_before(inputs_BN, key_BN, self.symbols)
        return torch.where(key_BN & (last_BN >= 0), take(inputs_BN, last_BN + 1), BLANK)

    def solve(self, symbols: list[int]) -> list[int]:
        memory: dict[int, int] = {}
        answers = []
        for key, value in zip(symbols[::2], symbols[1::2], strict=True):
            answers += [memory.get(key, BLANK), BLANK]
            memory[key] = value
        return trim(answers)
