"""Accuracy over lengths, and the answer to one input."""

# B = batch, N = length
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from riffle.tasks.base import BLANK, Task
from riffle.train.data import sample_held_out
from riffle.train.metrics import Counts, count

CELLS_PER_BATCH = {"cpu": 2**14}
"""Cells that go through the model at once, so that long lengths take no more memory than short ones."""
CELLS_PER_BATCH_DEVICE = 2**20


@dataclass(frozen=True)
class Score:
    """Accuracy at one length."""

    length: int
    """Length of the inputs."""
    split: str
    """"uniform" or a worst case of the task."""
    examples: int
    """How many were tried."""
    symbol_accuracy: float
    """Right symbols, pooled over all positions where target or output is not blank: the paper's metric."""
    sequence_accuracy: float
    """Outputs without a single wrong symbol."""


def evaluate(
    model: nn.Module,
    task: Task,
    lengths: Sequence[int],
    *,
    splits: Sequence[str] = ("uniform",),
    examples: int = 1024,
    trained_length: int = 0,
    seed: int = 1,
    on_progress: Callable[[int], None] = lambda examples: None,
) -> list[Score]:
    """Score a model on fresh examples of every length and split.

    Args:
        model: Maps symbols to scores; its mode is left as it was.
        task: What it should solve.
        lengths: Input lengths.
        splits: "uniform" and names of :attr:`Task.splits`.
        examples: Examples for each length and split.
        trained_length: Up to here, uniform examples are taken from those held out of training.
        seed: Seed of the examples.
        on_progress: Called with the number of examples just scored.
    """
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    scores = []
    with torch.inference_mode():
        for split in splits:
            for length in lengths:
                generator = torch.Generator(device).manual_seed(seed * 1_000_003 + length)
                counts = _count(model, task, length, split, examples, length <= trained_length, generator, on_progress)
                right, symbols, perfect, sequences = (int(number) for number in counts)
                # Inputs so short that every answer is blank leave nothing to get wrong.
                symbol_accuracy = right / symbols if symbols else 1.0
                scores.append(Score(length, split, sequences, symbol_accuracy, perfect / sequences))
    model.train(was_training)
    return scores


def predict(model: nn.Module, symbols: list[int]) -> list[int]:
    """The model's output for one input, without trailing blanks."""
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    with torch.inference_mode():
        output = model(torch.tensor([symbols or [BLANK]], device=device)).argmax(dim=-1)[0].tolist()
    model.train(was_training)
    return strip(output)


def strip(symbols: Iterable[int]) -> list[int]:
    """The symbols without trailing blanks."""
    out = list(symbols)
    while out and out[-1] == BLANK:
        out.pop()
    return out


def rows_at_once(length: int, examples: int, device: torch.device) -> int:
    """Examples that go through the model at once."""
    cells = CELLS_PER_BATCH.get(device.type, CELLS_PER_BATCH_DEVICE)
    return max(1, min(examples, cells // length))


def _count(
    model: nn.Module,
    task: Task,
    length: int,
    split: str,
    examples: int,
    only_held_out: bool,
    generator: torch.Generator,
    on_progress: Callable[[int], None],
) -> Counts:
    size = rows_at_once(length, examples, generator.device)
    total = Counts(*torch.zeros(4, dtype=torch.int64, device=generator.device).unbind())
    for start in range(0, examples, size):
        rows = min(size, examples - start)
        if split == "uniform" and only_held_out:
            batch = sample_held_out(task, rows, length, generator=generator)
        else:
            batch = task.sample(rows, length, generator=generator, split=split)
        counts = count(model(batch.inputs), batch.targets)
        total = Counts(*(a + b for a, b in zip(total, counts, strict=True)))
        on_progress(rows)
    return total
