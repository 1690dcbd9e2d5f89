"""Where errors fall as sequences grow."""

# B = batch, N = length
from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from riffle.tasks.base import BLANK, Task
from riffle.train.data import sample_held_out
from riffle.train.evaluate import CELLS_PER_BATCH, CELLS_PER_BATCH_DEVICE


def errors_over_length(
    model: nn.Module,
    task: Task,
    lengths: Sequence[int],
    *,
    bins: int = 32,
    examples: int = 256,
    trained_length: int = 0,
    seed: int = 1,
    on_progress: Callable[[int], None] = lambda examples: None,
) -> Tensor:
    """Where errors fall as sequences grow: the share of wrong symbols by relative position, ``[lengths, bins]``.

    Counted where target or output is not blank, as the paper does; NaN where both always are. A length shorter than
    ``bins`` repeats each of its positions over several of them.

    Args:
        model: Maps symbols to scores; its mode is left as it was.
        task: What it should solve.
        lengths: Input lengths.
        bins: Parts into which every length is divided.
        examples: Examples for each length.
        trained_length: Up to here, examples are taken from those held out of training.
        seed: Seed of the examples.
        on_progress: Called with the number of examples just scored.
    """
    device = next(model.parameters()).device
    cells = CELLS_PER_BATCH.get(device.type, CELLS_PER_BATCH_DEVICE)
    was_training = model.training
    model.eval()
    rates = []
    with torch.inference_mode():
        for length in lengths:
            generator = torch.Generator(device).manual_seed(seed * 1_000_003 + length)
            draw = sample_held_out if length <= trained_length else type(task).sample
            wrong_N, counted_N = torch.zeros(2, length, dtype=torch.int64, device=device).unbind()
            for start in range(0, examples, max(1, cells // length)):
                rows = min(max(1, cells // length), examples - start)
                inputs_BN, targets_BN = draw(task, rows, length, generator=generator)
                outputs_BN = model(inputs_BN).argmax(dim=-1)
                wrong_N += (outputs_BN != targets_BN).sum(dim=0)
                counted_N += ((outputs_BN != BLANK) | (targets_BN != BLANK)).sum(dim=0)
                on_progress(rows)
            rates.append(_binned(wrong_N, bins) / _binned(counted_N, bins))
    model.train(was_training)
    return torch.stack(rates).cpu()


def _binned(counts_N: Tensor, bins: int) -> Tensor:
    """Sums over ``bins`` equal parts; parts of less than a position get the position they lie in."""
    length = len(counts_N)
    starts = [part * length // bins for part in range(bins)]
    ends = [max(start + 1, (part + 1) * length // bins) for part, start in enumerate(starts)]
    total = F.pad(counts_N.cumsum(0), (1, 0))
    return (total[ends] - total[starts]).double()
