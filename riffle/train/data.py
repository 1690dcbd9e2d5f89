"""Examples for a training step: bins of lengths, and the line between training and test examples."""

# B = batch, N = width of a bin
from __future__ import annotations

import torch
from torch import Tensor

from riffle.tasks.base import BLANK, Batch, Task

HELD_OUT_OF = 16
"""One example in this many is held out of training."""
ALWAYS_TRAINED = 12
"""Examples with fewer symbols are so few that all of them are trained on."""


def draw_lengths(
    batch: int, low: int, high: int, shorter: float, full: float = 0.0, *, generator: torch.Generator
) -> Tensor:
    """Lengths of a bin's examples: uniform in ``low..high``, some uniform below ``low``, some of length ``high``."""
    own_B, below_B, choice_B = torch.rand(3, batch, generator=generator, device=generator.device)
    shorter = shorter if low > 1 else 0.0
    lengths_B = torch.where(choice_B < shorter, _uniform(below_B, 1, max(low - 1, 1)), _uniform(own_B, low, high))
    return torch.where(choice_B >= 1 - full, high, lengths_B)


def draw_bin(
    task: Task,
    bins: tuple[int, ...],
    index: int,
    batch: int,
    shorter: float,
    full: float = 0.0,
    worst: float = 0.0,
    *,
    generator: torch.Generator,
) -> Batch:
    """One training batch for bin ``index``: examples that fit it and no smaller bin, and a few shorter ones."""
    low = bins[index - 1] + 1 if index else 1
    lengths_B = draw_lengths(batch, low, bins[index], shorter, full, generator=generator)
    inputs_BN = task.draw(lengths_B, bins[index], generator=generator)
    if worst:
        inputs_BN = worsen(task, inputs_BN, worst, generator=generator)
    return Batch(inputs_BN, task.answer(inputs_BN))


def worsen(task: Task, inputs_BN: Tensor, share: float, *, generator: torch.Generator) -> Tensor:
    """Turn a share of inputs into worst cases of the same lengths, each kind as often as the others."""
    chance_B1 = torch.rand((inputs_BN.shape[0], 1), generator=generator, device=generator.device) / share
    kind_B1 = (chance_B1 * len(task.splits)).long()  # beyond the last kind with a chance of 1 - share
    for kind, split in enumerate(task.splits.values()):
        inputs_BN = torch.where(kind_B1 == kind, split(inputs_BN, generator), inputs_BN)
    return inputs_BN


def held_out(inputs_BN: Tensor) -> Tensor:
    """Which rows belong to the test set: a fixed pseudo-random sixteenth of all inputs, whatever their padding.

    A property of the example itself, so that training can leave test examples out without keeping a list of them.
    """
    position_N = torch.arange(1, inputs_BN.shape[1] + 1, device=inputs_BN.device)
    hash_B = (inputs_BN * _scramble(position_N)).sum(dim=1)
    long_enough_B = (inputs_BN != BLANK).sum(dim=1) >= ALWAYS_TRAINED
    return (_scramble(hash_B) % HELD_OUT_OF == 0) & long_enough_B


def sample_held_out(task: Task, batch: int, length: int, *, generator: torch.Generator, rounds: int = 8) -> Batch:
    """Test examples of one length: held-out ones, as far as the space of inputs has them."""
    # Twice as many held-out candidates as asked for, on average, and some more, which a small batch needs.
    candidates = 4 * batch + 32
    inputs_RN = torch.cat([task.sample(candidates, length, generator=generator).inputs for _ in range(rounds)])
    first = held_out(inputs_RN).int().argsort(descending=True, stable=True)[:batch]
    inputs_BN = inputs_RN[first]
    return Batch(inputs_BN, task.answer(inputs_BN))


def _uniform(random_B: Tensor, low: int, high: int) -> Tensor:
    return (low + random_B * (high - low + 1)).long().clamp(max=high)


def _scramble(x: Tensor) -> Tensor:
    """Mix the bits of 64-bit integers; multiplication wraps around."""
    for shift, factor in ((32, 0x1B873593CC9E2D51), (29, 0x2545F4914F6CDD1D), (32, 0x369DEA0F31A53F85)):
        x = (x ^ (x >> shift)) * factor
    return x ^ (x >> 31)
