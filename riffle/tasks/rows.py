"""Helpers on blank-padded rows of symbols, a whole batch at once: lengths, cropping, gathering, shifting, drawing."""

# B = batch, N = width of the padded rows, M = width of the result
from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

BLANK = 0
"""The symbol that pads rows."""


def columns(rows_BN: Tensor) -> Tensor:
    """The column numbers 0..N-1 of the rows, int64 ``[N]``."""
    return torch.arange(rows_BN.shape[1], device=rows_BN.device)


def row_lengths(rows_BN: Tensor) -> Tensor:
    """Length of every row without its trailing blanks, int64 ``[B]``."""
    return torch.where(rows_BN != BLANK, columns(rows_BN) + 1, 0).amax(dim=1)


def crop(rows_BN: Tensor, lengths_B: Tensor) -> Tensor:
    """The first ``lengths_B`` symbols of every row, blanks after them."""
    return torch.where(columns(rows_BN) < lengths_B[:, None], rows_BN, BLANK)


def sort_rows(rows_BN: Tensor) -> Tensor:
    """The symbols of every row in ascending order, its trailing blanks still after them."""
    blank_last_BN = torch.where(rows_BN == BLANK, torch.iinfo(rows_BN.dtype).max, rows_BN)
    return crop(blank_last_BN.sort(dim=1).values, row_lengths(rows_BN))


def take(rows_BN: Tensor, index_BM: Tensor) -> Tensor:
    """``rows[b, index[b, m]]``; an index outside the row reads its nearest cell, for the caller to mask."""
    return rows_BN.gather(1, index_BM.clamp(0, rows_BN.shape[1] - 1))


def shift_right(rows_BN: Tensor, steps: int = 1, fill: int = 0) -> Tensor:
    """Every row moved ``steps`` columns to the right: ``fill`` comes in, the last columns fall out."""
    return F.pad(rows_BN, (steps, 0), value=fill)[:, : rows_BN.shape[1]]


def first_column(mask_BN: Tensor) -> Tensor:
    """The first column where the mask holds, ``N`` where it never does, int64 ``[B]``."""
    return torch.where(mask_BN, columns(mask_BN), mask_BN.shape[1]).amin(dim=1)


def last_column_so_far(mask_BN: Tensor) -> Tensor:
    """For every cell the last column up to it where the mask holds, -1 where there is none, int64 ``[B, N]``."""
    return torch.where(mask_BN, columns(mask_BN), -1).cummax(dim=1).values


def randint(low: int, high: int, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Integers ``low <= x < high``, int64, on the generator's device."""
    return torch.randint(low, high, shape, generator=generator, device=generator.device)


def rand(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Numbers ``0 <= x < 1``, float64, on the generator's device."""
    return torch.rand(shape, generator=generator, device=generator.device, dtype=torch.float64)


def randint_below(bounds_B: Tensor, generator: torch.Generator) -> Tensor:
    """One integer ``0 <= x < bound`` per entry; a bound below 1 gives 0."""
    below_B = (rand(bounds_B.shape, generator) * bounds_B).long()
    return torch.minimum(below_B, bounds_B - 1).clamp(min=0)


def bernoulli(probability: float | Tensor, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """True with the given probability, bool, on the generator's device."""
    return rand(shape, generator) < probability
