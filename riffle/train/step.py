"""One training step: fresh examples, a backward pass, an update; run eagerly or as one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from riffle.config import RunConfig
from riffle.kernels.graphs import capture, on_side_stream
from riffle.models.base import Trainable
from riffle.train.checkpoint import add_prefix, select_prefix
from riffle.train.distributed import SEED_STRIDE, SINGLE_PROCESS, RankGroup
from riffle.train.ema import EMA, BestWeights
from riffle.train.objective import CountCorrect, Examples, Objective, on_parallel_streams
from riffle.train.optim import base_learning_rate, clip_and_perturb, gradients_of, make_optimizer
from riffle.train.schedule import SCHEDULES

EAGER_STEPS = 3
"""Steps before a graph is captured, in which the libraries initialise themselves."""
DRAWN_STEPS = 16
"""Steps whose examples are drawn together: drawing takes hundreds of launches, however many examples there are."""


class StepMetrics(NamedTuple):
    """Averages over the steps since they were last read."""

    loss: float
    accuracy: float
    """Fraction of correct answers in the training batches: of symbols or of passages."""
    first_non_finite: int | None
    """The first step of the run whose loss was not finite."""


class TrainStep:
    """The state of training; calling it makes one step.

    Everything a step needs lives on the device: the step count, the learning rate, the examples of the next steps, the
    random generator and the sums behind :meth:`pop_metrics`. So a step can be captured once and replayed without the
    host. If several ranks train together, all of them make every call.
    """

    def __init__(
        self,
        config: RunConfig,
        model: Trainable,
        objective: Objective,
        *,
        graph: bool = True,
        ranks: RankGroup = SINGLE_PROCESS,
    ) -> None:
        device = next(model.parameters()).device
        self.config, self.model, self.objective, self.ranks = config, model, objective, ranks
        self.generator = torch.Generator(device).manual_seed(config.train.seed)
        base = base_learning_rate(config.train, config.model)
        self.lr_schedule = SCHEDULES[config.train.schedule](base, config.train, device)
        self.learning_rate = self.lr_schedule.rate
        self.optimizer = make_optimizer(model, config.train, self.learning_rate)
        self.step = torch.zeros((), dtype=torch.int64, device=device)
        self.ema = EMA(model, config.train.average) if config.train.average else None
        self.best = BestWeights() if config.train.keep == "best" else None
        self.first_non_finite = torch.full((), -1, dtype=torch.int64, device=device)
        self.sums = torch.zeros(4, dtype=torch.float64, device=device)
        self.examples: Examples = ()
        """Those of :data:`DRAWN_STEPS` steps."""
        self.before_draw = self.generator.get_state()
        """The state of the generator before these were drawn."""
        self.use_graph = graph and device.type == "cuda"
        self.graph: torch.cuda.CUDAGraph | None = None
        self.draw_graph: torch.cuda.CUDAGraph | None = None
        self.calls = 0
        self.drawn = 0
        """Steps for which examples are left."""

    def __call__(self) -> None:
        """Make one step."""
        self.calls += 1
        if self.use_graph and self.calls > EAGER_STEPS and self.graph is None:
            self.optimizer.zero_grad(set_to_none=True)
            self.draw_graph, _ = capture(self._draw, warm_up=0, generators=[self.generator])
            self.graph, _ = capture(self._step, warm_up=0, generators=[self.generator])
        if not self.drawn:
            self.before_draw = self.generator.get_state()
            self._run(self._draw, self.draw_graph)
            self.drawn = DRAWN_STEPS
        self._run(self._step, self.graph)
        self.drawn -= 1

    def _run(self, call: Callable[[], None], graph: torch.cuda.CUDAGraph | None) -> None:
        if graph:
            graph.replay()
        elif self.use_graph:
            on_side_stream(call)
        else:
            call()

    def _draw(self) -> None:
        examples = self.objective.draw(DRAWN_STEPS, self.generator)
        if not self.examples:
            self.examples = examples
        for kept, fresh in zip(self.examples, examples, strict=True):
            kept.copy_(fresh)

    def _step(self) -> None:
        self.lr_schedule.before_step(self.step)
        self.optimizer.zero_grad(set_to_none=True)
        index = (self.step % DRAWN_STEPS).view(1)
        loss, count_correct = self.objective.loss(self.model, tuple(x.index_select(0, index)[0] for x in self.examples))
        total, loss = loss + self.model.extra_loss(), loss.detach()
        on_parallel_streams([total.backward, lambda: self._add_metrics(loss, count_correct)], self.step.device)
        self.ranks.all_reduce_mean([loss, *self.model.step_statistics(), *gradients_of(self.model.parameters())])
        clip_and_perturb(self.model, self.config.train, self.learning_rate, self.generator)
        self.optimizer.step()
        self.model.after_step(loss, self.learning_rate)
        if self.ema:
            self.ema.update(self.step)
        self.lr_schedule.after_step(loss)
        newly_non_finite = ~loss.isfinite() & (self.first_non_finite < 0)
        self.step += 1
        self.first_non_finite.copy_(torch.where(newly_non_finite, self.step, self.first_non_finite))

    def _add_metrics(self, loss: Tensor, count_correct: CountCorrect) -> None:
        numbers = (loss, torch.ones_like(loss), *count_correct())
        self.sums += torch.stack([number.to(self.sums.dtype) for number in numbers])

    def pop_metrics(self) -> StepMetrics:
        """Averages over the steps since the last call."""
        loss, steps, right, answers = self.ranks.all_reduce_sum(self.sums).tolist()
        self.sums.zero_()
        first = int(self.first_non_finite)
        return StepMetrics(loss / max(steps, 1), right / max(answers, 1), None if first < 0 else first)

    def evaluate(self) -> dict[str, float]:
        """Accuracy on held-out examples, of the averaged weights if there are any."""
        model = self.ema.model if self.ema else self.model
        accuracy = self.objective.evaluate(model)
        if self.best:
            self.best.update(int(self.step), accuracy, model)
        return accuracy

    def state(self) -> dict[str, Tensor]:
        """Everything a step depends on besides the model's weights, and the best weights, as named tensors."""
        best = self.best.state() if self.best else {}
        return self.shared_state() | best | self.ranks.gather(self._own_state())

    def shared_state(self) -> dict[str, Tensor]:
        """The part of the state that is equal on all ranks."""
        tensors = {"step": self.step, "random.sample": self.generator.get_state(), "random.drawn": self.before_draw}
        for index, slots in self.optimizer.state_dict()["state"].items():
            tensors |= add_prefix(slots, f"optimizer.{index}.")
        if self.ema:
            tensors |= add_prefix(self.ema.model.state_dict(), "average.")
        return tensors | add_prefix(self.lr_schedule.state(), "schedule.")

    def _own_state(self) -> dict[str, Tensor]:
        """The part of the state that is different on each rank."""
        tensors = {"sums": self.sums, "random.cpu": torch.get_rng_state()}
        if self.step.is_cuda:
            tensors["random.cuda"] = torch.cuda.get_rng_state(self.step.device)
        return tensors

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Restore what :meth:`state` returned."""
        tensors = self.ranks.restore_own(tensors, self._own_state())
        self.step.copy_(tensors["step"])
        self.sums.copy_(tensors["sums"])
        if self.ema:
            self.ema.model.load_state_dict(select_prefix(tensors, "average."))
        if self.best:
            self.best.load_state(tensors)
        for name, tensor in self.lr_schedule.state().items():
            tensor.copy_(tensors[f"schedule.{name}"])
        after_draw = tensors["random.sample"].cpu()
        before_draw = tensors.get("random.drawn", after_draw).cpu()
        if after_draw.shape != self.before_draw.shape:  # saved on another kind of device, whose generators differ
            seed = SEED_STRIDE * int(self.step) + self.config.train.seed
            after_draw = before_draw = self.generator.manual_seed(seed).get_state()
        self.drawn = -int(self.step) % DRAWN_STEPS
        if self.drawn:  # draw the same examples again
            self.before_draw = before_draw
            self.generator.set_state(before_draw)
            self._draw()
        self.generator.set_state(after_draw)
        torch.set_rng_state(tensors["random.cpu"].cpu())
        if self.step.is_cuda and "random.cuda" in tensors:
            torch.cuda.set_rng_state(tensors["random.cuda"].cpu(), self.step.device)
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in select_prefix(tensors, "optimizer.").items():
            index, slot = name.split(".")
            state.setdefault(int(index), {})[slot] = tensor
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate
