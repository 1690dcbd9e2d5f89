"""Training examples in bins of lengths, and the split between training and test examples."""

# B = batch, N = padded length of a bin, R = candidate rows
from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from riffle.config import DataConfig
from riffle.shuffle import bits
from riffle.tasks.rows import bernoulli, columns, randint_below, row_lengths, take
from riffle.tasks.task import BLANK, Batch, Task

HELD_OUT_OF = 16
"""One example in this many is held out of training."""
ALWAYS_TRAINED = 12
"""Examples with fewer symbols are never held out: there are too few different ones."""
Part = Literal["selection", "test"]
"""Held-out examples that choose weights, and those whose accuracy is reported."""


def sample_bin(task: Task, data: DataConfig, index: int, batch: int, *, generator: torch.Generator) -> Batch:
    """A training batch of the bin ``data.bins[index]``: examples too long for a smaller bin, and some shorter ones."""
    width, low = data.bins[index], data.bins[index - 1] + 1 if index else 1
    high = min(width, data.longest_input)
    low = low if low <= high else 1
    lengths_B = sample_lengths(batch, low, high, data.shorter, data.full, data.above, generator=generator)
    if data.cropped and task.reach > 1 and high == width:
        most = task.reach * width if width == data.longest_input else min(task.reach * width, data.longest_input)
        longer_B = width + 1 + randint_below(torch.full_like(lengths_B, most - width), generator)
        lengths_B = torch.where(bernoulli(data.cropped, (batch,), generator), longer_B, lengths_B)
    inputs_BN = task.draw(lengths_B, width, generator=generator)
    if data.structure:
        structured_B1 = bernoulli(data.structure, (batch, 1), generator)
        inputs_BN = torch.where(structured_B1, task.restructure(inputs_BN, generator), inputs_BN)
    return Batch(inputs_BN, task.answer(inputs_BN))


def move_right(batch: Batch, fraction: float, *, generator: torch.Generator) -> Batch:
    """Let a fraction of the examples start at a random cell: as many blanks come first as there is room for at most."""
    room_B = batch.inputs.shape[1] - torch.maximum(row_lengths(batch.inputs), row_lengths(batch.targets))
    moved_B = bernoulli(fraction, (len(room_B),), generator)
    offset_B1 = torch.where(moved_B, randint_below(room_B + 1, generator), 0)[:, None]
    source_BN = columns(batch.inputs) - offset_B1
    return Batch(*(torch.where(source_BN < 0, BLANK, take(rows_BN, source_BN)) for rows_BN in batch))


def sample_lengths(
    batch: int,
    low: int,
    high: int,
    shorter: float,
    full: float = 0.0,
    above: float = 0.0,
    *,
    generator: torch.Generator,
) -> Tensor:
    """Lengths uniform in ``low..high``; a fraction ``shorter`` uniform below it, a fraction ``full`` at ``high``.

    A fraction ``above`` is longer than a power of two by a log-uniform number. A network that moves cells by the length
    of its input has to tell 33 from 32 when nearly all of the upper half is blank, which uniform lengths seldom show.
    """
    own_B, below_B, choice_B = torch.rand(3, batch, generator=generator, device=generator.device)
    shorter = shorter if low > 1 else 0.0
    lengths_B = torch.where(choice_B < shorter, _uniform(below_B, 1, max(low - 1, 1)), _uniform(own_B, low, high))
    if above:
        highest = max(bits(high) - 1, 0)
        power_B = 2.0 ** _uniform(below_B, min(bits(max(low - 1, 1)), highest), highest)
        above_B = (power_B + power_B**own_B).long().clamp(max=high)
        lengths_B = torch.where((choice_B >= shorter) & (choice_B < shorter + above), above_B, lengths_B)
    return torch.where(choice_B >= 1 - full, high, lengths_B)


def held_out(inputs_BN: Tensor) -> Tensor:
    """Which rows training leaves out: a fixed pseudo-random sixteenth of all inputs, whatever their padding.

    It is a hash of the input, so that training can leave test examples out without a list of them.
    """
    return (input_numbers(inputs_BN) % HELD_OUT_OF == 0) & (symbols_in(inputs_BN) >= ALWAYS_TRAINED)


def is_part(inputs_BN: Tensor, part: Part) -> Tensor:
    """Which rows belong to a part: another bit of the hash says which half of all inputs may choose weights."""
    return (input_numbers(inputs_BN) // HELD_OUT_OF % 2 == 1) == (part == "selection")


def sample_held_out(
    task: Task,
    batch: int,
    length: int,
    *,
    generator: torch.Generator,
    split: str = "uniform",
    part: Part = "test",
    trained: bool = True,
    seen: Tensor | None = None,
) -> Batch:
    """Distinct examples of one length that are of one part only, and held out if inputs of this length are trained on.

    Where there are fewer than ``batch``, all that were found are given. Inputs too short to be held out may have been
    trained on, and so may those of a named split that has no others left: there the other part completes a test, so
    that a small family is tested as a whole.

    Args:
        task: The task.
        batch: How many examples at most.
        length: Their length.
        generator: Draws them.
        split: "uniform", "structured", or the name of a worst case or of a family (:meth:`riffle.tasks.Task.families`).
        part: "selection" for what chooses weights, "test" for what is reported; no uniform input belongs to both.
        trained: Whether training draws inputs of this length.
        seen: Numbers of the examples that are not to be drawn again, :func:`input_numbers`.
    """
    family = task.families().get(split)
    draws, candidates = (8, 8 * batch + 64) if trained else (1, 4 * batch + 32)  # on average twice as many as needed
    drawn = []
    for _ in range(draws):
        inputs_RN = task.sample_inputs(candidates, length, generator=generator, split="uniform" if family else split)
        drawn.append(family(inputs_RN, generator) if family else inputs_RN)
    inputs_RN = torch.cat(drawn)
    number_R = input_numbers(inputs_RN)
    sorted_R, order_R = number_R.sort(stable=True)
    first_R = torch.ones_like(sorted_R, dtype=torch.bool)
    first_R[1:] = sorted_R[1:] != sorted_R[:-1]
    fresh_R = torch.zeros_like(first_R).scatter(0, order_R, first_R)
    if seen is not None:
        fresh_R &= ~torch.isin(number_R, seen)
    own_R, unseen_R = is_part(inputs_RN, part), held_out(inputs_RN) | (not trained)
    if split in ("uniform", "structured"):
        allowed_R = own_R & (unseen_R | (symbols_in(inputs_RN) < ALWAYS_TRAINED))
    else:
        allowed_R = own_R | (part == "test")
    if seen is None and not allowed_R.any():  # there are so few inputs that all are in the other part
        allowed_R = torch.ones_like(own_R)
    rank_R = torch.where(fresh_R & allowed_R, own_R.int() + (own_R & unseen_R), -1)
    kept_R = rank_R.argsort(descending=True, stable=True)[: min(batch, int((rank_R >= 0).sum()))]
    inputs_BN = inputs_RN[kept_R]
    return Batch(inputs_BN, task.answer(inputs_BN) if len(inputs_BN) else inputs_BN)


def symbols_in(inputs_BN: Tensor) -> Tensor:
    """The number of symbols of every row that are no blanks."""
    return (inputs_BN != BLANK).sum(dim=1)


def input_numbers(inputs_BN: Tensor) -> Tensor:
    """A pseudo-random number for every row, a hash of its symbols, whatever its padding."""
    position_N = torch.arange(1, inputs_BN.shape[1] + 1, device=inputs_BN.device)
    return _scramble((inputs_BN * _scramble(position_N)).sum(dim=1))


def _uniform(random_B: Tensor, low: int, high: int) -> Tensor:
    return (low + random_B * (high - low + 1)).long().clamp(max=high)


def _scramble(x: Tensor) -> Tensor:
    """Mix the bits of 64-bit integers; multiplication wraps around."""
    for shift, factor in ((32, 0x1B873593CC9E2D51), (29, 0x2545F4914F6CDD1D), (32, 0x369DEA0F31A53F85)):
        x = (x ^ (x >> shift)) * factor
    return x ^ (x >> 31)
