"""Objectives: the examples, the loss and the evaluation of a run, which the training loop is independent of."""

# S = steps, B = batch, R = rows of S batches, N = padded length of a bin, C = classes, X = symbols of all bins
from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import torch
from torch import Tensor

from riffle.config import BaseModelConfig, LambadaRunConfig, Precision, RunConfig, TextRunConfig
from riffle.models.base import SymbolModel, Trainable
from riffle.models.build import build
from riffle.registry import Registry, load
from riffle.schema import parse
from riffle.tasks import get_task
from riffle.tasks.task import BLANK
from riffle.train.evaluate import count_correct_symbols, evaluate, symbol_loss

if TYPE_CHECKING:
    from riffle.train.distributed import RankGroup

EVALUATION_EXAMPLES = 256
"""Examples of each length in an evaluation during training."""
Examples = tuple[Tensor, ...]
"""The examples of a step, or of several steps with these as first dimension."""
CountCorrect = Callable[[], tuple[Tensor, Tensor]]
"""Counts the correct answers of a batch, and all answers."""
Result = TypeVar("Result")
SAMPLERS: Registry[Callable[..., Any]] = Registry("option", {})
"""What draws a batch in place of :func:`riffle.train.data.sample_bin`, by the option that asks for it."""


class Objective(Protocol):
    """What a run learns."""

    def build(self, config: BaseModelConfig, **factory: Any) -> Trainable:
        """A model with initial weights."""

    def draw(self, steps: int, generator: torch.Generator) -> Examples:
        """Fresh examples for several steps; captured in a CUDA graph, so it must not wait for the device."""

    def loss(self, model: Any, examples: Examples) -> tuple[Tensor, CountCorrect]:
        """The loss of the examples of one step; captured as well."""

    def evaluate(self, model: Any) -> dict[str, float]:
        """Accuracy on held-out examples, by the name under which it is logged."""


class SymbolObjective:
    """Learn one of the tasks on symbols."""

    def __init__(
        self, config: RunConfig, folder: Path | None = None, device: Any = "cpu", ranks: RankGroup | None = None
    ) -> None:
        self.config, self.task, self.ranks = config, get_task(config.task), ranks

    def build(self, config: BaseModelConfig, **factory: Any) -> SymbolModel:
        """A model with initial weights."""
        return build(config, self.task, **factory)

    def draw(self, steps: int, generator: torch.Generator) -> Examples:
        """Inputs, targets and weights in the loss of a batch of every bin, one bin after the other, ``[S, X]``.

        Bins have equal weight, and so have the examples of a bin that are not held out and the positions of an example,
        but for those whose target is blank, see ``train.blank_weight``. Every rank draws the examples of all ranks,
        which are equal on all, and keeps its own rows.
        """
        from riffle.train.data import held_out, move_right, sample_bin
        from riffle.train.distributed import SINGLE_PROCESS

        data, ranks, blank = self.config.data, self.ranks or SINGLE_PROCESS, self.config.train.blank_weight
        size, sample = ranks.size, SAMPLERS["data.examples"] if data.examples else sample_bin

        def one_bin(index: int) -> tuple[Tensor, ...]:
            batch = sample(self.task, data, index, steps * data.batch * size, generator=generator)
            # A fixed training set has no held-out examples.
            trained_R = torch.ones_like(batch.inputs[:, 0]) if data.examples else ~held_out(batch.inputs)
            if data.offset:
                batch = move_right(batch, data.offset, generator=generator)
            weights_RN = trained_R.float()[:, None].expand(batch.targets.shape)
            weights_RN = weights_RN if blank == 1 else torch.where(batch.targets == BLANK, blank, 1.0) * weights_RN
            inputs_SBN, targets_SBN, weights_SBN = (x_RN.unflatten(0, (steps, -1)) for x_RN in (*batch, weights_RN))
            total_S11 = weights_SBN.sum(dim=(1, 2), keepdim=True).clamp(min=1)
            weights_SBN = weights_SBN * (size / len(data.bins)) / total_S11
            return tuple(ranks.shard(x, dim=1).flatten(1) for x in (inputs_SBN, targets_SBN, weights_SBN))

        bins = on_parallel_streams([partial(one_bin, index) for index in range(len(data.bins))], generator.device)
        return tuple(torch.cat(parts, dim=1) for parts in zip(*bins, strict=True))

    def loss(self, model: SymbolModel, examples: Examples) -> tuple[Tensor, CountCorrect]:
        """The loss of a batch of every bin."""
        inputs_X, targets_X, weights_X = examples
        data = self.config.data
        parts = inputs_X.split([data.batch * length for length in data.bins])
        with autocast(self.config.train.precision, inputs_X.device):
            logits = model.forward_batches([part_X.view(data.batch, -1) for part_X in parts])
        logits_XC = torch.cat([logits_BNC.flatten(0, 1) for logits_BNC in logits])
        loss = (symbol_loss(logits_XC, targets_X, self.config.train.label_smoothing) * weights_X).sum()
        return loss, lambda: count_correct_symbols(logits_XC.detach().argmax(dim=-1), targets_X)

    def evaluate(self, model: SymbolModel) -> dict[str, float]:
        """A score, and by length the accuracy of symbols and of whole sequences, in training's precision.

        With structured examples in training, those are tested, too. The score is the mean of all accuracies; lengths up
        to the longest trained one have half of the weight, longer ones the other half.
        """
        data, lengths = self.config.data, self.config.train.evaluate_lengths
        splits = ["uniform", "structured"] if data.structure else ["uniform"]
        device = next(model.parameters()).device
        with autocast(self.config.train.precision, device):
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
        accuracy = {names[each.split].format(each.length): each.symbol_accuracy for each in scores}
        accuracy |= {f"sequences/{names[each.split].format(each.length)}": each.sequence_accuracy for each in scores}
        halves: dict[bool, list[float]] = {}
        for each in scores:
            half = halves.setdefault(each.length > data.longest_input, [])
            half += (each.symbol_accuracy, each.sequence_accuracy)
        return {"score": mean(map(mean, halves.values())), **accuracy} if halves else {}


OBJECTIVES: dict[type[RunConfig], Callable[..., Objective] | str] = {
    RunConfig: SymbolObjective,
    LambadaRunConfig: "riffle.lambada.train:make_lambada_objective",
    TextRunConfig: "riffle.train.text:TextObjective",
}
"""Objectives by the class of a run's configuration, or "package.module:name", which is imported when needed.

The arguments are those of :func:`make_objective`.
"""


def make_objective(
    config: RunConfig, folder: Path | None = None, device: Any = "cpu", ranks: RankGroup | None = None
) -> Objective:
    """The objective of a run, whose folder may keep what the model needs, such as a vocabulary."""
    objective: Objective = load(OBJECTIVES[type(config)])(config, folder, device, ranks)
    return objective


def resolve_precision(precision: Precision, device: torch.device) -> Precision:
    """What ``auto`` means on a device: bf16 on a GPU that has it, else fp32."""
    if precision != "auto":
        return precision
    return "bf16" if device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0) else "fp32"


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """The context in which a model computes in the given precision."""
    if resolve_precision(precision, device) == "bf16":
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return contextlib.nullcontext()


@contextlib.contextmanager
def in_precision(name: str, device: torch.device) -> Iterator[Precision]:
    """The context in which a command computes in the precision of that name; gives what ``auto`` means."""
    precision = resolve_precision(parse(Precision, name, "--precision"), device)
    set_matrix_precision(precision)
    with autocast(precision, device):
        yield precision


def set_matrix_precision(precision: Precision) -> None:
    """Allow or forbid tf32 in float32 matrix products, for the whole process.

    Attention is not left to cuDNN, whose kernels for 16 bits give NaN in some cases on an H200 (torch 2.11).
    """
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    torch.backends.cuda.enable_cudnn_sdp(False)


def on_parallel_streams(calls: Sequence[Callable[[], Result]], device: torch.device) -> list[Result]:
    """The results of all calls, which on a GPU run on parallel streams (parallel branches of a CUDA graph).

    Drawing examples takes dozens of launches that occupy a few multiprocessors for a microsecond or two each.
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
