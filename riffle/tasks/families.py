"""Families of structured inputs for tests, eight or more for every task, which training does not draw as such.

A family replaces drawn inputs by structured ones of the same lengths, like a worst case in :attr:`Task.splits`; those
may be trained on (``data.worst``), families are for :func:`riffle.train.evaluate.evaluate` alone.
"""

# B = batch, N = width of the padded rows, P = N // 2 pairs, V = values 0..V-1
from __future__ import annotations

from collections.abc import Callable
from functools import partial, singledispatch

import torch
from torch import Tensor

from riffle.tasks import brackets, lookup, number_families, sequences, words
from riffle.tasks.arithmetic import Addition, Divide, Multiplication, MultiplyBCD, TwoNumbers
from riffle.tasks.rows import bernoulli, columns, crop, first_column, randint, randint_below, row_lengths, take
from riffle.tasks.task import BLANK, Split, Task

FAR = "far-"
"""Begins the name of a family with carries or runs over more than 31 positions, the most that 64 cells have."""
Values = Callable[[int, Tensor, Tensor, torch.Generator], Tensor]
"""Rows of values 0..V-1 from V, the columns ``[B, N]``, the lengths ``[B, 1]`` and a generator."""


def one_value(values: int, column_BN: Tensor, generator: torch.Generator) -> Tensor:
    """A value for every row, ``[B, 1]``."""
    return randint(0, values, (column_BN.shape[0], 1), generator)


def any_values(values: int, column_BN: Tensor, lengths_B1: Tensor, generator: torch.Generator) -> Tensor:
    """Uniform values."""
    return randint(0, values, (*column_BN.shape,), generator)


def two_values(values: int, column_BN: Tensor, lengths_B1: Tensor, generator: torch.Generator) -> Tensor:
    """Two values, each in half of the cells."""
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
    """All values in descending order, equally often up to a few random ones."""
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
    """Ascending values of which the last ones come first: sorted up to a rotation by a random number of cells."""
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
"""Those that are not the same as others where there are two values."""


def with_values(
    place: Callable[[Values, Tensor, torch.Generator], Tensor], values: dict[str, Values] = VALUES
) -> dict[str, Split]:
    """Families of a task, given how rows of values become its inputs."""
    return {name: partial(place, family) for name, family in values.items()}


@singledispatch
def families(task: Task) -> dict[str, Split]:
    """The families of a task, by name.

    >>> from riffle.tasks import TASKS
    >>> list(families(TASKS["sort"]))[:3]
    ['two-values', 'rare-values', 'one-odd']
    """
    return {}


@families.register
def _(task: sequences.SymbolTask) -> dict[str, Split]:
    def symbols(family: Values, rows_BN: Tensor, generator: torch.Generator) -> Tensor:
        lengths_B = row_lengths(rows_BN)
        column_BN = columns(rows_BN).expand_as(rows_BN)
        return crop(family(task.symbols - 1, column_BN, lengths_B[:, None], generator) + 1, lengths_B)

    return with_values(symbols)


@families.register
def _(task: sequences.Increment) -> dict[str, Split]:
    def counted(least: int, most: int, rows_BN: Tensor, generator: torch.Generator) -> Tensor:
        """A carry over ``least`` to ``most`` of the digits, and a digit that takes it where one is left."""
        column_N, highest = columns(rows_BN), task.symbols - 1
        end_B1 = least + randint_below(torch.full_like(rows_BN[:, :1], most + 1 - least), generator)
        rows_BN = torch.where((column_N == end_B1) & (rows_BN == highest), 1, rows_BN)
        return torch.where((column_N < end_B1) & (rows_BN != BLANK), highest, rows_BN)

    plain = families.dispatch(sequences.SymbolTask)(task)
    return plain | {"carry": partial(counted, 1, 30), f"{FAR}carry": partial(counted, 32, 2**16)}


@families.register
def _(task: sequences.PairTask) -> dict[str, Split]:
    def keys(family: Values, rows_BN: Tensor, generator: torch.Generator) -> Tensor:
        column_BN = columns(rows_BN).expand_as(rows_BN)
        pairs_B1 = (row_lengths(rows_BN)[:, None] + 1) // 2
        keys_BN = take(family(task.symbols - 1, column_BN, pairs_B1, generator), column_BN // 2) + 1
        return torch.where((column_BN % 2 == 0) & (rows_BN != BLANK), keys_BN, rows_BN)

    return with_values(keys)


@families.register
def _(task: lookup.Search) -> dict[str, Split]:
    def asked(place: str, rows_BN: Tensor, generator: torch.Generator) -> Tensor:
        """The key that is asked for is in no pair, in the first, in the last, or in every one."""
        lengths_B1, column_N = row_lengths(rows_BN)[:, None], columns(rows_BN)
        wanted_B1 = take(rows_BN, lengths_B1 - 1)
        key_BN = (column_N % 2 == 0) & (column_N < lengths_B1 - 1)
        other_BN = torch.where(key_BN & (rows_BN == wanted_B1), wanted_B1 % (task.symbols - 1) + 1, rows_BN)
        where = {"nowhere": -1, "first": 0, "last": lengths_B1 - 3}.get(place, column_N)
        return torch.where(key_BN & (column_N == where), wanted_B1, other_BN)

    places = {place: partial(asked, place) for place in ("nowhere", "first", "last", "everywhere")}
    return places | families.dispatch(sequences.PairTask)(task)


@families.register
def _(task: sequences.Rotate) -> dict[str, Split]:
    def bits(family: Values, rows_BN: Tensor, generator: torch.Generator) -> Tensor:
        column_BN = columns(rows_BN).expand_as(rows_BN)
        bits_B1 = (row_lengths(rows_BN)[:, None] + 1) // 2
        bits_BN = family(2, column_BN, bits_B1, generator) + 1
        return torch.where((column_BN < bits_B1) & (rows_BN != BLANK), bits_BN, rows_BN)

    def amount(share: float, rows_BN: Tensor, generator: torch.Generator) -> Tensor:
        """Rotated by a share of the largest amount."""
        after_BN = columns(rows_BN) - (row_lengths(rows_BN)[:, None] + 1) // 2
        shifts_B1 = ((row_lengths(rows_BN)[:, None] - 1) // 2 * share).long()
        unary_BN = torch.where(after_BN < shifts_B1, sequences.SHIFT, sequences.NO_SHIFT)
        return torch.where((after_BN >= 0) & (rows_BN != BLANK), unary_BN, rows_BN)

    amounts = {"by-none": partial(amount, 0.0), "by-half": partial(amount, 0.5), "by-most": partial(amount, 1.0)}
    return with_values(bits, BITS) | amounts


@families.register
def _(task: words.WordTask) -> dict[str, Split]:
    divider, letters = task.divider, task.divider - len(task.punctuation)

    def with_letters(family: Values, rows_BN: Tensor, generator: torch.Generator) -> Tensor:
        letter_BN = (rows_BN != BLANK) & (rows_BN <= letters)
        column_BN = columns(rows_BN).expand_as(rows_BN)
        values_BN = family(letters, column_BN, row_lengths(rows_BN)[:, None], generator) + 1
        return sorted_lists(torch.where(letter_BN, values_BN, rows_BN))

    def sorted_lists(rows_BN: Tensor) -> Tensor:
        if not isinstance(task, words.Merge):
            return rows_BN
        after_BN = columns(rows_BN) - first_column(rows_BN == task.middle)[:, None]
        return words.sort_words(rows_BN, rows_BN, divider, (after_BN >= 0).long() + (after_BN >= 2))

    return with_values(with_letters)


@families.register
def _(task: lookup.MemoryIndex) -> dict[str, Split]:
    def is_cell(rows_BN: Tensor) -> Tensor:
        return (rows_BN != BLANK) & (rows_BN % 3 != 0)

    def bits(family: Values, rows_BN: Tensor, generator: torch.Generator) -> Tensor:
        column_BN = columns(rows_BN).expand_as(rows_BN)
        bits_BN = family(2, column_BN, is_cell(rows_BN).sum(dim=1, keepdim=True), generator)
        return torch.where(is_cell(rows_BN), (rows_BN - 1) // 3 * 3 + 1 + bits_BN, rows_BN)

    def order(cells: int, asked: int, rows_BN: Tensor, generator: torch.Generator) -> Tensor:
        """Cells and keys asked for in ascending (1) or descending (-1) order of their keys, or as they are (0)."""
        key_BN, column_N = (rows_BN - 1) // 3, columns(rows_BN)
        cell_BN = is_cell(rows_BN)
        sign_BN = torch.where(cell_BN, cells, asked)
        rank_BN = torch.where(sign_BN == 0, column_N, sign_BN * key_BN)
        part_BN = torch.where(rows_BN == BLANK, 2, torch.where(cell_BN, 0, 1))
        spread = 2 * max(rows_BN.shape[1], task.keys) + 1
        return take(rows_BN, (part_BN * 2 * spread + rank_BN).argsort(dim=1, stable=True))

    def same_key(rows_BN: Tensor, generator: torch.Generator) -> Tensor:
        """The first key asked for is asked for every time."""
        asked_BN = (rows_BN != BLANK) & (rows_BN % 3 == 0)
        return torch.where(asked_BN, take(rows_BN, first_column(asked_BN)[:, None]), rows_BN)

    orders = {"rising": (1, 0), "falling": (-1, 0), "asked-rising": (0, 1), "both-rising": (1, 1), "crossed": (1, -1)}
    ordered: dict[str, Split] = {name: partial(order, *signs) for name, signs in orders.items()}
    return with_values(bits, BITS) | ordered | {"same-key": same_key}


Heights = Callable[[Tensor, Tensor, torch.Generator], Tensor]
"""Heights of nested brackets from the columns ``[1, M]``, the even lengths ``[B, 1]`` and a generator."""


def hills(size_B1: Tensor, column_1M: Tensor) -> Tensor:
    """Up ``size`` steps, down as many, and again."""
    return size_B1 - (column_1M % (2 * size_B1) - size_B1).abs()


def plateau(height_B1: Tensor, column_1M: Tensor) -> Tensor:
    """Up ``height`` steps, then up and down by turns."""
    return torch.where(column_1M < height_B1, column_1M, height_B1 + (column_1M - height_B1) % 2)


SHAPES: dict[str, Heights] = {
    "nested": lambda column_1M, even_B1, generator: hills((even_B1 // 2).clamp(min=1), column_1M),
    "flat": lambda column_1M, even_B1, generator: plateau(0 * even_B1, column_1M),
    "hills": lambda column_1M, even_B1, generator: hills(1 + randint_below(even_B1 // 4, generator), column_1M),
    "plateau": lambda column_1M, even_B1, generator: plateau(even_B1 // 4, column_1M),
    "steps": lambda column_1M, even_B1, generator: column_1M // 3 + column_1M % 3 + 0 * even_B1,  # up, up, down
}


@families.register
def _(task: brackets.Dyck) -> dict[str, Split]:
    def judged(shape: Heights, defect: int, rows_BN: Tensor, generator: torch.Generator) -> Tensor:
        """A shape in which every second row has one bracket of the other kind (2) or turned round (1)."""
        lengths_B = row_lengths(rows_BN)
        column_N = columns(rows_BN)
        column_1M = torch.arange(len(column_N) + 1, device=rows_BN.device)[None]
        even_B1 = (lengths_B // 2 * 2)[:, None]
        heights_BM = torch.minimum(shape(column_1M, even_B1, generator), even_B1 - column_1M)
        new_BN = brackets.brackets_of(heights_BM, even_B1[:, 0], randint(0, task.kinds, (*rows_BN.shape,), generator))
        every_second_B1 = torch.arange(len(rows_BN), device=rows_BN.device)[:, None] % 2 == 0
        here_BN = every_second_B1 & (column_N == randint_below(even_B1, generator))
        wrong_BN = (new_BN - 1 + 2) % (2 * task.kinds) + 1 if defect == 2 else ((new_BN - 1) ^ 1) + 1
        new_BN = torch.where(here_BN & (new_BN != BLANK), wrong_BN, new_BN)
        return torch.where(lengths_B[:, None] > 1, new_BN, rows_BN)

    defects = {"other-kind": 2, "turned": 1}
    return {
        f"{name}-{how}": partial(judged, shape, defect)
        for name, shape in SHAPES.items()
        for how, defect in defects.items()
    }


@families.register
def _(task: brackets.DyckContinue) -> dict[str, Split]:
    def opened(shape: Heights, kinds: int, rows_BN: Tensor, generator: torch.Generator) -> Tensor:
        """A shape of which the last bracket opens."""
        lengths_B = row_lengths(rows_BN)
        column_1M = torch.arange(rows_BN.shape[1] + 1, device=rows_BN.device)[None]
        heights_BM = shape(column_1M, (lengths_B // 2 * 2)[:, None], generator).clamp(min=0)
        last_B1 = (lengths_B[:, None] - 1).clamp(min=0)
        heights_BM = torch.where(column_1M > last_B1, take(heights_BM, last_B1) + 1, heights_BM)
        return brackets.brackets_of(heights_BM, lengths_B, randint(0, kinds, (*rows_BN.shape,), generator))

    kinds = {"": task.kinds, "-of-one-kind": 1}
    return {
        f"{name}{of}": partial(opened, shape, count) for name, shape in SHAPES.items() for of, count in kinds.items()
    }


@families.register
def _(task: Addition) -> dict[str, Split]:
    near = number_families.splits(number_families.SUMS, task, limit=number_families.NEAR)
    return near | {FAR + name: split for name, split in number_families.splits(number_families.FAR_SUMS, task).items()}


@families.register(Multiplication)
@families.register(MultiplyBCD)
def _(task: TwoNumbers) -> dict[str, Split]:
    return number_families.splits(number_families.PRODUCTS, task)


@families.register
def _(task: Divide) -> dict[str, Split]:
    return number_families.splits(number_families.QUOTIENTS, task)
