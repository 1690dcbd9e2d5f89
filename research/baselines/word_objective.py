"""The objective of the Universal Transformer's reader: classify the last word of a passage among all known words."""

# B = passages, N = positions, V = known words, W = distinct words of a dataset
from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from riffle.lambada.pointing import PassageBatch, PassageDataset, Predictions
from riffle.lambada.train import PointerObjective
from riffle.models.pointer import WordModel
from riffle.train.objective import CountCorrect, Examples, autocast

UNKNOWN_CLASS = -100
"""The class of an answer outside the vocabulary, which the loss ignores."""


class WordObjective(PointerObjective):
    """Classify a passage's last word among all known words; see :class:`PointerObjective`."""

    model = WordModel

    @property
    def classes(self) -> int:
        return len(self.vocabulary.known)

    def loss(self, model: WordModel, examples: Examples) -> tuple[Tensor, CountCorrect]:
        """Cross entropy over the known words, averaged over the passages whose answer is one of them."""
        *columns, weights_B = examples
        batch = PassageBatch(*columns)
        with autocast(self.config.train.precision, weights_B.device):
            logits_BV = model(batch.ids)
        class_B = self._classes(self.answer_ids(batch))
        smoothing = self.config.train.label_smoothing
        loss_B = F.cross_entropy(logits_BV.float(), class_B, label_smoothing=smoothing, reduction="none")
        right_B = logits_BV.detach().argmax(dim=1) == class_B
        return (loss_B * weights_B).sum(), lambda: (right_B.sum(), (weights_B > 0).sum())

    def has_target(self, batch: PassageBatch) -> Tensor:
        """Which passages can be trained on: those whose answer is a known word."""
        return self.lookup[batch.answers.long()] >= 0

    def predict_rows(self, model: nn.Module, dataset: PassageDataset, rows_B: Tensor, placements: int) -> Predictions:
        """Predictions by position and by word are the same."""
        batch, class_W = dataset.batch(rows_B), self._classes(dataset.lookup_V)
        # The inverse: the dataset's word of each class, which most classes do not have.
        word_V = class_W.new_full((len(self.vocabulary.known),), UNKNOWN_CLASS)
        known_W = (class_W != UNKNOWN_CLASS).nonzero()[:, 0]
        word_V[class_W[known_W]] = known_W
        probability_BV = self._probabilities(model, dataset, rows_B, placements)
        predicted_B = word_V[probability_BV.argmax(dim=1)]
        class_B1 = class_W[batch.answers.long()][:, None]
        right_B1 = probability_BV.gather(1, class_B1.clamp(min=0)) * (class_B1 != UNKNOWN_CLASS)
        last_B = (batch.is_answer * torch.arange(1, self.positions + 1, device=rows_B.device)).amax(dim=1)
        distance_B = torch.where(last_B > 0, batch.mask_position + 1 - last_B, 0)
        return Predictions(batch.answers, predicted_B, predicted_B, right_B1[:, 0], distance_B)

    @torch.inference_mode()
    def next_word_probabilities(self, model: nn.Module, tokens: Sequence[str], placements: int = 1) -> dict[str, float]:
        row_B = torch.zeros(1, dtype=torch.int64, device=self.device)
        probability_BV = self._probabilities(model, self.dataset_from_tokens([[*tokens, ""]]), row_B, placements)
        return dict(zip(self.vocabulary.known, probability_BV[0].tolist(), strict=True))

    def _probabilities(self, model: nn.Module, dataset: PassageDataset, rows_B: Tensor, placements: int) -> Tensor:
        """The probability of every known word, averaged over placements among the positions."""
        probability_BV = torch.zeros(len(rows_B), len(self.vocabulary.known), device=rows_B.device)
        for number in range(placements):  # one at a time: a batch of all of them would take gigabytes
            ids_BN = dataset.batch(rows_B, (number + 0.5) / placements).ids
            probability_BV += model(ids_BN).float().softmax(dim=1) / placements
        return probability_BV

    def answer_ids(self, batch: PassageBatch) -> Tensor:
        """The ids of the answers, those of their new names where they are renamed; -1 for unknown words."""
        own_B, named_B = self.lookup[batch.answers.long()], torch.where(batch.is_answer, batch.ids, -1).amax(dim=1)
        return torch.where(named_B >= self.vocabulary.first_known, named_B, own_B)

    def _classes(self, lookup_W: Tensor) -> Tensor:
        """The classes of words by their ids."""
        return torch.where(lookup_W < 0, UNKNOWN_CLASS, lookup_W - self.vocabulary.first_known)
