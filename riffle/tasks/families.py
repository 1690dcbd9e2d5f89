"""Families of structured inputs, by which networks are tested: training does not draw them as such.

A family replaces drawn inputs by structured ones of the same lengths. Those here replace values, whatever a task's
symbols stand for; :mod:`riffle.tasks.number_families` has those of numbers.
"""

# B = batch, N = width of the padded rows, V = values 0..V-1
from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from riffle.tasks.rows import BLANK, bernoulli, columns, rand, randint, randint_below, sort_rows, take

Split = Callable[[Tensor, torch.Generator], Tensor]
"""Replaces drawn inputs ``[B, N]`` by others of the same lengths."""
DrawValues = Callable[[int, Tensor], Tensor]
"""Rows of values 0..V-1, ``[B, N]``, from V and the lengths ``[B, 1]``."""
Values = Callable[[int, Tensor, Tensor, torch.Generator], Tensor]
"""Rows of values 0..V-1 from V, the columns ``[B, N]``, the lengths ``[B, 1]`` and a generator."""
FAR = "far-"
"""Begins the name of a family with carries or runs over more than 31 positions, the most that 64 cells have."""


LIKE_TRAINING = frozenset({
    *("all-equal", "sorted", "reversed", "two-values", "rare-values", "one-odd", "geometric"),
    *("periodic", "halves", "falling", "swapped"),
    *("all-zero", "all-one", "alternating", "alternating-carries", "longest-carry", "carry", "complement"),
    *("complement-plus-one", "mostly-passing", "mostly-making", "mostly-absorbing", "mostly-zero"),
    *("mostly-highest", "plus-zero", "plus-highest", "times-zero", "short-and-long", "one-digit-plus-zero", "repeated"),
})  # fmt: skip
"""Worst cases and families of whose kind training makes inputs where ``data.structure`` asks for structure.

It draws them with parameters of its own; nothing like the other families is drawn but by chance.
"""
SYMBOL_SPLITS: dict[str, Split] = {
    "all-equal": lambda rows_BN, generator: torch.where(rows_BN == BLANK, BLANK, rows_BN[:, :1]),
    "sorted": lambda rows_BN, generator: sort_rows(rows_BN),
    "reversed": lambda rows_BN, generator: rows_BN.sort(dim=1, descending=True).values,
}
"""Worst cases of rows of symbols."""


def one_value(values: int, column_BN: Tensor, generator: torch.Generator) -> Tensor:
    """A value for every row, ``[B, 1]``."""
    return randint(0, values, (column_BN.shape[0], 1), generator)


def any_values(values: int, column_BN: Tensor, lengths_B1: Tensor, generator: torch.Generator) -> Tensor:
    """Uniform values."""
    return randint(0, values, (*column_BN.shape,), generator)


def two_values(values: int, column_BN: Tensor, lengths_B1: Tensor, generator: torch.Generator) -> Tensor:
    """Two values, each with probability 1/2 in every cell."""
    first_B1 = one_value(values, column_BN, generator)
    second_B1 = (first_B1 + 1 + randint_below(torch.full_like(first_B1, values - 1), generator)) % values
    return torch.where(bernoulli(0.5, (*column_BN.shape,), generator), first_B1, second_B1)


def rare_values(values: int, column_BN: Tensor, lengths_B1: Tensor, generator: torch.Generator) -> Tensor:
    """One value in 95% of the cells, any in the others."""
    rare_BN = bernoulli(0.05, (*column_BN.shape,), generator)
    any_BN = any_values(values, column_BN, lengths_B1, generator)
    return torch.where(rare_BN, any_BN, one_value(values, column_BN, generator))


def one_odd(values: int, column_BN: Tensor, lengths_B1: Tensor, generator: torch.Generator) -> Tensor:
    """One value in all cells but one."""
    common_B1, odd_B1 = (one_value(values, column_BN, generator) for _ in range(2))
    return torch.where(column_BN == randint_below(lengths_B1, generator), odd_B1, common_B1)


def geometric(values: int, column_BN: Tensor, lengths_B1: Tensor, generator: torch.Generator) -> Tensor:
    """A value in half of the cells on average, the next value in a quarter, the one after that in an eighth, and on."""
    first_B1 = one_value(values, column_BN, generator)
    share_BN = rand((*column_BN.shape,), generator).clamp(min=torch.finfo(torch.float32).tiny)
    return (first_B1 + (-share_BN.log2()).long().clamp(max=values - 1)) % values


def runs(values: int, column_BN: Tensor, lengths_B1: Tensor, generator: torch.Generator) -> Tensor:
    """Runs of one length, 2 to 17 cells, each of a random value."""
    run_B1 = randint(2, 18, (column_BN.shape[0], 1), generator)
    return take(any_values(values, column_BN, lengths_B1, generator), column_BN // run_B1)


def periodic(values: int, column_BN: Tensor, lengths_B1: Tensor, generator: torch.Generator) -> Tensor:
    """A random block of 2 to 9 cells, repeated."""
    period_B1 = randint(2, 10, (column_BN.shape[0], 1), generator)
    return take(any_values(values, column_BN, lengths_B1, generator), column_BN % period_B1)


def palindrome(values: int, column_BN: Tensor, lengths_B1: Tensor, generator: torch.Generator) -> Tensor:
    """The same in both directions."""
    mirrored_BN = torch.minimum(column_BN, (lengths_B1 - 1 - column_BN).clamp(min=0))
    return take(any_values(values, column_BN, lengths_B1, generator), mirrored_BN)


def halves(values: int, column_BN: Tensor, lengths_B1: Tensor, generator: torch.Generator) -> Tensor:
    """One value up to a random cell, another one after it."""
    first_B1, second_B1 = (one_value(values, column_BN, generator) for _ in range(2))
    return torch.where(column_BN < randint_below(lengths_B1, generator), first_B1, second_B1)


def ramp(values: int, position_BN: Tensor, lengths_B1: Tensor) -> Tensor:
    """All values in ascending order, equally often."""
    return (position_BN * values // lengths_B1.clamp(min=1)).clamp(0, values - 1)


def falling(values: int, column_BN: Tensor, lengths_B1: Tensor, generator: torch.Generator) -> Tensor:
    """All values in descending order, equally often, and a random value in 10% of the cells."""
    noise_BN = bernoulli(0.1, (*column_BN.shape,), generator)
    descending_BN = values - 1 - ramp(values, column_BN, lengths_B1)
    return torch.where(noise_BN, any_values(values, column_BN, lengths_B1, generator), descending_BN)


def organ_pipe(values: int, column_BN: Tensor, lengths_B1: Tensor, generator: torch.Generator) -> Tensor:
    """Values that rise to a random cell and fall after it."""
    top_B1 = randint_below(lengths_B1, generator)
    down_BN = values - 1 - ramp(values, column_BN - top_B1, lengths_B1 - top_B1)
    return torch.where(column_BN < top_B1, ramp(values, column_BN, top_B1), down_BN)


def sawtooth(values: int, column_BN: Tensor, lengths_B1: Tensor, generator: torch.Generator) -> Tensor:
    """0 to V-1 over and over, from a random value on."""
    return (column_BN + one_value(values, column_BN, generator)) % values


def rotated(values: int, column_BN: Tensor, lengths_B1: Tensor, generator: torch.Generator) -> Tensor:
    """Ascending values, rotated by a random number of cells."""
    shift_B1 = randint_below(lengths_B1, generator)
    return ramp(values, (column_BN + shift_B1) % lengths_B1.clamp(min=1), lengths_B1)


def swapped(values: int, column_BN: Tensor, lengths_B1: Tensor, generator: torch.Generator) -> Tensor:
    """Ascending values with two random cells exchanged."""
    one_B1, other_B1 = (randint_below(lengths_B1, generator) for _ in range(2))
    source_BN = torch.where(column_BN == one_B1, other_B1, torch.where(column_BN == other_B1, one_B1, column_BN))
    return ramp(values, source_BN, lengths_B1)


def interleaved(values: int, column_BN: Tensor, lengths_B1: Tensor, generator: torch.Generator) -> Tensor:
    """Ascending values in every second cell, from a random one on, descending values between them."""
    up_BN = ramp(values, column_BN, lengths_B1)
    return torch.where((column_BN + randint(0, 2, (len(column_BN), 1), generator)) % 2 == 0, up_BN, values - 1 - up_BN)


VALUES: dict[str, Values] = {
    "two-values": two_values,
    "rare-values": rare_values,
    "one-odd": one_odd,
    "geometric": geometric,
    "runs": runs,
    "periodic": periodic,
    "palindrome": palindrome,
    "halves": halves,
    "falling": falling,
    "organ-pipe": organ_pipe,
    "sawtooth": sawtooth,
    "rotated": rotated,
    "swapped": swapped,
    "interleaved": interleaved,
}
BITS = {name: VALUES[name] for name in ("rare-values", "one-odd", "runs", "periodic", "palindrome", "halves")}
"""The families that differ from one another where there are only two values."""


def value_families(
    replace_values: Callable[[Tensor, DrawValues], Tensor], values: dict[str, Values] = VALUES
) -> dict[str, Split]:
    """Families of a task by name, given how values take the place of its symbols, :meth:`Task.replace_values`."""

    def split(family: Values, rows_BN: Tensor, generator: torch.Generator) -> Tensor:
        column_BN = columns(rows_BN).expand_as(rows_BN)
        return replace_values(rows_BN, lambda count, lengths_B1: family(count, column_BN, lengths_B1, generator))

    return {name: partial(split, family) for name, family in values.items()}
