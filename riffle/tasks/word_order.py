"""Sorting the words of every row in dictionary order, all rows at once and in a logarithmic number of steps."""

# B = batch, N = width of the padded rows
from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from riffle.tasks.base import BLANK
from riffle.tasks.rows import columns, delay, keep, last_column_so_far, row_lengths, take


def dense_rank(keys_BN: Tensor) -> Tensor:
    """Number the different keys of every row 0, 1, ... in ascending order."""
    sorted_BN, order_BN = keys_BN.sort(dim=1)
    fresh_BN = sorted_BN != delay(sorted_BN, fill=-1)
    return torch.zeros_like(keys_BN).scatter(1, order_BN, fresh_BN.long().cumsum(dim=1) - 1)


def suffix_ranks(letters_BN: Tensor) -> Tensor:
    """Rank what is left of the word from every cell on, in dictionary order; 0 where ``letters_BN`` is 0 (no letter).

    Prefix doubling: when cells are ranked by their next ``reach`` letters, the pair of the ranks here and ``reach``
    cells further ranks them by twice as many. A word that ends earlier is followed by rank 0 and so comes first.
    """
    column_N = columns(letters_BN)
    inside_BN = letters_BN != 0
    gap_from_end_BN = last_column_so_far(~inside_BN.flip(1))
    end_BN = letters_BN.shape[1] - 1 - gap_from_end_BN.flip(1)  # the first cell at or after this one that is no letter
    ranks_BN = torch.where(inside_BN, dense_rank(letters_BN) + 1, 0)
    reach = 1
    while reach < letters_BN.shape[1]:
        further_BN = torch.where(column_N + reach < end_BN, take(ranks_BN, (column_N + reach).expand_as(ranks_BN)), 0)
        ranks_BN = dense_rank(ranks_BN * (letters_BN.shape[1] + 2) + further_BN) + 1
        ranks_BN = torch.where(inside_BN, ranks_BN, 0)
        reach *= 2
    return ranks_BN


def sort_words(rows_BN: Tensor, keys_BN: Tensor, divider: int, group_BN: Tensor | None = None) -> Tensor:
    """Put the words of every row in dictionary order of their letters' keys; words with equal keys keep their order.

    Args:
        rows_BN: Words with one ``divider`` between them.
        keys_BN: What a letter is compared by, at least 1; the keys of dividers and blanks are not used.
        divider: The symbol between words.
        group_BN: If given, words of a lower group (at their first letter) come first whatever their letters.
    """
    width = rows_BN.shape[1]
    lengths_B = row_lengths(rows_BN)
    rows_BN = F.pad(rows_BN, (0, 1))
    column_N = columns(rows_BN)
    rows_BN = torch.where(column_N == lengths_B[:, None], divider, rows_BN)  # now every word has a divider after it
    letter_BN = (rows_BN != divider) & (rows_BN != BLANK)
    ranks_BN = suffix_ranks(torch.where(letter_BN, F.pad(keys_BN, (0, 1)), 0))
    if group_BN is not None:
        ranks_BN = ranks_BN + F.pad(group_BN, (0, 1)) * (width + 3)
    begins_BN = delay(rows_BN, fill=divider) == divider
    place_BN = take(ranks_BN, last_column_so_far(begins_BN))
    after_all = torch.iinfo(torch.int64).max
    place_BN = torch.where(column_N <= lengths_B[:, None], place_BN, after_all)
    # a stable sort of the cells by the rank of their word moves every word as one piece, its divider with it
    order_BN = place_BN.sort(dim=1, stable=True).indices
    return keep(take(rows_BN, order_BN)[:, :width], lengths_B)
