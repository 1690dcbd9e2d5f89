"""One training step: a batch of every bin, one backward pass, one update; eager or as one CUDA graph."""

# B = batch, N = width of a bin, C = classes
from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from riffle.config import Experiment, Precision
from riffle.tasks.base import Task
from riffle.train.data import draw_bin, held_out
from riffle.train.metrics import count, sequence_loss
from riffle.train.optim import base_learning_rate, make_optimizer

EAGER_STEPS = 3
"""Steps before a graph is captured: they let the libraries set themselves up."""


class Progress(NamedTuple):
    """What happened since the last look."""

    loss: float
    """Mean loss."""
    accuracy: float
    """Share of right symbols in the training batches."""
    first_bad: int | None
    """The first step whose loss was not finite."""


class TrainStep:
    """A model in training: calling it makes one step, reading it waits for the device.

    Everything a step needs lives on the device: the count of steps, the learning rate, the random generator, the
    sums that :meth:`read` returns. So a step can be captured once and replayed without the host taking part.
    """

    def __init__(self, experiment: Experiment, model: nn.Module, task: Task, *, graph: bool = True) -> None:
        device = next(model.parameters()).device
        self.experiment, self.model, self.task = experiment, model, task
        self.generator = torch.Generator(device).manual_seed(experiment.train.seed)
        self.base_learning_rate = base_learning_rate(experiment.train, experiment.model)
        self.learning_rate = torch.tensor(self.base_learning_rate, device=device)
        self.optimizer = make_optimizer(model, experiment.train, self.learning_rate)
        self.step = torch.zeros((), dtype=torch.int64, device=device)
        self.first_bad = torch.full((), -1, dtype=torch.int64, device=device)
        self.sums = torch.zeros(4, dtype=torch.float64, device=device)
        self.use_graph = graph and device.type == "cuda"
        self.graph: torch.cuda.CUDAGraph | None = None
        self.calls = 0

    def __call__(self) -> None:
        """Make one step."""
        self.calls += 1
        if not self.use_graph:
            self._step()
        elif self.calls <= EAGER_STEPS:
            # Work that will be captured has to have run on a stream of its own before.
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                self._step()
            torch.cuda.current_stream().wait_stream(stream)
        else:
            if self.graph is None:
                self._capture()
            assert self.graph is not None
            self.graph.replay()

    def _capture(self) -> None:
        self.graph = torch.cuda.CUDAGraph()
        self.graph.register_generator_state(self.generator)
        self.optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(self.graph):
            self._step()

    def _step(self) -> None:
        self.learning_rate.copy_(self.base_learning_rate * (1 - self.step / self.experiment.train.steps))
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._loss()
        loss.backward()
        self.optimizer.step()
        fresh_bad = ~loss.detach().isfinite() & (self.first_bad < 0)
        self.step += 1
        self.first_bad.copy_(torch.where(fresh_bad, self.step, self.first_bad))

    def _loss(self) -> Tensor:
        data, train = self.experiment.data, self.experiment.train
        losses = []
        for index in range(len(data.bins)):
            batch = draw_bin(self.task, data.bins, index, data.batch, data.shorter, generator=self.generator)
            with arithmetic(train.precision, self.step.device):
                logits_BNC = self.model(batch.inputs)
            loss_B = sequence_loss(logits_BNC, batch.targets, train.label_smoothing)
            trained_B = (~held_out(batch.inputs)).to(loss_B.dtype)
            losses.append((loss_B * trained_B).sum() / trained_B.sum().clamp(min=1))
            with torch.no_grad():
                counts = count(logits_BNC, batch.targets)
            self.sums[2] += counts.right
            self.sums[3] += counts.symbols
        loss = torch.stack(losses).mean()
        self.sums[0] += loss.detach()
        self.sums[1] += 1
        return loss

    def read(self) -> Progress:
        """Averages since the last call, which begin anew."""
        loss, steps, right, symbols = self.sums.tolist()
        self.sums.zero_()
        first_bad = int(self.first_bad)
        return Progress(loss / max(steps, 1), right / max(symbols, 1), None if first_bad < 0 else first_bad)

    def state(self) -> dict[str, Tensor]:
        """Everything a step depends on besides the model's weights, as named tensors."""
        tensors = {"step": self.step, "sums": self.sums}
        tensors |= {"random.sample": self.generator.get_state(), "random.cpu": torch.get_rng_state()}
        if self.step.is_cuda:
            tensors["random.cuda"] = torch.cuda.get_rng_state(self.step.device)
        for index, slots in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{slot}": tensor for slot, tensor in slots.items()}
        return tensors

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Take up where :meth:`state` was taken."""
        self.step.copy_(tensors["step"])
        self.sums.copy_(tensors["sums"])
        self.generator.set_state(tensors["random.sample"].cpu())
        torch.set_rng_state(tensors["random.cpu"].cpu())
        if self.step.is_cuda and "random.cuda" in tensors:
            torch.cuda.set_rng_state(tensors["random.cuda"].cpu(), self.step.device)
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            if name.startswith("optimizer."):
                _, index, slot = name.split(".")
                state.setdefault(int(index), {})[slot] = tensor
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate


def arithmetic(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """The context in which a model computes in the given precision."""
    if precision == "bf16":
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return contextlib.nullcontext()


def set_matrix_precision(precision: Precision) -> None:
    """Let float32 matrix products use tf32 or not, for the whole process."""
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
