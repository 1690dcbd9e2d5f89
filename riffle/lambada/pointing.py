"""Passages as batches for a network, and answering them by pointing at a word of the context.

A passage is placed among the network's positions with blanks around it and a mask in place of its answer.
"""

# B = passages of a batch, N = positions, E = examples, T = tokens of the stream, V = words of the corpus
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from riffle.lambada.passages import index_passages
from riffle.lambada.vocabulary import MASK, Vocabulary

NO_WORD = -1
"""In place of a corpus word at positions without one."""
NEVER_FORGOTTEN = 1000
"""The most common words of the corpus, which are never forgotten or renamed."""
MASKED_SCORE = torch.finfo(torch.float32).min
Label = Literal["even", "sum"]
OnProgress = Callable[[int], None]
"""Called with the number of passages just answered."""


class PassageBatch(NamedTuple):
    """Passages placed among the positions of a network."""

    ids: Tensor
    """The network's input, ``[B, N]``: ids of words, the mask in place of the answer, blanks around the passage."""
    words: Tensor
    """The corpus words of the context, ``[B, N]``; :data:`NO_WORD` elsewhere."""
    answers: Tensor
    """The corpus words that are the answers, ``[B]``."""
    mask_position: Tensor
    """The positions of the mask, ``[B]``."""

    @property
    def pointable(self) -> Tensor:
        """Positions that can be pointed at: those of the context, ``[B, N]``."""
        return self.words != NO_WORD

    @property
    def is_answer(self) -> Tensor:
        """Positions of the context where the answer occurs, ``[B, N]``."""
        return self.words == self.answers[:, None]


class PassageDataset:
    """Passages in a stream of corpus tokens on a device, sampled at random or taken by index.

    Of a passage longer than the network's ``positions`` the last words are kept. Examples are sampled with weight
    (frequency of their answer) ** -flatten: 0 for uniformly, 1 for every answer equally often.
    ``similar_VS`` has the ids of similar words for every id of the vocabulary.
    """

    def __init__(
        self,
        stream_T: Tensor,
        examples: NDArray[np.void],
        vocabulary: Vocabulary,
        lookup_V: Tensor,
        positions: int,
        *,
        flatten: float = 0.0,
        similar_VS: Tensor | None = None,
    ) -> None:
        self.stream_T, self.lookup_V, self.vocabulary, self.positions = stream_T, lookup_V, vocabulary, positions
        self.similar_VS, device = similar_VS, stream_T.device
        self.answer_at_E = torch.from_numpy(examples["start"] + examples["length"] - 1).to(device)
        context = np.minimum(examples["length"] - 1, positions - 1).astype(np.int64)
        self.context_E = torch.from_numpy(context).to(device)
        answers_E = stream_T[self.answer_at_E]
        weights_E = answers_E.bincount()[answers_E].double() ** -flatten
        self.cumulative_weights_E = weights_E.cumsum(0) / weights_E.sum()

    @classmethod
    def from_tokens(
        cls, passages: Sequence[Sequence[str]], vocabulary: Vocabulary, positions: int, device: Any = "cpu"
    ) -> PassageDataset:
        """Passages given as words, the answer last."""
        words, tokens_T, examples = index_passages(passages)
        stream_T, lookup_V = torch.from_numpy(tokens_T).to(device), vocabulary.lookup(words).to(device)
        return cls(stream_T, examples, vocabulary, lookup_V, positions)

    def __len__(self) -> int:
        return len(self.context_E)

    def sample(
        self, batch: int, *, forget: float = 0.0, rename: float = 0.0, generator: torch.Generator
    ) -> PassageBatch:
        """Random examples at random positions; fit for a CUDA graph.

        Of their rarer words a share ``forget`` is OOV, and a share ``rename`` is replaced by similar words.
        """
        random_2B = torch.rand(2, batch, generator=generator, device=generator.device, dtype=torch.float64)
        example_B, offset_B = random_2B.unbind()
        rows_B = torch.searchsorted(self.cumulative_weights_E, example_B).clamp(max=len(self) - 1)
        offsets_B = self.positions - self.context_E[rows_B]  # how many there are to choose from
        before_B = (offset_B * offsets_B).long().minimum(offsets_B - 1)
        if not forget and not rename:
            return self._place(rows_B, before_B)
        random_BN = torch.rand(batch, self.positions, generator=generator, device=generator.device)
        # In [0, 1) for the words to rename.
        choice_BN = (random_BN - forget) / rename if rename else None
        return self._place(rows_B, before_B, random_BN < forget, choice_BN)

    def batch(self, rows_B: Tensor, share: float = 0.5) -> PassageBatch:
        """The examples of these indices, with this share of the free positions before them; 0.5 is the middle."""
        free_B = self.positions - 1 - self.context_E[rows_B]
        return self._place(rows_B, (free_B * share).long())

    def _place(
        self, rows_B: Tensor, before_B: Tensor, forgotten_BN: Tensor | None = None, choice_BN: Tensor | None = None
    ) -> PassageBatch:
        """Passages at their positions; where ``choice_BN`` lies in [0, 1) it chooses among the similar words."""
        context_B1 = self.context_E[rows_B][:, None]
        # How far every position is before the mask.
        distance_BN = before_B[:, None] + context_B1 - torch.arange(self.positions, device=rows_B.device)
        inside_BN = (distance_BN > 0) & (distance_BN <= context_B1)
        answer_at_B = self.answer_at_E[rows_B]
        stream_index_BN = torch.where(inside_BN, answer_at_B[:, None] - distance_BN, 0)
        words_BN = torch.where(inside_BN, self.stream_T[stream_index_BN], NO_WORD)
        if forgotten_BN is not None:
            forgotten_BN &= words_BN >= NEVER_FORGOTTEN
        replaced_BN = None if choice_BN is None else self._similar(words_BN, choice_BN)
        ids_BN = self.vocabulary.encode_tokens(words_BN, self.lookup_V, forgotten_BN, replaced_BN)
        ids_BN = torch.where(distance_BN == 0, MASK, ids_BN)
        return PassageBatch(ids_BN, words_BN, self.stream_T[answer_at_B], before_B + context_B1[:, 0])

    def _similar(self, words_BN: Tensor, choice_BN: Tensor) -> Tensor:
        """The id of a similar word, for chosen words that are known and not among the most common; -1 for others."""
        assert self.similar_VS is not None
        ids_BN = self.lookup_V[words_BN.clamp(min=0).long()]
        number_BN = (choice_BN * self.similar_VS.shape[1]).long().clamp(0, self.similar_VS.shape[1] - 1)
        replaced_BN = (choice_BN >= 0) & (choice_BN < 1) & (words_BN >= NEVER_FORGOTTEN) & (ids_BN >= 0)
        return torch.where(replaced_BN, self.similar_VS[ids_BN.clamp(min=0), number_BN], -1)


def pointer_loss(score_BN: Tensor, batch: PassageBatch, label_smoothing: float = 0.0, label: Label = "even") -> Tensor:
    """Softmax cross entropy of every passage over its positions, ``[B]``; smoothing spreads labels over the context.

    With ``label`` "even" the label is spread evenly over the occurrences of the answer, as in the paper; with "sum" the
    loss is the negative logarithm of the sum of their probabilities.
    """
    is_answer_BN, log_BN = batch.is_answer, _log_probability(score_BN, batch.pointable)
    if label == "even":
        loss_B = -(_uniform(is_answer_BN) * log_BN).sum(dim=1)
    else:
        loss_B = -log_BN.masked_fill(~is_answer_BN, MASKED_SCORE).logsumexp(dim=1)
    return (1 - label_smoothing) * loss_B - label_smoothing * (_uniform(batch.pointable) * log_BN).sum(dim=1)


class Predictions(NamedTuple):
    """A model's answers to examples; each field ``[E]``."""

    answers: Tensor
    by_position: Tensor
    """The words at the most probable positions."""
    by_word: Tensor
    """The words that are most probable when all their occurrences are added up."""
    probability: Tensor
    """The probability of the correct word."""
    distance: Tensor
    """How many words before the answer its last occurrence is, 0 if there is none."""

    @property
    def accuracy(self) -> dict[str, float]:
        """Share of correct answers over all examples, by position and by word."""
        chosen = {"position": self.by_position, "word": self.by_word}
        return {by: float((words_E == self.answers).double().mean()) for by, words_E in chosen.items()}


def context_probabilities(
    model: nn.Module, dataset: PassageDataset, rows_B: Tensor, placements: int = 1
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The words of some examples' contexts, their probabilities by position and by word, and the answers ``[B]``.

    The first three are ``[B, N - 1]`` and backwards: the word just before the answer comes first, and beyond the first
    of the passage stands :data:`NO_WORD`. By word, the probabilities of all its occurrences are added up. They are
    averaged over evenly spaced placements among the positions.
    """
    by_position_BN = torch.zeros(len(rows_B), dataset.positions - 1, device=rows_B.device)
    for number in range(placements):
        batch = dataset.batch(rows_B, (number + 0.5) / placements)
        log_BN = _log_probability(model(batch.ids), batch.pointable)
        back_BN = batch.mask_position[:, None] - torch.arange(1, log_BN.shape[1], device=log_BN.device)
        at_BN = back_BN.clamp(min=0)
        inside_BN = (back_BN >= 0) & batch.pointable.gather(1, at_BN)
        by_position_BN += torch.where(inside_BN, log_BN.gather(1, at_BN).exp(), 0) / placements
    words_BN = torch.where(inside_BN, batch.words.gather(1, at_BN), NO_WORD)
    same_BNN = words_BN[:, :, None] == words_BN[:, None, :]
    by_word_BN = (same_BNN * by_position_BN[:, None, :]).sum(dim=2)
    return words_BN, by_position_BN, by_word_BN, batch.answers


def predict_by_pointing(model: nn.Module, dataset: PassageDataset, rows_B: Tensor, placements: int) -> Predictions:
    """The answers of a model that scores positions to some examples of a dataset."""
    words_BN, by_position_BN, by_word_BN, answers_B = context_probabilities(model, dataset, rows_B, placements)
    right_BN = words_BN == answers_B[:, None]
    return Predictions(
        answers=answers_B,
        by_position=words_BN.gather(1, by_position_BN.argmax(dim=1, keepdim=True))[:, 0],
        by_word=words_BN.gather(1, by_word_BN.argmax(dim=1, keepdim=True))[:, 0],
        probability=(by_position_BN * right_BN).sum(dim=1),
        distance=torch.where(right_BN.any(dim=1), right_BN.int().argmax(dim=1) + 1, 0),
    )


@torch.inference_mode()
def predict_answers(
    model: nn.Module,
    dataset: PassageDataset,
    predict_rows: Callable[[nn.Module, PassageDataset, Tensor, int], Predictions] = predict_by_pointing,
    placements: int = 1,
    *,
    batch: int = 256,
    on_progress: OnProgress = lambda passages: None,
) -> Predictions:
    """A model's answers to all examples of a dataset, ``batch`` at once; its training mode is left as it was."""
    was_training = model.training
    model.eval()
    parts = []
    for rows_B in torch.arange(len(dataset), device=dataset.stream_T.device).split(batch):
        parts.append(predict_rows(model, dataset, rows_B, placements))
        on_progress(len(rows_B))
    model.train(was_training)
    return Predictions(*(torch.cat(column).cpu() for column in zip(*parts, strict=True)))


def _log_probability(score_BN: Tensor, pointable_BN: Tensor) -> Tensor:
    return score_BN.float().masked_fill(~pointable_BN, MASKED_SCORE).log_softmax(dim=1)


def _uniform(chosen_BN: Tensor) -> Tensor:
    """The uniform distribution over the chosen positions of every row; zeros in a row without any."""
    return chosen_BN / chosen_BN.sum(dim=1, keepdim=True).clamp(min=1)
