"""Learning a task on symbols: a batch of every bin in each step."""

# B = batch, N = width of a bin, C = classes, X = symbols of all bins
from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from riffle.config import Experiment, ModelConfig
from riffle.models.base import SymbolModel
from riffle.models.build import build
from riffle.tasks import get_task
from riffle.tasks.base import Batch
from riffle.train.data import draw_bin, held_out
from riffle.train.distributed import ALONE, World
from riffle.train.evaluate import evaluate
from riffle.train.metrics import count_symbols, symbol_loss
from riffle.train.precision import arithmetic
from riffle.train.streams import side_by_side
from riffle.train.subject import Count

EVALUATED = 256
"""Examples of each length in an evaluation during training."""


class Symbols:
    """The subject of an experiment on one of the tasks.

    Args:
        experiment: The configuration.
        world: The processes that train together.
    """

    def __init__(self, experiment: Experiment, world: World = ALONE) -> None:
        self.experiment, self.task, self.world = experiment, get_task(experiment.task), world

    def build(self, config: ModelConfig, **factory: Any) -> SymbolModel:
        """A fresh model for the task."""
        return build(config, self.task, **factory)

    def loss(self, model: SymbolModel, generator: torch.Generator) -> tuple[Tensor, Count]:
        """The loss of a fresh batch of every bin."""
        examples = self.draw(generator)
        with arithmetic(self.experiment.train.precision, generator.device):
            scores = model.many([batch.inputs for batch, _ in examples])
        logits_XC = torch.cat([logits_BNC.flatten(0, 1) for logits_BNC in scores])
        targets_X = torch.cat([batch.targets.flatten() for batch, _ in examples])
        weights_X = torch.cat([weights_BN.flatten() for _, weights_BN in examples])
        loss = (symbol_loss(logits_XC, targets_X, self.experiment.train.label_smoothing) * weights_X).sum()
        return loss, lambda: count_symbols(logits_XC.detach().argmax(dim=-1), targets_X)

    def draw(self, generator: torch.Generator) -> list[tuple[Batch, Tensor]]:
        """A batch of every bin, and the weight of each of its positions in the step's loss.

        Bins count alike, and so do the examples of a bin that are not held out and the positions of an example.
        Every rank draws the examples of all, which are the same everywhere, and keeps its own.
        """
        data, ranks = self.experiment.data, self.world.size

        def draw_one(index: int) -> tuple[Batch, Tensor]:
            rows = data.batch * ranks
            shares = data.shorter, data.full, data.worst
            batch = draw_bin(self.task, data.bins, index, rows, *shares, generator=generator)
            trained_B = (~held_out(batch.inputs)).float()
            weights_B = trained_B * ranks / (trained_B.sum().clamp(min=1) * (data.bins[index] * len(data.bins)))
            inputs_BN, targets_BN, own_B = self.world.rows(*batch, weights_B)
            return Batch(inputs_BN, targets_BN), own_B[:, None].expand(inputs_BN.shape)

        return side_by_side([partial(draw_one, index) for index in range(len(data.bins))], generator.device)

    def evaluate(self, model: SymbolModel) -> dict[str, float]:
        """Symbol accuracy by length."""
        lengths, trained = self.experiment.train.evaluate_lengths, max(self.experiment.data.bins)
        scores = evaluate(model, self.task, lengths, examples=EVALUATED, trained_length=trained)
        return {str(score.length): score.symbol_accuracy for score in scores}
