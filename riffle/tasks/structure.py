"""Rows of random structure, for training on more than uniform rows.

Every row has random parameters of its own: how many different symbols, how skewed, how long its runs, how nearly
sorted, how periodic. They are continuous and independent, so that a row of any kind resembles some that are drawn.
"""

# B = batch, N = width of the rows, V = values 0..V-1
from __future__ import annotations

import torch
from torch import Tensor

from riffle.tasks.rows import bernoulli, columns, last_column_so_far, rand, randint_below, take


def chosen(chance: float, batch: int, generator: torch.Generator) -> Tensor:
    """A random choice of the rows, bool ``[B, 1]``."""
    return bernoulli(chance, (batch, 1), generator)


def repeat_before(rows_BN: Tensor, generator: torch.Generator) -> Tensor:
    """Runs: every cell repeats the one before it, with a random probability for each row, often close to 1."""
    fresh_BN = bernoulli(rand((rows_BN.shape[0], 1), generator) ** 2, (*rows_BN.shape,), generator)
    return take(rows_BN, last_column_so_far(fresh_BN))


def skewed_values(values: int, shape: tuple[int, int], generator: torch.Generator) -> Tensor:
    """Rows of 1 to V different values; in half of the rows each is rarer than the one before by a random factor."""
    order_BV = rand((shape[0], values), generator).argsort(dim=1)
    count_B1 = 1 + (rand((shape[0], 1), generator).sqrt() * values).long()
    factor_B1 = torch.where(chosen(0.5, shape[0], generator), rand((shape[0], 1), generator), 1.0)
    rank_V = torch.arange(values, device=generator.device)
    total_BV = torch.where(rank_V < count_B1, factor_B1**rank_V, 0.0).cumsum(dim=1)
    rank_BN = torch.searchsorted(total_BV, rand(shape, generator) * total_BV[:, -1:], right=True)
    return take(order_BV, torch.minimum(rank_BN, count_B1 - 1))


def mostly_one_value(rows_BN: Tensor, generator: torch.Generator) -> Tensor:
    """Rows with most cells set to their first value; the share that stays is log-uniform between 1 / N and 1."""
    batch, width = rows_BN.shape
    stays_BN = bernoulli(width ** -rand((batch, 1), generator), (batch, width), generator)
    return torch.where(stays_BN, rows_BN, rows_BN[:, :1])


def nearly_sorted(rows_BN: Tensor, lengths_B1: Tensor, generator: torch.Generator) -> Tensor:
    """The first ``lengths`` cells of every row in ascending or descending order of their value plus random noise."""
    sign_B1 = torch.where(chosen(0.5, rows_BN.shape[0], generator), 1, -1)
    noise_B1 = rand((rows_BN.shape[0], 1), generator).reciprocal() - 1
    key_BN = sign_B1 * rows_BN + noise_B1 * rand((*rows_BN.shape,), generator)
    return take(rows_BN, torch.where(columns(rows_BN) < lengths_B1, key_BN, torch.inf).argsort(dim=1))


def structured_values(values: int, lengths_B1: Tensor, width: int, generator: torch.Generator) -> Tensor:
    """Rows of values 0..V-1 of random structure, int64 ``[B, width]``; cells past a row's length hold any values."""
    batch = lengths_B1.shape[0]
    rows_BN = skewed_values(values, (batch, width), generator)
    rows_BN = torch.where(chosen(0.5, batch, generator), repeat_before(rows_BN, generator), rows_BN)
    rows_BN = torch.where(chosen(0.4, batch, generator), mostly_one_value(rows_BN, generator), rows_BN)
    period_B1 = (width ** rand((batch, 1), generator)).long()
    periodic_BN = take(rows_BN, columns(rows_BN) % period_B1)
    rows_BN = torch.where(chosen(0.25, batch, generator), periodic_BN, rows_BN)
    sorted_BN = nearly_sorted(rows_BN, lengths_B1, generator)
    return torch.where(chosen(0.25, batch, generator), sorted_BN, rows_BN)


def structured_numbers(base: int, digits_B1: Tensor, width: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Digits of two numbers per row, of random structure, half of them with leading zeros; each ``[B, width]``."""
    digits_B1 = digits_B1.repeat(2, 1)
    rows_BN = structured_values(base, digits_B1, width, generator)
    short_B1 = randint_below(digits_B1 + 1, generator)
    size_B1 = torch.where(chosen(0.5, rows_BN.shape[0], generator), short_B1, digits_B1)
    a_BN, b_BN = torch.where(columns(rows_BN) < size_B1, rows_BN, 0).chunk(2)
    return a_BN, b_BN


PROPAGATE, GENERATE, ABSORB = 0, 1, 2
"""What a column of a sum does with an incoming carry: pass it on, generate one in any case, or absorb it."""


def with_carries(a_BN: Tensor, b_BN: Tensor, base: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Change digits of two numbers per row so that columns propagate, generate or absorb carries in random proportions.

    The proportions are uniform over the simplex for each row. In half of the rows columns of a kind come in runs. In
    the other half single columns stand, at log-uniform distances, among columns of one kind; in half of these rows that
    kind propagates, so that carries travel far.
    """
    batch, width = a_BN.shape
    shares_B3 = -(1 - rand((batch, 3), generator)).log()
    total_B3 = (shares_B3 / shares_B3.sum(dim=1, keepdim=True)).cumsum(dim=1)
    kind_BN = torch.searchsorted(total_B3, rand((batch, width), generator), right=True)
    spread_BN = bernoulli(width ** -rand((batch, 1), generator), (batch, width), generator)
    between_B1 = torch.where(chosen(0.5, batch, generator), GENERATE, ABSORB)
    between_B1 = torch.where(chosen(0.5, batch, generator), PROPAGATE, between_B1)
    alone_BN = torch.where(spread_BN, kind_BN, between_B1)
    kind_BN = torch.where(chosen(0.5, batch, generator), alone_BN, repeat_before(kind_BN, generator))
    made_BN, absorbed_BN = a_BN.clamp(min=1), a_BN.clamp(max=base - 2)
    other_BN = torch.where(kind_BN == GENERATE, made_BN, absorbed_BN)
    room_BN = torch.where(kind_BN == GENERATE, made_BN, base - 1 - absorbed_BN)
    low_BN = torch.where(kind_BN == GENERATE, base - made_BN, 0)
    passes_BN = kind_BN == PROPAGATE
    return torch.where(passes_BN, a_BN, other_BN), torch.where(passes_BN, base - 1 - a_BN, low_BN + b_BN % room_BN)
