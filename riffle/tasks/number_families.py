"""Families of numbers and their worst cases: sums by what a column does with a carry, products by their digits."""

# B = batch, N = width of the padded rows; digits come lowest first
from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from riffle.tasks.digits import replace_operands
from riffle.tasks.families import FAR, Split, any_values
from riffle.tasks.rows import bernoulli, columns, first_column, last_column_so_far, randint, randint_below, take

NEAR = 31
"""Columns that a carry passes at most in a family that is not a far one: as many as 64 cells have."""
Operands = Callable[[int, Tensor, Tensor, torch.Generator], tuple[Tensor, Tensor]]
"""The digits of two numbers per row, from the base, the columns ``[B, N]``, how many digits ``[B, 1]``, a generator."""
ABSORB, PASS, MAKE = 0, 1, 2
"""What a column of a sum does with a carry: its digits sum to less than base - 1, to base - 1, or to more."""


def summands(base: int, kind_BN: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random digits of two numbers whose columns absorb, pass on or make a carry as ``kind_BN`` says."""
    made_BN = 1 + randint(0, base - 1, (*kind_BN.shape,), generator)
    passed_BN, absorbed_BN = randint(0, base, (*kind_BN.shape,), generator), made_BN - 1
    a_BN = torch.where(kind_BN == PASS, passed_BN, torch.where(kind_BN == MAKE, made_BN, absorbed_BN))
    b_made_BN = base - made_BN + randint_below(made_BN, generator)
    b_absorbed_BN = randint_below(base - 1 - absorbed_BN, generator)
    return a_BN, torch.where(kind_BN == PASS, base - 1 - a_BN, torch.where(kind_BN == MAKE, b_made_BN, b_absorbed_BN))


def limit_runs(base: int, limit: int, a_BN: Tensor, b_BN: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """After ``limit`` columns in a row that pass a carry on, insert a column that makes or absorbs one."""
    passes_BN = a_BN + b_BN == base - 1
    since_BN = columns(a_BN) - last_column_so_far(~passes_BN)
    breaks_BN = passes_BN & (since_BN % (limit + 1) == 0)
    digit_BN = torch.where(bernoulli(0.5, (*a_BN.shape,), generator), base - 1, 0)
    return torch.where(breaks_BN, digit_BN, a_BN), torch.where(breaks_BN, digit_BN, b_BN)


def shares(absorb: float, make: float) -> Operands:
    """Columns that absorb and make carries in given shares; the others pass them on."""

    def family(base: int, column_BN: Tensor, digits_B1: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        absorb_BN, make_BN = (bernoulli(rate, (*column_BN.shape,), generator) for rate in (absorb, make / (1 - absorb)))
        return summands(base, torch.where(absorb_BN, ABSORB, torch.where(make_BN, MAKE, PASS)), generator)

    return family


def chains(head: int | None, least: int, most: int) -> Operands:
    """Runs of ``least`` to ``most`` columns that pass a carry on, each run after a column of kind ``head``.

    Without ``head``, that column makes or absorbs a carry with probability 1/2 each.
    """

    def family(base: int, column_BN: Tensor, digits_B1: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        run_B1 = 1 + randint(least, most + 1, (column_BN.shape[0], 1), generator)
        first_B1 = randint_below(run_B1, generator)
        either_BN = torch.where(bernoulli(0.5, (*column_BN.shape,), generator), MAKE, ABSORB)
        heads_BN = either_BN if head is None else torch.full_like(column_BN, head)
        return summands(base, torch.where((column_BN + first_B1) % run_B1 == 0, heads_BN, PASS), generator)

    return family


def passing(lowest: int, *, alternating: bool = False) -> Operands:
    """All columns but the lowest pass a carry on; their digits are random, or 0, base - 1, 0, ... and the reverse."""

    def family(base: int, column_BN: Tensor, digits_B1: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        a_BN, b_BN = summands(base, torch.where(column_BN == 0, lowest, PASS), generator)
        if alternating:
            turn_BN = (column_BN + randint(0, 2, (column_BN.shape[0], 1), generator)) % 2 * (base - 1)
            keep_BN = (column_BN == 0) & (lowest != PASS)
            a_BN, b_BN = torch.where(keep_BN, a_BN, turn_BN), torch.where(keep_BN, b_BN, base - 1 - turn_BN)
        return a_BN, b_BN

    return family


def numbers(a: Callable[..., Tensor], b: Callable[..., Tensor]) -> Operands:
    """Two independent random numbers."""
    return lambda *arguments: (a(*arguments), b(*arguments))


def short(base: int, column_BN: Tensor, digits_B1: Tensor, generator: torch.Generator) -> Tensor:
    """Zeros from a random digit on."""
    last_B1 = randint_below(digits_B1, generator)
    return torch.where(column_BN <= last_B1, any_values(base, column_BN, digits_B1, generator), 0)


def trailing_zeros(base: int, column_BN: Tensor, digits_B1: Tensor, generator: torch.Generator) -> Tensor:
    """Zeros up to a random digit."""
    first_B1 = randint_below(digits_B1, generator)
    return torch.where(column_BN < first_B1, 0, any_values(base, column_BN, digits_B1, generator))


def constant(digit: int) -> Callable[..., Tensor]:
    """One digit everywhere; -1 is the highest."""
    return lambda base, column_BN, digits_B1, generator: torch.full_like(column_BN, digit % base)


def one(base: int, column_BN: Tensor, digits_B1: Tensor, generator: torch.Generator) -> Tensor:
    """The number one."""
    return (column_BN == 0).long()


def few_digits(count: int) -> Callable[..., Tensor]:
    """At most ``count`` digits that are not zero."""

    def family(base: int, column_BN: Tensor, digits_B1: Tensor, generator: torch.Generator) -> Tensor:
        places = [column_BN == randint_below(digits_B1, generator) for _ in range(count)]
        return torch.stack(places).any(dim=0) * (1 + randint(0, base - 1, (*column_BN.shape,), generator))

    return family


def mostly(digit: int) -> Callable[..., Tensor]:
    """One digit in 90% of the columns, any in the others; -1 is the highest."""

    def family(base: int, column_BN: Tensor, digits_B1: Tensor, generator: torch.Generator) -> Tensor:
        other_BN = bernoulli(0.1, (*column_BN.shape,), generator)
        return torch.where(other_BN, any_values(base, column_BN, digits_B1, generator), digit % base)

    return family


def one_bit(base: int, column_BN: Tensor, digits_B1: Tensor, generator: torch.Generator) -> Tensor:
    """A power of two, where the base is two."""
    return (column_BN == randint_below(digits_B1, generator)).long()


def alternating_bits(base: int, column_BN: Tensor, digits_B1: Tensor, generator: torch.Generator) -> Tensor:
    """0101... or 1010..."""
    return (column_BN + randint(0, 2, (column_BN.shape[0], 1), generator)) % 2


def repeated(base: int, column_BN: Tensor, digits_B1: Tensor, generator: torch.Generator) -> Tensor:
    """A random block of 2 to 8 digits, repeated."""
    values_BN = any_values(base, column_BN, digits_B1, generator)
    return take(values_BN, column_BN % randint(2, 9, (len(column_BN), 1), generator))


def equal(base: int, column_BN: Tensor, digits_B1: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A number and itself."""
    a_BN = any_values(base, column_BN, digits_B1, generator)
    return a_BN, a_BN


def count_over(base: int, column_BN: Tensor, digits_B1: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """0...0d9...9 + 1 in decimal: a carry that is absorbed at a random column, zeros above."""
    end_B1 = randint_below(digits_B1, generator)
    digit_B1 = randint(0, base - 1, (column_BN.shape[0], 1), generator)
    a_BN = torch.where(column_BN < end_B1, base - 1, torch.where(column_BN == end_B1, digit_B1, 0))
    return a_BN, (column_BN == 0).long()


def longest_carry(base: int, column_BN: Tensor, digits_B1: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A carry that starts at a random bit, in every other row at the lowest, and runs to the highest.

    Row 0 is 11...1 + 1; in the others it is random which of the two numbers has the bit that passes the carry on, and
    the bits below the start are random but make no carry.
    """
    row_B1 = torch.arange(column_BN.shape[0], device=generator.device)[:, None]
    start_B1 = torch.where(row_B1 % 2 == 0, 0, randint_below(digits_B1, generator))
    one_BN = bernoulli(0.5, (*column_BN.shape,), generator) | (row_B1 == 0)
    below_BN = bernoulli(0.5, (*column_BN.shape,), generator)
    a_BN = torch.where(column_BN < start_B1, one_BN & below_BN, one_BN | (column_BN == start_B1))
    b_BN = torch.where(column_BN < start_B1, ~one_BN & below_BN, ~one_BN | (column_BN == start_B1))
    return a_BN.long(), b_BN.long()


def carry_runs(base: int, column_BN: Tensor, digits_B1: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Runs of 1 + 1, which make carries, alternate with runs of 0 + 0, which absorb them; runs of 1 to 4 bits."""
    run_B1, shift_B1 = (randint(low, high, (column_BN.shape[0], 1), generator) for low, high in ((1, 5), (0, 8)))
    bits_BN = (column_BN + shift_B1) // run_B1 % 2
    return bits_BN, bits_BN


SUMS: dict[str, Operands] = {
    "complement": passing(PASS),
    "complement-plus-one": passing(MAKE),
    "alternating": passing(PASS, alternating=True),
    "alternating-plus-one": passing(MAKE, alternating=True),
    "mostly-passing": shares(0.01, 0.01),
    "mostly-making": shares(0.05, 0.9),
    "mostly-absorbing": shares(0.9, 0.05),
    "chains": chains(None, 0, NEAR),
    "chains-with-carry": chains(MAKE, NEAR - 8, NEAR),
    "chains-without-carry": chains(ABSORB, NEAR - 8, NEAR),
    "plus-zero": numbers(any_values, constant(0)),
    "plus-one": numbers(any_values, one),
    "plus-highest": numbers(any_values, constant(-1)),
    "short-and-long": numbers(short, any_values),
    "repeated": numbers(repeated, repeated),
    "equal": equal,
    "count-over": count_over,
    "one-digit": numbers(few_digits(1), few_digits(1)),
    "one-digit-plus-zero": numbers(few_digits(1), constant(0)),
    "sparse": numbers(few_digits(3), few_digits(3)),
}
"""Sums; carries pass at most :data:`NEAR` columns."""
FAR_SUMS: dict[str, Operands] = {
    "carry": passing(MAKE),
    "complement": passing(PASS),
    "alternating": passing(PASS, alternating=True),
    "alternating-plus-one": passing(MAKE, alternating=True),
    "chains": chains(None, NEAR + 1, 4 * NEAR),
    "chains-with-carry": chains(MAKE, NEAR + 1, 4 * NEAR),
    "count-over": count_over,
}
"""Sums in which runs of more than :data:`NEAR` columns pass a carry on, where there are so many."""
PRODUCTS: dict[str, Operands] = {
    "times-zero": numbers(any_values, constant(0)),
    "times-one": numbers(any_values, one),
    "times-power": numbers(any_values, few_digits(1)),
    "few-digits": numbers(few_digits(3), few_digits(3)),
    "mostly-zero": numbers(mostly(0), mostly(0)),
    "mostly-highest": numbers(mostly(-1), mostly(-1)),
    "short-and-long": numbers(any_values, short),
    "trailing-zeros": numbers(trailing_zeros, trailing_zeros),
    "repeated": numbers(repeated, repeated),
    "equal": equal,
}
"""Products."""
BINARY_CASES: dict[str, Operands] = {
    "all-zero": numbers(constant(0), constant(0)),
    "all-one": numbers(constant(-1), constant(-1)),
    "powers-of-two": numbers(one_bit, one_bit),
}
ADDITION_CASES = {"longest-carry": longest_carry, "alternating-carries": carry_runs, **BINARY_CASES}
"""Worst cases of binary sums."""
MULTIPLICATION_CASES = {**BINARY_CASES, "alternating": numbers(alternating_bits, alternating_bits)}
"""Worst cases of binary products."""


def number_splits(cases: dict[str, Operands], base: int, separator: int, limit: int | None = None) -> dict[str, Split]:
    """Splits that replace the digits of both numbers; with a limit, carries pass at most so many columns."""

    def split(family: Operands, rows_BN: Tensor, generator: torch.Generator) -> Tensor:
        column_BN = columns(rows_BN).expand_as(rows_BN)
        a_BN, b_BN = family(base, column_BN, first_column(rows_BN == separator)[:, None], generator)
        if limit is not None:
            a_BN, b_BN = limit_runs(base, limit, a_BN, b_BN, generator)
        return replace_operands(rows_BN, separator, a_BN, b_BN)

    return {name: partial(split, family) for name, family in cases.items()}


def sum_families(base: int, separator: int) -> dict[str, Split]:
    """The families of additions, by name."""
    near, far = number_splits(SUMS, base, separator, limit=NEAR), number_splits(FAR_SUMS, base, separator)
    return near | {FAR + name: split for name, split in far.items()}
