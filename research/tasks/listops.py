"""ListOps: the value of nested lists of digits, each list reduced to a digit by its operator.

Digits 0 to 9 are the symbols 1 to 10, the operators that open a list 11 to 14, the bracket that closes it 15.
:meth:`ListOps.data_set` draws the examples of the Long Range Arena (Tay et al., 2021), :meth:`ListOps.draw` lists of
any length.
"""

# B = batch, N = width of the padded rows, U = N // 2 units of two cells
# V = nodes of many trees on one level, W = lists among them, T = trees, D = digits
from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from riffle.tasks.brackets import nested_heights
from riffle.tasks.rows import bernoulli, crop, last_column_so_far, randint
from riffle.tasks.task import BLANK, Batch
from riffle.tasks.token_tasks import ClassTask

DIGITS = 10
MIN, MAX, MEDIAN, SUM, CLOSE = 11, 12, 13, 14, 15
FUNCTIONS: dict[int, Callable[[list[int]], float]] = {MIN: min, MAX: max, MEDIAN: statistics.median, SUM: sum}
ARENA_LENGTHS = range(501, 2000)
ARENA_DEPTH, ARENA_ARGUMENTS, ARENA_LISTS = 10, 10, 0.25
"""Largest depth, most arguments, and how often an argument is a list, in the Arena's examples."""
TREES = 4096
"""Trees that are drawn at once."""


def is_operator(rows_BN: Tensor) -> Tensor:
    """Which cells open a list, bool ``[B, N]``."""
    return (rows_BN >= MIN) & (rows_BN <= SUM)


class ListOps(ClassTask):
    """Give the value of nested lists: the least, the greatest or the median digit, rounded down, or the sum modulo 10.

    An input of length ``l`` has ``l // 4`` lists, each with a digit at its beginning and at its end, and is a single
    digit where ``l`` is less than 4.
    """

    name = "listops"
    summary = "Give the value of nested lists of digits: minimum, maximum, median or sum modulo 10."
    example = ("[MAX", "2", "9", "[MIN", "4", "7", "]", "0", "]")
    syntax = "type digits and lists [MIN, [MAX, [MED or [SM up to ], for example: [MAX 2 9 [MIN 4 7 ] 0 ]"
    alphabet = "0 1 2 3 4 5 6 7 8 9 [MIN [MAX [MED [SM ]"
    answers = "0 1 2 3 4 5 6 7 8 9"
    free = (range(1, MIN), range(MIN, CLOSE))
    symbols: int = 16
    classes: int = 11

    def draw(self, lengths_B: Tensor, width: int, *, generator: torch.Generator) -> Tensor:
        batch, lists_B1 = len(lengths_B), (lengths_B // 4)[:, None]
        units_N = torch.arange(width // 2 + 1, device=generator.device)
        # Inside the outermost list the others nest at random; the rest closes what is open.
        inner_BU = nested_heights(bernoulli(0.5, (batch, max(width // 2 - 1, 0)), generator))
        heights_BU = F.pad(1 + inner_BU, (1, 0))[:, : width // 2 + 1]
        heights_BU = torch.minimum(heights_BU, 2 * lists_B1 - units_N)
        opens_BU = heights_BU.diff(dim=1) > 0
        digits_BU = randint(1, MIN, (batch, width // 2), generator)
        operators_BU = randint(MIN, CLOSE, (batch, width // 2), generator)
        first_BU, second_BU = torch.where(opens_BU, operators_BU, digits_BU), torch.where(opens_BU, digits_BU, CLOSE)
        rows_BN = F.pad(torch.stack([first_BU, second_BU], dim=2).flatten(1), (0, width % 2))
        single_BN = crop(randint(1, MIN, (batch, width), generator), lengths_B.clamp(max=1))
        return torch.where(lists_B1 == 0, single_BN, crop(rows_BN, 4 * lists_B1[:, 0]))

    def classify(self, inputs_BN: Tensor) -> Tensor:
        return self.evaluate(inputs_BN, depth=inputs_BN.shape[1] // 3 + 1)

    def evaluate(self, inputs_BN: Tensor, depth: int) -> Tensor:
        """The values of lists that nest at most ``depth`` deep, int64 ``[B]``; the innermost are reduced first."""
        opens_BN = is_operator(inputs_BN)
        after_BN = (opens_BN.long() - (inputs_BN == CLOSE).long()).cumsum(dim=1)
        argument_BN = opens_BN | ((inputs_BN != BLANK) & (inputs_BN <= DIGITS))
        level_BN = after_BN - opens_BN.long()  # how many lists an argument is in
        values_BN = torch.where(opens_BN, 0, inputs_BN - 1).clamp(0, DIGITS - 1)
        batch, width = inputs_BN.shape
        for level in range(depth, 0, -1):
            list_BN = opens_BN & (after_BN == level)
            inside_BN = argument_BN & (level_BN == level)
            place_BN = last_column_so_far(list_BN).clamp(min=0) * DIGITS + values_BN
            counts_BND = values_BN.new_zeros(batch, width * DIGITS)
            counts_BND = counts_BND.scatter_add(1, place_BN, inside_BN.long()).unflatten(1, (width, DIGITS))
            values_BN = torch.where(list_BN, reduce_counts(counts_BND, inputs_BN), values_BN)
        return values_BN[:, 0]

    def class_of(self, symbols: list[int]) -> int:
        lists: list[list[int]] = [[]]
        for symbol in symbols:
            if symbol <= DIGITS:
                lists[-1].append(symbol - 1)
            elif symbol < CLOSE:
                lists.append([symbol])
            else:
                operator, *arguments = lists.pop()
                if not lists or not arguments:
                    raise ValueError("a ] closes nothing, or an empty list")
                lists[-1].append(int(FUNCTIONS[operator](arguments)) % DIGITS)
        if len(lists) > 1 or len(lists[0]) != 1:
            raise ValueError("a list is open at the end, or there is more than one value")
        return lists[0][0]

    def data_set(self, examples: int, shortest: int, width: int, *, generator: torch.Generator) -> Batch:
        """Examples as the Long Range Arena draws them: lists of more than 500 and less than 2,000 symbols.

        Every argument is a list with a chance of 1 in 4, down to a depth of 10, with 2 to 10 arguments. Those shorter
        than ``shortest`` or longer than ``width`` belong to other bins.
        """
        lengths = range(max(shortest, ARENA_LENGTHS[0]), min(width, ARENA_LENGTHS[-1]) + 1)
        if not lengths:
            raise ValueError(
                f"these examples have {ARENA_LENGTHS[0]} to {ARENA_LENGTHS[-1]} symbols, and the bin holds {shortest} "
                f"to {width}: set data.bins=1024,2048, for example"
            )
        parts: list[Batch] = []
        while sum(len(part.inputs) for part in parts) < examples:
            parts.append(draw_trees(lengths, width, generator))
        inputs, targets = (torch.cat(rows)[:examples] for rows in zip(*parts, strict=True))
        return Batch(inputs, targets)


def reduce_counts(counts_D: Tensor, operator: Tensor) -> Tensor:
    """The value of every list from how often it has each digit, ``[..., 10]``, in the shape of its operator."""
    below_D = counts_D.cumsum(dim=-1)
    total = below_D[..., -1]

    def ranked(rank: Tensor) -> Tensor:
        """The digit of a rank, from 1 on."""
        return (below_D < rank[..., None]).sum(dim=-1)

    middle = (ranked((total + 1) // 2) + ranked(total // 2 + 1)) // 2
    digit_sum = (counts_D * torch.arange(DIGITS, device=counts_D.device)).sum(dim=-1)
    value = torch.where(operator == MIN, ranked(torch.ones_like(total)), ranked(total))
    value = torch.where(operator == MEDIAN, middle, value)
    return torch.where(operator == SUM, digit_sum % DIGITS, value)


def draw_trees(lengths: range, width: int, generator: torch.Generator) -> Batch:
    """Draw :data:`TREES` trees level by level; those of some lengths as rows and their values, uint8."""
    levels = _grow(generator)
    # From the deepest level up: the symbols that a node takes, and its value.
    sizes: list[Tensor] = []
    size_V = value_V = levels[0].counts.new_empty(0)
    for level in reversed(levels):
        list_W = level.counts.nonzero()[:, 0]  # one node in five
        number_V = torch.repeat_interleave(level.counts[list_W])  # the list of each node below
        inside_W = torch.zeros_like(list_W).index_add(0, number_V, size_V)
        digits_WD = torch.bincount(number_V * DIGITS + value_V, minlength=len(list_W) * DIGITS).view(-1, DIGITS)
        size_V, value_V = torch.ones_like(level.counts), level.symbols - 1
        size_V[list_W] = inside_W + 2
        value_V[list_W] = reduce_counts(digits_WD, level.symbols[list_W])
        sizes.append(size_V)
    kept_T = (size_V >= lengths[0]) & (size_V <= lengths[-1])
    row_T = kept_T.cumsum(dim=0) - 1
    rows_BN = torch.zeros(int(kept_T.sum()), width, dtype=torch.uint8, device=kept_T.device)
    targets_BN = torch.zeros_like(rows_BN)
    targets_BN[:, 0] = (value_V[kept_T] + 1).to(torch.uint8)
    start_V = torch.zeros_like(size_V)
    for level, size_V, below in zip(levels, reversed(sizes), [*sizes[-2::-1], None], strict=True):
        for place_V, symbol_V, here_V in (
            (start_V, level.symbols, kept_T[level.trees]),
            (start_V + size_V - 1, torch.full_like(level.symbols, CLOSE), kept_T[level.trees] & (level.counts > 0)),
        ):
            rows_BN[row_T[level.trees[here_V]], place_V[here_V]] = symbol_V[here_V].to(torch.uint8)
        if below is not None:
            first_V = below.cumsum(dim=0) - below  # where a node would start if all followed each other
            offset_V = level.counts.cumsum(dim=0) - level.counts
            start_V = start_V[level.parents] + 1 + first_V - first_V[offset_V[level.parents]]
    return Batch(rows_BN, targets_BN)


class Level(NamedTuple):
    """The nodes of all trees on one level, in order, and the parents of those on the next one."""

    trees: Tensor
    """The tree of each node, ``[V]``."""
    symbols: Tensor
    """Its operator or digit, ``[V]``."""
    counts: Tensor
    """Its arguments, 0 for a digit, ``[V]``."""
    parents: Tensor
    """The node above each node of the next level."""


def _grow(generator: torch.Generator) -> list[Level]:
    """The levels of :data:`TREES` trees; one that is too long already is not grown any further."""
    device = generator.device
    tree_V = torch.arange(TREES, device=device)
    is_list_V, nodes_T = torch.ones_like(tree_V, dtype=torch.bool), torch.zeros_like(tree_V)
    levels = []
    for depth in range(1, ARENA_DEPTH + 1):
        shape = (len(tree_V),)
        nodes_T = nodes_T.index_add(0, tree_V, torch.ones_like(tree_V))
        is_list_V &= nodes_T[tree_V] <= ARENA_LENGTHS[-1]
        symbol_V = torch.where(is_list_V, randint(MIN, CLOSE, shape, generator), randint(1, MIN, shape, generator))
        counts_V = torch.where(is_list_V, randint(2, ARENA_ARGUMENTS + 1, shape, generator), 0)
        parent_V = torch.arange(len(tree_V), device=device).repeat_interleave(counts_V)
        levels.append(Level(tree_V, symbol_V, counts_V, parent_V))
        tree_V = tree_V[parent_V]
        is_list_V = bernoulli(ARENA_LISTS if depth + 1 < ARENA_DEPTH else 0.0, (len(parent_V),), generator)
    return levels
