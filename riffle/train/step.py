"""One training step: fresh examples, one backward pass, one update; eager or as one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from riffle.config import RunConfig
from riffle.models.base import Trainable
from riffle.nn.graphed import capture, on_side_stream
from riffle.train.checkpoint import below
from riffle.train.distributed import SINGLE_PROCESS, World
from riffle.train.ema import EMA, BestWeights
from riffle.train.objective import Objective, on_parallel_streams
from riffle.train.optim import base_learning_rate, gradients, make_optimizer, shape_gradients
from riffle.train.schedule import SCHEDULES

EAGER_STEPS = 3
"""Steps before a graph is captured: they let the libraries set themselves up."""


class Progress(NamedTuple):
    """What happened since the last look."""

    loss: float
    """Mean loss."""
    accuracy: float
    """Share of right answers in the training batches: of symbols, of passages."""
    first_bad: int | None
    """The first step whose loss was not finite."""


class TrainStep:
    """A model in training: calling it makes one step, reading it waits for the device.

    Everything a step needs lives on the device: the count of steps, the learning rate, the random generator, the
    sums that :meth:`read` returns. So a step can be captured once and replayed without the host taking part.
    Where several ranks train together, all of them make every call.
    """

    def __init__(
        self,
        config: RunConfig,
        model: Trainable,
        objective: Objective,
        *,
        graph: bool = True,
        world: World = SINGLE_PROCESS,
    ) -> None:
        device = next(model.parameters()).device
        self.config, self.model, self.objective, self.world = config, model, objective, world
        self.generator = torch.Generator(device).manual_seed(config.train.seed)
        base = base_learning_rate(config.train, config.model)
        self.schedule = SCHEDULES[config.train.schedule](base, config.train, device)
        self.learning_rate = self.schedule.rate
        self.optimizer = make_optimizer(model, config.train, self.learning_rate)
        self.step = torch.zeros((), dtype=torch.int64, device=device)
        self.average = EMA(model, config.train.average) if config.train.average else None
        self.choice = BestWeights() if config.train.keep == "best" else None
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
            on_side_stream(self._step)
        else:
            if self.graph is None:
                self._capture()
            assert self.graph is not None
            self.graph.replay()

    def _capture(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self.graph, _ = capture(self._step, warm_up=0, generators=[self.generator])

    def _step(self) -> None:
        self.schedule.begin(self.step)
        self.optimizer.zero_grad(set_to_none=True)
        loss, count = self.objective.loss(self.model, self.generator)
        backward: Callable[[], None] = (loss + self.model.extra_loss()).backward
        note: Callable[[], None] = partial(self._note, loss.detach(), count)
        on_parallel_streams([backward, note], self.step.device)
        self.world.average([loss.detach(), *self.model.step_statistics(), *gradients(self.model)])
        shape_gradients(self.model, self.config.train, self.learning_rate, self.generator)
        self.optimizer.step()
        self.model.after_step(loss.detach(), self.learning_rate)
        if self.average:
            self.average.update(self.step)
        self.schedule.end(loss.detach())
        fresh_bad = ~loss.detach().isfinite() & (self.first_bad < 0)
        self.step += 1
        self.first_bad.copy_(torch.where(fresh_bad, self.step, self.first_bad))

    def _note(self, loss: Tensor, count: Callable[[], tuple[Tensor, Tensor]]) -> None:
        """Add a step to the sums that :meth:`read` returns."""
        numbers = (loss, torch.ones_like(loss), *count())
        self.sums += torch.stack([number.to(self.sums.dtype) for number in numbers])

    def read(self) -> Progress:
        """Averages since the last call, which begin anew."""
        loss, steps, right, symbols = self.world.sum(self.sums).tolist()
        self.sums.zero_()
        first_bad = int(self.first_bad)
        return Progress(loss / max(steps, 1), right / max(symbols, 1), None if first_bad < 0 else first_bad)

    def evaluate(self) -> dict[str, float]:
        """Accuracy on held-out examples: of the averaged weights, where there are such."""
        model = self.average.model if self.average else self.model
        accuracy = self.objective.evaluate(model)
        if self.choice:
            self.choice.note(int(self.step), accuracy, model)
        return accuracy

    def state(self) -> dict[str, Tensor]:
        """Everything a step depends on besides the model's weights, and weights to keep, as named tensors."""
        best = self.choice.state() if self.choice else {}
        return self.shared_state() | best | self.world.gather(self._own_state())

    def shared_state(self) -> dict[str, Tensor]:
        """The part of the state that is the same on every rank."""
        tensors = {"step": self.step, "random.sample": self.generator.get_state()}
        for index, slots in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{slot}": tensor for slot, tensor in slots.items()}
        if self.average:
            tensors |= {f"average.{name}": tensor for name, tensor in self.average.model.state_dict().items()}
        return tensors | {f"schedule.{name}": tensor for name, tensor in self.schedule.state().items()}

    def _own_state(self) -> dict[str, Tensor]:
        """The part of the state that is this rank's own."""
        tensors = {"sums": self.sums, "random.cpu": torch.get_rng_state()}
        if self.step.is_cuda:
            tensors["random.cuda"] = torch.cuda.get_rng_state(self.step.device)
        return tensors

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Take up where :meth:`state` was taken."""
        tensors = self.world.restore_own(tensors, self._own_state())
        self.step.copy_(tensors["step"])
        self.sums.copy_(tensors["sums"])
        if self.average:
            self.average.model.load_state_dict(below("average.", tensors))
        if self.choice:
            self.choice.load_state(tensors)
        for name, tensor in self.schedule.state().items():
            tensor.copy_(tensors[f"schedule.{name}"])
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
