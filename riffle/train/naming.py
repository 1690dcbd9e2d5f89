"""Learning to read where a model names the missing word out of all it knows, in place of pointing at one."""

# B = passages, N = positions, V = known words, W = words of the examples' stream
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from riffle.config import ModelConfig
from riffle.lambada.placing import Examples, Placed
from riffle.lambada.pointing import Pointed, point
from riffle.models.build import build_reader
from riffle.models.pointer import ReadingModel
from riffle.train.precision import arithmetic
from riffle.train.reading import Answers, Passages
from riffle.train.subject import Count

NAMING = frozenset({"universal-reader"})
"""The kinds of model that do."""
_UNKNOWN = -100
"""The class of an answer that is none of the known words; nothing is learned from it."""


class Naming(Passages):
    """The subject of a run whose model scores all known words; see :class:`~riffle.train.reading.Passages`."""

    def build(self, config: ModelConfig, **factory: Any) -> ReadingModel:
        """A fresh model."""
        reader = build_reader(config, Answers(classes=len(self.words.known)), **factory)
        return ReadingModel(self.cells(config, **factory), reader, word_dropout=self.experiment.data.word_dropout)

    def loss(self, model: ReadingModel, generator: torch.Generator) -> tuple[Tensor, Count]:
        """Cross entropy over the known words, meaned over the passages whose answer is one."""
        placed, weights_B = self.draw(generator)
        with arithmetic(self.experiment.train.precision, generator.device):
            score_BV = model(placed.ids)
        class_B = self._classes(self._lookup)[placed.answers.long()]
        smoothing = self.experiment.train.label_smoothing
        loss_B = F.cross_entropy(score_BV.float(), class_B, label_smoothing=smoothing, reduction="none")
        right_B = score_BV.detach().argmax(dim=1) == class_B
        return (loss_B * weights_B).sum(), lambda: (right_B.sum(), (weights_B > 0).sum())

    def teaches(self, placed: Placed) -> Tensor:
        """Which passages have an answer that can be named."""
        return self._lookup[placed.answers.long()] >= 0

    def point(
        self,
        model: nn.Module,
        examples: Examples,
        *,
        placements: int = 1,
        on_progress: Callable[[int], None] = lambda examples: None,
    ) -> Pointed:
        """What a model answers to examples; both ways to choose are the same here."""
        class_W = self._classes(examples.lookup_V)
        # Which word of the stream a class is; most are none.
        word_V = class_W.new_full((len(self.words.known),), _UNKNOWN)
        known_W = (class_W != _UNKNOWN).nonzero()[:, 0]
        word_V[class_W[known_W]] = known_W

        def answer(model: nn.Module, examples: Examples, rows_B: Tensor, placements: int) -> Pointed:
            placed = examples.placed(rows_B)
            probability_BV = self._probability(model, examples, rows_B, placements)
            named_B = word_V[probability_BV.argmax(dim=1)]
            class_B1 = class_W[placed.answers.long()][:, None]
            right_B1 = probability_BV.gather(1, class_B1.clamp(min=0)) * (class_B1 != _UNKNOWN)
            last_B = (placed.right * torch.arange(1, self.positions + 1, device=rows_B.device)).amax(dim=1)
            distance_B = torch.where(last_B > 0, placed.mask + 1 - last_B, 0)
            return Pointed(placed.answers, named_B, named_B, right_B1[:, 0], distance_B)

        return point(model, examples, placements=placements, on_progress=on_progress, answer=answer)

    @torch.inference_mode()
    def likely(self, model: nn.Module, tokens: Sequence[str], placements: int = 1) -> dict[str, float]:
        """How likely a model finds each known word to follow a passage."""
        row_B = torch.zeros(1, dtype=torch.int64, device=self.device)
        probability_BV = self._probability(model, self.examples_of([[*tokens, ""]]), row_B, placements)
        return dict(zip(self.words.known, probability_BV[0].tolist(), strict=True))

    def _probability(self, model: nn.Module, examples: Examples, rows_B: Tensor, placements: int) -> Tensor:
        """The probability of every known word, averaged over places among the positions."""
        shares = [(number + 0.5) / placements for number in range(placements)]
        scores = [model(examples.placed(rows_B, share).ids).float().softmax(dim=1) for share in shares]
        return torch.stack(scores).mean(dim=0)

    def _classes(self, lookup_W: Tensor) -> Tensor:
        """The class of every word of a stream."""
        return torch.where(lookup_W < 0, _UNKNOWN, lookup_W - self.words.first_known)
