"""Sorting symbols, and pairs by their key."""

# B = batch, N = width of the padded rows, P = N // 2 pairs
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from riffle.tasks.base import BLANK
from riffle.tasks.padded import keep, row_lengths
from riffle.tasks.symbols import PairTask, SymbolTask
from riffle.tasks.worst_cases import Split, symbol_splits


@dataclass(frozen=True)
class Sort(SymbolTask):
    """Put the symbols in ascending order."""

    name = "sort"
    summary = "Sort the symbols in ascending order."
    example = ("7", "3", "9", "1")

    def answer(self, inputs_BN: Tensor) -> Tensor:
        blank_last_BN = torch.where(inputs_BN == BLANK, self.symbols, inputs_BN)
        return keep(blank_last_BN.sort(dim=1).values, row_lengths(inputs_BN))

    def solve(self, symbols: list[int]) -> list[int]:
        return sorted(symbols)

    @property
    def splits(self) -> Mapping[str, Split]:
        return symbol_splits(self.symbols)


@dataclass(frozen=True)
class KeyValueSort(PairTask):
    """Put pairs in ascending order of their keys; pairs with equal keys stay in the order they came in."""

    name = "kv-sort"
    summary = "Sort key, value pairs by their key."
    example = ("3:9", "1:4", "2:2")

    def answer(self, inputs_BN: Tensor) -> Tensor:
        width = inputs_BN.shape[1]
        pairs_BP2 = inputs_BN[:, : width // 2 * 2].unflatten(1, (width // 2, 2))
        keys_BP = torch.where(pairs_BP2[:, :, 0] == BLANK, self.symbols, pairs_BP2[:, :, 0])
        order_BP = keys_BP.sort(dim=1, stable=True).indices
        sorted_BP2 = pairs_BP2.gather(1, order_BP[:, :, None].expand_as(pairs_BP2))
        return F.pad(sorted_BP2.flatten(1), (0, width % 2))

    def solve(self, symbols: list[int]) -> list[int]:
        pairs = list(zip(symbols[::2], symbols[1::2], strict=True))
        return [symbol for pair in sorted(pairs, key=lambda pair: pair[0]) for symbol in pair]
