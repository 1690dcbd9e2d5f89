"""What a run learns: the one thing the training loop asks of symbols and passages alike.

The precision of the matrix products: fp32, tf32 or bf16.

Small independent pieces of work side by side on a GPU.

Learning a task on symbols: a batch of every bin in each step.
"""

# B = batch, N = width of a bin, C = classes, X = symbols of all bins
from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import torch
from torch import Tensor

from riffle.config import LambadaRunConfig, ModelConfig, Precision, RunConfig
from riffle.models.base import SymbolModel, Trainable
from riffle.models.build import build
from riffle.tasks import get_task
from riffle.tasks.base import Batch
from riffle.train.data import draw_bin, held_out
from riffle.train.distributed import SINGLE_PROCESS, World
from riffle.train.evaluate import count_correct_symbols, evaluate, symbol_loss

if TYPE_CHECKING:
    from riffle.lambada.train import PointerObjective


Count = Callable[[], tuple[Tensor, Tensor]]
"""Counts the right answers of a step, and all answers."""


class Objective(Protocol):
    """Examples, their loss, and how well a model does on examples it was not trained on."""

    def build(self, config: ModelConfig, **factory: Any) -> Trainable:
        """A fresh model for it."""
        ...

    def loss(self, model: Any, generator: torch.Generator) -> tuple[Tensor, Count]:
        """The loss of fresh examples; runs inside a captured step, so it must not wait for the device."""
        ...

    def evaluate(self, model: Any) -> dict[str, float]:
        """Accuracy on held-out examples, by what is shown beside it."""
        ...


def make_objective(
    config: RunConfig, folder: Path | None = None, device: Any = "cpu", world: World = SINGLE_PROCESS
) -> Objective:
    """The subject of an experiment.

    Args:
        experiment: The configuration.
        folder: The run's folder, where a subject may keep what its model needs, such as a table of words.
        device: Where examples are drawn.
        world: The processes that train together.
    """
    if isinstance(config, LambadaRunConfig):
        return make_lambada_objective(config, folder, device, world)

    return SymbolObjective(config, world)


def make_lambada_objective(
    config: LambadaRunConfig, folder: Path | None = None, device: Any = "cpu", world: World = SINGLE_PROCESS
) -> PointerObjective:
    """The subject of an experiment on passages: most models point at a word of the passage, others name any word."""
    from riffle.lambada.train import WORD_CLASSIFIERS, PointerObjective, WordObjective

    kind = WordObjective if config.model.kind in WORD_CLASSIFIERS else PointerObjective
    return kind(config, folder, device, world)


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """The context in which a model computes in the given precision."""
    if precision == "bf16":
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return contextlib.nullcontext()


def set_matrix_precision(precision: Precision) -> None:
    """Let float32 matrix products use tf32 or not, for the whole process."""
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")


Result = TypeVar("Result")


def on_parallel_streams(calls: Sequence[Callable[[], Result]], device: torch.device) -> list[Result]:
    """The results of all calls; on a GPU all but the first run on streams of their own, in a graph on branches.

    Drawing examples takes dozens of launches that each keep a few of a GPU's multiprocessors busy for a microsecond or
    two, so that bins drawn one after the other would take longer than the network.
    """
    if device.type != "cuda":
        return [call() for call in calls]
    main = torch.cuda.current_stream(device)
    streams = [main, *(torch.cuda.Stream(device) for _ in calls[1:])]
    for stream in streams[1:]:
        stream.wait_stream(main)
    results = []
    for stream, call in zip(streams, calls, strict=True):
        with torch.cuda.stream(stream):
            results.append(call())
    for stream in streams[1:]:
        main.wait_stream(stream)
    return results


EVALUATED = 256
"""Examples of each length in an evaluation during training."""


class SymbolObjective:
    """The subject of an experiment on one of the tasks.

    Args:
        experiment: The configuration.
        world: The processes that train together.
    """

    def __init__(self, config: RunConfig, world: World = SINGLE_PROCESS) -> None:
        self.config, self.task, self.world = config, get_task(config.task), world

    def build(self, config: ModelConfig, **factory: Any) -> SymbolModel:
        """A fresh model for the task."""
        return build(config, self.task, **factory)

    def loss(self, model: SymbolModel, generator: torch.Generator) -> tuple[Tensor, Count]:
        """The loss of a fresh batch of every bin."""
        examples = self.draw(generator)
        with autocast(self.config.train.precision, generator.device):
            scores = model.forward_batches([batch.inputs for batch, _ in examples])
        logits_XC = torch.cat([logits_BNC.flatten(0, 1) for logits_BNC in scores])
        targets_X = torch.cat([batch.targets.flatten() for batch, _ in examples])
        weights_X = torch.cat([weights_BN.flatten() for _, weights_BN in examples])
        loss = (symbol_loss(logits_XC, targets_X, self.config.train.label_smoothing) * weights_X).sum()
        return loss, lambda: count_correct_symbols(logits_XC.detach().argmax(dim=-1), targets_X)

    def draw(self, generator: torch.Generator) -> list[tuple[Batch, Tensor]]:
        """A batch of every bin, and the weight of each of its positions in the step's loss.

        Bins count alike, and so do the examples of a bin that are not held out and the positions of an example.
        Every rank draws the examples of all, which are the same everywhere, and keeps its own.
        """
        data, ranks = self.config.data, self.world.size

        def draw_one(index: int) -> tuple[Batch, Tensor]:
            rows = data.batch * ranks
            shares = data.shorter, data.full, data.worst
            batch = draw_bin(self.task, data.bins, index, rows, *shares, generator=generator)
            trained_B = (~held_out(batch.inputs)).float()
            weights_B = trained_B * ranks / (trained_B.sum().clamp(min=1) * (data.bins[index] * len(data.bins)))
            inputs_BN, targets_BN, own_B = self.world.shard_rows(*batch, weights_B)
            return Batch(inputs_BN, targets_BN), own_B[:, None].expand(inputs_BN.shape)

        return on_parallel_streams([partial(draw_one, index) for index in range(len(data.bins))], generator.device)

    def evaluate(self, model: SymbolModel) -> dict[str, float]:
        """Symbol accuracy by length."""
        lengths, trained = self.config.train.evaluate_lengths, max(self.config.data.bins)
        scores = evaluate(model, self.task, lengths, examples=EVALUATED, trained_length=trained)
        return {str(score.length): score.symbol_accuracy for score in scores}
