"""Rows of brackets, a whole batch at once: random nesting, who closes whom, and whether all of it fits.

Bracket kind ``k`` (from 0) opens with symbol ``2 * k + 1`` and closes with ``2 * k + 2``. The height of a cell is how
many brackets are open before it; a pair of brackets encloses the level of heights it opens up.
"""

# B = batch, N = width of the padded rows, M = N + 1 heights before and after every cell
from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from riffle.tasks.base import BLANK
from riffle.tasks.rows import coin, columns, delay, keep, take, uniform


def random_heights(batch: int, width: int, kinds: int, generator: torch.Generator) -> Tensor:
    """Heights 0, 1, ... of endless random nesting, int64 ``[B, M]``.

    At every cell each kind of bracket opens, or the innermost open bracket closes, all with the same probability. So
    heights are a random walk that must go up from 0. The walk over some cells maps height ``h`` to
    ``max(h + total, h is odd ? odd : even)``: it moves by ``total`` unless it meets 0, where it joins the walk that
    came from the lowest height of the same parity, 0 or 1. Such maps compose to one another, and that gives all
    heights in a logarithmic number of steps.
    """
    total_BN = torch.where(coin(kinds / (kinds + 1), (batch, width), generator), 1, -1)
    even_BN, odd_BN = torch.ones_like(total_BN), 1 + total_BN
    reach = 1
    while reach < width:
        earlier_total_BN = delay(total_BN, reach)
        from_0_BN, from_1_BN = delay(even_BN, reach, fill=0), delay(odd_BN, reach, fill=1)
        even_BN, odd_BN = (
            torch.maximum(height_BN + total_BN, torch.where(height_BN % 2 == 1, odd_BN, even_BN))
            for height_BN in (from_0_BN, from_1_BN)
        )
        total_BN = earlier_total_BN + total_BN
        reach *= 2
    return F.pad(even_BN, (1, 0))


def previous_at_level(levels_BN: Tensor) -> Tensor:
    """The column of the bracket before this one on the same level, -1 if there is none, int64 ``[B, N]``."""
    sorted_BN, order_BN = levels_BN.sort(dim=1, stable=True)
    same_BN = (sorted_BN == delay(sorted_BN)) & (columns(levels_BN) > 0)
    return torch.zeros_like(order_BN).scatter(1, order_BN, torch.where(same_BN, delay(order_BN), -1))


def spell(heights_BM: Tensor, lengths_B: Tensor, kinds: int, generator: torch.Generator) -> Tensor:
    """Brackets with the given heights; the kind of every pair is random."""
    before_BN, after_BN = heights_BM[:, :-1], heights_BM[:, 1:]
    closes_BN = after_BN < before_BN
    kind_BN = uniform(0, kinds, (before_BN.shape[0], before_BN.shape[1]), generator)
    opener_BN = previous_at_level(torch.maximum(before_BN, after_BN))
    kind_BN = torch.where(closes_BN, take(kind_BN, opener_BN), kind_BN)
    return keep(2 * kind_BN + 1 + closes_BN, lengths_B)


def draw_balanced(lengths_B: Tensor, width: int, kinds: int, generator: torch.Generator) -> Tensor:
    """Balanced brackets, an even number of them: random nesting until what is open just fits, which then closes."""
    heights_BM = random_heights(lengths_B.shape[0], width, kinds, generator)
    even_B = lengths_B // 2 * 2
    return spell(torch.minimum(heights_BM, even_B[:, None] - columns(heights_BM)), even_B, kinds, generator)


def opens(rows_BN: Tensor) -> Tensor:
    """Where a bracket opens, bool ``[B, N]``."""
    return rows_BN % 2 == 1


def heights_after(rows_BN: Tensor) -> Tensor:
    """How many more brackets opened than closed, up to and including every cell, int64 ``[B, N]``."""
    return torch.where(rows_BN == BLANK, 0, torch.where(opens(rows_BN), 1, -1)).cumsum(dim=1)


def balanced(rows_BN: Tensor) -> Tensor:
    """Whether every bracket of the row closes one of its own kind and none is left open, bool ``[B]``."""
    after_BN = heights_after(rows_BN)
    closes_BN = (rows_BN != BLANK) & ~opens(rows_BN)
    # where heights stay at 0 or more and end at 0, the brackets of one level open and close in turn
    opener_BN = previous_at_level(after_BN + closes_BN)
    fits_BN = ~closes_BN | ((opener_BN >= 0) & (take(rows_BN, opener_BN) == rows_BN - 1))
    return (after_BN >= 0).all(dim=1) & (after_BN[:, -1] == 0) & fits_BN.all(dim=1)
