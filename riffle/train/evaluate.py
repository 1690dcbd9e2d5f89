"""Loss and accuracy of models on symbols, as the paper counts them, and what an evaluation takes."""

# B = batch, N = length, C = classes
from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple, TypedDict

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from riffle.files import read_json
from riffle.models.base import SymbolModel
from riffle.nn.lengths import pad_to
from riffle.tasks.task import BLANK, Task, trim

if TYPE_CHECKING:
    from riffle.train.data import Part
    from riffle.train.run import Run

CELLS_PER_BATCH = {"cpu": 2**14, "cuda": 2**18}
"""Cells that go through the model at once, so that long inputs take no more memory than short ones."""
SHORTEST_PROBE, MIN_PROBE_SECONDS, PROBES = 8, 0.3, 3
"""The length that a measurement of time starts with, its shortest time, and how many are made for the least."""


def symbol_loss(logits: Tensor, targets: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Softmax cross entropy of every symbol, in the shape of ``targets``, computed in float32 at least."""
    logits = logits if logits.dtype == torch.float64 else logits.float()
    loss = F.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="none", label_smoothing=label_smoothing)
    return loss.view_as(targets)


class CorrectCounts(NamedTuple):
    """Correct answers and all answers, as tensors that can be added up without waiting for the device."""

    right: Tensor
    """Correct symbols, where the target or the output is not blank."""
    symbols: Tensor
    """All such symbols."""
    right_sequences: Tensor
    """Rows without a wrong symbol."""
    sequences: Tensor
    """All rows."""


def count_correct(outputs_BN: Tensor, targets_BN: Tensor) -> CorrectCounts:
    """Compare output symbols with targets at the positions where either is not blank."""
    perfect_B = (outputs_BN == targets_BN).all(dim=1)
    rows = torch.full_like(perfect_B.sum(), len(perfect_B))
    return CorrectCounts(*count_correct_symbols(outputs_BN, targets_BN), perfect_B.sum(), rows)


def count_correct_symbols(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The correct symbols and all symbols where target or output is not blank; for tensors of any shape."""
    matters = (targets != BLANK) | (outputs != BLANK)
    return ((outputs == targets) & matters).sum(), matters.sum()


@dataclass(frozen=True)
class Score:
    """Accuracy at one length."""

    length: int
    split: str
    """"uniform", "structured", or the name of a worst case or a family of the task."""
    examples: int
    """Distinct inputs that were tested; all there are where fewer than asked."""
    symbol_accuracy: float
    """Fraction of correct symbols over all positions where target or output is not blank: the paper's metric."""
    sequence_accuracy: float
    """Fraction of outputs without a wrong symbol."""
    filled: bool = False
    """Whether inputs were filled up first, as ``riffle solve`` does (:meth:`riffle.tasks.Task.fill`)."""
    held_out: int | None = None
    """How many of the inputs training never drew; None where that was not counted."""


BETWEEN = (0.55, 0.6, 0.8, 0.95)
"""Shares of a power of two at which accuracy is measured beside the power itself."""


FACTORS = (1, 8, 64)
"""Multiples of the trained length at which families of structured inputs are tested."""


def with_between(power: int) -> list[int]:
    """A power of two, after the lengths between its half and itself that are tested with it.

    >>> with_between(64), with_between(8)
    ([35, 38, 51, 61, 64], [5, 6, 8])
    """
    near = sorted({round(share * power) for share in BETWEEN})
    return [*(length for length in near if power < 2 * length < 2 * power), power]


def tested_between(scores: Sequence[Score], power: int) -> list[Score]:
    """The scores of lengths between a power of two and its half."""
    is_power = power & (power - 1) == 0
    return [score for score in scores if is_power and power < 2 * score.length < 2 * power]


def least_accurate(scores: Sequence[Score]) -> Score:
    """The score with the fewest whole sequences right, of equal ones with the fewest symbols."""
    return min(scores, key=lambda score: (score.sequence_accuracy, score.symbol_accuracy))


RIGHT = 0.99
"""The share of whole sequences right from which on a length counts as learned."""


class Evaluation(TypedDict):
    """What evaluation.json holds at least."""

    scores: list[Score]


def read_scores(run: Run) -> list[Score]:
    """The scores of a run's evaluation, an empty list if it has none."""
    path, remedy = run.folder / "evaluation.json", "make it again with riffle eval"
    evaluation: Evaluation | None = read_json(path, Evaluation, what="evaluation of a run", remedy=remedy)
    return evaluation["scores"] if evaluation else []


def by_length(task: Task, scores: Sequence[Score]) -> dict[int, Score]:
    """The scores of uniform examples as ``riffle solve`` asks them, the shortest first.

    Of a task that fills its inputs up, the bare network counts at powers of two only: nobody asks it elsewhere.
    """
    fills = type(task).fill is not Task.fill
    uniform = [score for score in scores if score.split == "uniform"]
    bare = {s.length: s for s in uniform if not (s.filled or (fills and s.length & (s.length - 1)))}
    asked = bare | {score.length: score for score in uniform if score.filled}
    return dict(sorted(asked.items()))


def right_up_to(task: Task, scores: Sequence[Score]) -> int | None:
    """The longest tested length up to which 99% of whole sequences are right; 0 for none, None without tests."""
    asked = by_length(task, scores)
    right = [0, *takewhile(lambda length: asked[length].sequence_accuracy >= RIGHT, asked)]
    return right[-1] if asked else None


@torch.inference_mode()
def evaluate(
    model: nn.Module,
    task: Task,
    lengths: Sequence[int],
    *,
    splits: Sequence[str] = ("uniform",),
    examples: int = 1024,
    trained_length: int = 0,
    seed: int = 1,
    part: Part = "test",
    fill: Callable[[list[int]], list[int]] | None = None,
    on_progress: Callable[[int], None] = lambda cells: None,
) -> list[Score]:
    """Score a model on fresh examples of every length and split, symbols and whole sequences.

    >>> from riffle.tasks import get_task
    >>> from riffle.train.run import Run
    >>> from riffle.train.shipped import SHIPPED
    >>> run, task = Run(SHIPPED / "reverse"), get_task("reverse")
    >>> scores = evaluate(run.model(), task, [64, 300], splits=["uniform", *task.families()], examples=2)
    >>> min(score.sequence_accuracy for score in scores if score.length == 64)
    1.0

    Args:
        model: Maps symbols to logits; its training mode is left unchanged.
        task: The task.
        lengths: Input lengths, between powers of two as well as at them (:func:`with_between`).
        splits: "uniform", "structured", names of :attr:`Task.splits` and of :meth:`Task.families`.
        examples: Examples for each length and split, all distinct; where there are fewer inputs, all of them.
        trained_length: Up to this length, uniform and structured examples are taken from those held out of training,
            and those of a named split as far as there are any.
        seed: Seed of the examples.
        part: "test" for what is reported; what chooses weights uses "selection", and no input belongs to both.
        fill: Makes of an input what the network is asked, :meth:`riffle.train.run.Run.padded` to score the answers of
            ``riffle solve``; by default the bare network reads the inputs as they are.
        on_progress: Called with the number of cells just scored.
    """
    from riffle.train.data import held_out, input_numbers, sample_held_out

    known = ("uniform", "structured", *task.splits, *task.families())
    for split in splits:
        if split not in known:
            raise ValueError(f"task {task.name!r} has no split {split!r}; it has {', '.join(known)}")
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    scores = []
    for split in splits:
        for length in lengths:
            generator = torch.Generator(device).manual_seed(seed * 1_000_003 + length)
            rows, trained = batch_rows(length, examples, device), length <= trained_length
            total = torch.zeros(5, dtype=torch.int64, device=device)
            seen, asked = torch.zeros(0, dtype=torch.int64, device=device), 0
            while asked < examples:
                size = min(rows, examples - asked)
                inputs_BN, targets_BN = sample_held_out(
                    task, size, length, generator=generator, split=split, part=part, trained=trained,
                    seen=seen if asked else None,
                )  # fmt: skip
                if not len(inputs_BN):  # all inputs of this kind have been tested
                    on_progress((examples - asked) * length)
                    break
                outputs_BN = answer(model, task, inputs_BN, fill)
                targets_BN = pad_to(targets_BN, outputs_BN.shape[1])
                unseen = held_out(inputs_BN).sum() if trained else torch.tensor(len(inputs_BN), device=device)
                total += torch.stack([*count_correct(outputs_BN, targets_BN), unseen])
                seen, asked = torch.cat([seen, input_numbers(inputs_BN)]), asked + len(inputs_BN)
                on_progress(len(inputs_BN) * length)
            right, symbols, right_sequences, sequences, unseen_inputs = total.tolist()
            symbol_accuracy = right / symbols if symbols else 1.0  # so short that every target is blank
            accuracies = (symbol_accuracy, right_sequences / sequences)
            scores.append(Score(length, split, sequences, *accuracies, fill is not None, unseen_inputs))
    model.train(was_training)
    return scores


def answer(
    model: nn.Module, task: Task, inputs_BN: Tensor, fill: Callable[[list[int]], list[int]] | None = None
) -> Tensor:
    """The model's output symbols, at least as wide as the inputs; these are filled up first if ``fill`` is given."""
    if fill is None:
        return model(inputs_BN).argmax(dim=-1)
    inputs = inputs_BN.tolist()
    filled = pad_rows([fill(symbols) for symbols in inputs])
    outputs = model(torch.tensor(filled, device=inputs_BN.device)).argmax(dim=-1).tolist()
    answers = [task.unfill(*each) for each in zip(outputs, inputs, filled, strict=True)]
    return torch.tensor(pad_rows([*answers, inputs[0]])[:-1], device=inputs_BN.device)


def pad_rows(rows: Sequence[list[int]]) -> list[list[int]]:
    """Rows with blanks up to the length of the longest."""
    width = max(map(len, rows))
    return [row + [BLANK] * (width - len(row)) for row in rows]


@torch.inference_mode()
def predict(model: nn.Module, symbols: list[int]) -> list[int]:
    """The model's output for one input, without trailing blanks."""
    was_training = model.training
    model.eval()
    inputs_BN = torch.tensor([symbols or [BLANK]], device=next(model.parameters()).device)
    output = model(inputs_BN).argmax(dim=-1)[0].tolist()
    model.train(was_training)
    return trim(output)


def batch_rows(length: int, examples: int, device: torch.device) -> int:
    """The number of examples that go through the model at once."""
    cells = CELLS_PER_BATCH.get(device.type, CELLS_PER_BATCH["cuda"])
    return max(1, min(examples, cells // length))


@torch.inference_mode()
def estimate_seconds(model: SymbolModel, lengths: Sequence[int], examples: int) -> float:
    """Seconds for all examples of these lengths, extrapolated from shorter ones by the power law between two of them.

    The shortest of several measurements counts: other programs of the machine can only slow one down.
    """
    device = next(model.parameters()).device

    def probe(length: int) -> float:
        """Seconds for one example, from a batch of them."""
        symbols_BN = torch.ones(batch_rows(length, examples, device), length, dtype=torch.int64, device=device)
        times = []
        for _ in range(PROBES):
            start = time.perf_counter()
            model(symbols_BN).argmax(dim=-1).cpu()  # waits for the device
            times.append(time.perf_counter() - start)
        return min(times) / len(symbols_BN)

    length, power = SHORTEST_PROBE, 1.0
    seconds = probe(length)
    while 2 * length <= max(lengths) and seconds * batch_rows(length, examples, device) < MIN_PROBE_SECONDS:
        length, before = 2 * length, seconds
        seconds = probe(length)
        power = min(max(math.log2(seconds / before), 1.0), 2.0)
    return sum(examples * seconds * (each / length) ** power for each in lengths)
