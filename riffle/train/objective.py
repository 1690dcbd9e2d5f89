"""Objectives: the examples, the loss and the evaluation of a run, which the training loop is independent of."""

# B = batch, N = padded length of a bin, C = classes, X = symbols of all bins
from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from riffle.config import ModelConfig, Precision, RunConfig
from riffle.models.base import SymbolModel, Trainable
from riffle.models.build import build
from riffle.tasks import get_task
from riffle.tasks.task import BLANK, Batch
from riffle.train.data import held_out, move_right, sample_bin
from riffle.train.distributed import SINGLE_PROCESS, RankGroup
from riffle.train.evaluate import count_correct_symbols, evaluate, symbol_loss

EVALUATION_EXAMPLES = 256
"""Examples of each length in an evaluation during training."""
CountCorrect = Callable[[], tuple[Tensor, Tensor]]
"""Counts the correct answers of a batch, and all answers."""
Result = TypeVar("Result")


class Objective(Protocol):
    """What a run learns."""

    def build(self, config: ModelConfig, **factory: Any) -> Trainable:
        """A model with initial weights."""

    def loss(self, model: Any, generator: torch.Generator) -> tuple[Tensor, CountCorrect]:
        """The loss of a fresh batch; part of a captured CUDA graph, so it must not wait for the device."""

    def evaluate(self, model: Any) -> dict[str, float]:
        """Accuracy on held-out examples, by the name under which it is logged."""


class SymbolObjective:
    """Learn one of the tasks on symbols."""

    def __init__(self, config: RunConfig, ranks: RankGroup = SINGLE_PROCESS) -> None:
        self.config, self.task, self.ranks = config, get_task(config.task), ranks

    def build(self, config: ModelConfig, **factory: Any) -> SymbolModel:
        """A model with initial weights."""
        return build(config, self.task, **factory)

    def loss(self, model: SymbolModel, generator: torch.Generator) -> tuple[Tensor, CountCorrect]:
        """The loss of a fresh batch of every bin."""
        examples = self.sample(generator)
        with autocast(self.config.train.precision, generator.device):
            logits = model.forward_batches([batch.inputs for batch, _ in examples])
        logits_XC = torch.cat([logits_BNC.flatten(0, 1) for logits_BNC in logits])
        targets_X = torch.cat([batch.targets.flatten() for batch, _ in examples])
        weights_X = torch.cat([weights_BN.flatten() for _, weights_BN in examples])
        loss = (symbol_loss(logits_XC, targets_X, self.config.train.label_smoothing) * weights_X).sum()
        return loss, lambda: count_correct_symbols(logits_XC.detach().argmax(dim=-1), targets_X)

    def sample(self, generator: torch.Generator) -> list[tuple[Batch, Tensor]]:
        """A batch of every bin, and the weight of each of its positions in the loss.

        Bins have equal weight, and so have the examples of a bin that are not held out and the positions of an example,
        but for those whose target is blank, see ``train.blank_weight``. Every rank samples the examples of all ranks,
        which are equal on all, and keeps its own rows.
        """
        data, size, blank = self.config.data, self.ranks.size, self.config.train.blank_weight

        def one_bin(index: int) -> tuple[Batch, Tensor]:
            batch = sample_bin(self.task, data, index, data.batch * size, generator=generator)
            # Examples that are drawn once are none of those that are held out.
            trained_B = torch.ones_like(batch.inputs[:, 0]) if data.examples else ~held_out(batch.inputs)
            if data.offset:
                batch = move_right(batch, data.offset, generator=generator)
            weights_BN = trained_B.float()[:, None].expand(batch.targets.shape)
            weights_BN = weights_BN if blank == 1 else torch.where(batch.targets == BLANK, blank, 1.0) * weights_BN
            weights_BN = weights_BN * (size / len(data.bins)) / weights_BN.sum().clamp(min=1)
            inputs_BN, targets_BN, own_BN = self.ranks.shard_rows(*batch, weights_BN)
            return Batch(inputs_BN, targets_BN), own_BN

        return on_parallel_streams([partial(one_bin, index) for index in range(len(data.bins))], generator.device)

    def evaluate(self, model: SymbolModel) -> dict[str, float]:
        """Symbol accuracy by length; with structured examples those, too, and first the mean of all."""
        data, lengths = self.config.data, self.config.train.evaluate_lengths
        splits = ["uniform", "structured"] if data.structure else ["uniform"]
        scores = evaluate(
            model,
            self.task,
            lengths,
            splits=splits,
            examples=EVALUATION_EXAMPLES,
            trained_length=data.longest_input,
            part="selection",
        )
        names = {"uniform": "{}", "structured": "structured/{}"}
        accuracy = {names[score.split].format(score.length): score.symbol_accuracy for score in scores}
        return {"mean": sum(accuracy.values()) / len(accuracy), **accuracy} if data.structure else accuracy


OBJECTIVES: dict[type[RunConfig], Callable[[Any, Path | None, Any, RankGroup], Objective]] = {
    RunConfig: lambda config, folder, device, ranks: SymbolObjective(config, ranks)
}
"""Objectives by the class of a run's configuration. :mod:`riffle.lambada.train` adds its own when it is imported."""


def make_objective(
    config: RunConfig, folder: Path | None = None, device: Any = "cpu", ranks: RankGroup = SINGLE_PROCESS
) -> Objective:
    """The objective of a run, whose folder may keep what the model needs, such as a vocabulary."""
    if type(config) not in OBJECTIVES:
        raise ValueError(f"runs of {config.task!r} need their objective: import riffle.{config.task}.train first")
    return OBJECTIVES[type(config)](config, folder, device, ranks)


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """The context in which a model computes in the given precision."""
    if precision == "bf16":
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return contextlib.nullcontext()


def set_matrix_precision(precision: Precision) -> None:
    """Allow or forbid tf32 in float32 matrix products, for the whole process."""
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")


def on_parallel_streams(calls: Sequence[Callable[[], Result]], device: torch.device) -> list[Result]:
    """The results of all calls, which on a GPU run on parallel streams (parallel branches of a CUDA graph).

    Sampling examples takes dozens of launches that occupy a few multiprocessors for a microsecond or two each; bins
    sampled one after the other would take longer than the network.
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
