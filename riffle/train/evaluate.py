"""Loss and accuracy, as the paper counts them.

Accuracy over lengths, and the answer to one input.

Whether a model can be run at a length in a time one would wait, asked before it is tried.
"""

# B = batch, N = length, C = classes, X = any number of symbols
# B = batch, N = length
from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from riffle.environment import available_bytes
from riffle.models.base import SymbolModel
from riffle.quantities import format_wait
from riffle.tasks.base import BLANK, Task
from riffle.train.data import sample_held_out


def symbol_loss(logits_XC: Tensor, targets_X: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Softmax cross entropy of every symbol, at least in float32."""
    logits_XC = logits_XC if logits_XC.dtype == torch.float64 else logits_XC.float()
    return F.cross_entropy(logits_XC, targets_X, reduction="none", label_smoothing=label_smoothing)


def sequence_loss(logits_BNC: Tensor, targets_BN: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Softmax cross entropy of every row, averaged over all its positions, blanks included."""
    loss_X = symbol_loss(logits_BNC.flatten(0, 1), targets_BN.flatten(), label_smoothing)
    return loss_X.view_as(targets_BN).mean(dim=1)


class CorrectCounts(NamedTuple):
    """Right and wrong answers, as tensors that can be added up without waiting for the device."""

    right: Tensor
    """Right symbols, where the target or the output is not blank."""
    symbols: Tensor
    """All such symbols."""
    right_sequences: Tensor
    """Rows without a wrong symbol."""
    sequences: Tensor
    """Rows."""


def count_correct(logits_BNC: Tensor, targets_BN: Tensor) -> CorrectCounts:
    """Compare outputs with targets over the positions where either is not blank."""
    outputs_BN = logits_BNC.argmax(dim=-1)
    right_symbols, symbols = count_correct_symbols(outputs_BN, targets_BN)
    perfect_B = (outputs_BN == targets_BN).all(dim=1)
    return CorrectCounts(right_symbols, symbols, perfect_B.sum(), torch.full_like(perfect_B.sum(), len(perfect_B)))


def count_correct_symbols(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """How many symbols are right, and how many there are, where target or output is not blank; any shape."""
    matters = (targets != BLANK) | (outputs != BLANK)
    return ((outputs == targets) & matters).sum(), matters.sum()


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
) -> CorrectCounts:
    size = rows_at_once(length, examples, generator.device)
    total = CorrectCounts(*torch.zeros(4, dtype=torch.int64, device=generator.device).unbind())
    for start in range(0, examples, size):
        rows = min(size, examples - start)
        if split == "uniform" and only_held_out:
            batch = sample_held_out(task, rows, length, generator=generator)
        else:
            batch = task.sample(rows, length, generator=generator, split=split)
        counts = count_correct(model(batch.inputs), batch.targets)
        total = CorrectCounts(*(a + b for a, b in zip(total, counts, strict=True)))
        on_progress(rows)
    return total


LONGEST = 3600.0
"""Seconds that all examples of one length may take."""
SURE = 1e12
"""So many operations take no hour on any machine."""
PROBE = 0.1
"""Seconds that a short run takes at least from which a long one is estimated."""


def refuse_too_heavy(model: SymbolModel, lengths: Sequence[int], examples: int) -> None:
    """Raise a ``ValueError`` with the estimated time and memory where a length takes too much of either."""
    device = next(model.parameters()).device
    for length in lengths:
        rows = rows_at_once(length, examples, device)
        space = rows * model.memory(length)
        free = available_bytes(device)
        too_large = space > free
        heavy = examples * model.operations(length) > SURE
        if not (too_large or heavy):
            continue
        seconds = estimate_seconds(model, length, examples)
        if too_large or seconds > LONGEST:
            what = "would run out of memory" if too_large else "would take too long"
            raise ValueError(
                f"{type(model).__name__} at length {length} {what}: about {format_wait(seconds)} for "
                f"{examples} examples "
                f"and "
                f"{space / 1e9:,.1f} GB of memory, of which {free / 1e9:,.1f} GB are free; choose shorter lengths or "
                "fewer examples, or insist with --force"
            )


@torch.inference_mode()
def estimate_seconds(model: SymbolModel, length: int, examples: int) -> float:
    """Seconds for the examples of a length, from a run of a shorter one and the operations of both."""
    device = next(model.parameters()).device
    size, seconds, work = 4, 0.0, 1.0
    while seconds < PROBE and 2 * size <= length:
        size *= 2
        rows = rows_at_once(size, examples, device)
        symbols_BN = torch.ones(rows, size, dtype=torch.int64, device=device)
        seconds = min(_seconds(model, symbols_BN) for _ in range(3))  # the first run sets the libraries up
        work = rows * model.operations(size)
    return seconds * examples * model.operations(length) / work


def _seconds(model: SymbolModel, symbols_BN: Tensor) -> float:
    start = time.perf_counter()
    model(symbols_BN).argmax(dim=-1).cpu()  # waits for the device
    return time.perf_counter() - start
