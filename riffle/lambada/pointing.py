"""Passages of a corpus as a network reads them: batch among its positions, the answer masked; on any device.

What a pointer says: its loss in training, the word it chooses, how many passages it answers.
"""

# B = passages, N = positions, E = examples, T = tokens of the stream
# B = passages, N = positions, E = examples
from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from riffle.lambada.prepare import index_passages
from riffle.lambada.vocabulary import MASK, Vocabulary

NO_WORD = -1
"""The corpus word of a position without one."""
COMMON = 1000
"""The most common words, which are never forgotten."""


class PassageBatch(NamedTuple):
    """Passages among the positions of a network."""

    ids: Tensor
    """What the network reads, ``[B, N]``: ids of words, the mask at the answer's place, blanks around."""
    words: Tensor
    """The corpus words there, ``[B, N]``; :data:`NO_WORD` where none is and at the answer's place."""
    answers: Tensor
    """The corpus words that were left out, ``[B]``."""
    mask_position: Tensor
    """Their places, ``[B]``."""

    @property
    def pointable(self) -> Tensor:
        """Positions that can be pointed at, ``[B, N]``."""
        return self.words != NO_WORD

    @property
    def is_answer(self) -> Tensor:
        """Where the answer occurs, ``[B, N]``."""
        return self.words == self.answers[:, None]


class PassageDataset:
    """Passages in a stream of tokens on a device, to be drawn at random or taken in order.

    Args:
        stream_T: The tokens: numbers of words, of which the lower ones are more common.
        examples: Where the passages lie, see :data:`riffle.lambada.passages.EXAMPLE_DTYPE`.
        words: The words the model knows.
        lookup_V: What ``words.lookup`` gives for the words that tokens number.
        positions: Positions of the network; a longer passage keeps its last ones.
        flatten: How far answers that occur often are drawn less: 0 as they occur, 1 all alike.
    """

    def __init__(
        self,
        stream_T: Tensor,
        examples: NDArray[np.void],
        words: Vocabulary,
        lookup_V: Tensor,
        positions: int,
        *,
        flatten: float = 0.0,
    ) -> None:
        self.stream_T, self.lookup_V, self.words, self.positions = stream_T, lookup_V, words, positions
        device = stream_T.device
        self.answer_at_E = torch.from_numpy(examples["start"] + examples["length"] - 1).to(device)
        context = np.minimum(examples["length"] - 1, positions - 1).astype(np.int64)
        self.context_E = torch.from_numpy(context).to(device)
        self.shares_E = _shares(stream_T[self.answer_at_E], flatten)

    @classmethod
    def from_tokens(
        cls, passages: Sequence[Sequence[str]], words: Vocabulary, positions: int, device: Any = "cpu"
    ) -> PassageDataset:
        """Passages given as words, the answer last."""
        different = list(dict.fromkeys(chain.from_iterable(passages)))
        numbers = {word: number for number, word in enumerate(different)}
        stream_T = torch.tensor([numbers[word] for word in chain.from_iterable(passages)], device=device)
        return cls(stream_T, index_passages(passages, 0), words, words.lookup(different).to(device), positions)

    def __len__(self) -> int:
        return len(self.context_E)

    def sample(self, batch: int, *, forget: float = 0.0, generator: torch.Generator) -> PassageBatch:
        """Random examples at random places; runs inside a captured step.

        Args:
            batch: How many.
            forget: Share of a passage's rarer words that are taken as unknown.
            generator: Decides everything.
        """
        random_2B = torch.rand(2, batch, generator=generator, device=generator.device, dtype=torch.float64)
        chosen_B, place_B = random_2B.unbind()
        rows_B = torch.searchsorted(self.shares_E, chosen_B).clamp(max=len(self) - 1)
        room_B = self.positions - self.context_E[rows_B]  # places the mask can have
        before_B = (place_B * room_B).long().minimum(room_B - 1)
        forgotten_BN = None
        if forget:
            size = (batch, self.positions)
            forgotten_BN = torch.rand(size, generator=generator, device=generator.device) < forget
        return self._place(rows_B, before_B, forgotten_BN)

    def batch(self, rows_B: Tensor, share: float = 0.5) -> PassageBatch:
        """Given examples with this share of the free positions before them; by default in the middle."""
        free_B = self.positions - 1 - self.context_E[rows_B]
        return self._place(rows_B, (free_B * share).long())

    def _place(self, rows_B: Tensor, before_B: Tensor, forgotten_BN: Tensor | None = None) -> PassageBatch:
        context_B1 = self.context_E[rows_B][:, None]
        # How far every position lies before the answer's place.
        ahead_BN = before_B[:, None] + context_B1 - torch.arange(self.positions, device=rows_B.device)
        inside_BN = (ahead_BN > 0) & (ahead_BN <= context_B1)
        answer_at_B = self.answer_at_E[rows_B]
        at_BN = torch.where(inside_BN, answer_at_B[:, None] - ahead_BN, 0)
        words_BN = torch.where(inside_BN, self.stream_T[at_BN], NO_WORD)
        if forgotten_BN is not None:
            forgotten_BN &= words_BN >= COMMON
        ids_BN = self.words.encode_tokens(words_BN, self.lookup_V, forgotten_BN)
        ids_BN = torch.where(ahead_BN == 0, MASK, ids_BN)
        return PassageBatch(ids_BN, words_BN, self.stream_T[answer_at_B], before_B + context_B1[:, 0])


def _shares(answers_E: Tensor, flatten: float) -> Tensor:
    """Up to which number between 0 and 1 each example is drawn."""
    weights_E = answers_E.bincount()[answers_E].double() ** -flatten
    return weights_E.cumsum(0) / weights_E.sum()


Label = Literal["even", "sum"]
NONE = torch.finfo(torch.float32).min
"""The score of a position that cannot be pointed at."""


def pointer_loss(score_BN: Tensor, batch: PassageBatch, label_smoothing: float = 0.0, label: Label = "even") -> Tensor:
    """Softmax cross entropy of every passage over its positions, ``[B]``.

    Args:
        score_BN: The scores of the positions.
        batch: The passages.
        label_smoothing: The part of the label that is spread over all positions.
        label: "even": spread over the occurrences of the answer, as in the paper. "sum": their probabilities are added
            up, however they share it.
    """
    inside_BN, right_BN = batch.pointable, batch.is_answer
    log_BN = _log_probability(score_BN, inside_BN)
    if label == "even":
        loss_B = -(_even(right_BN) * log_BN).sum(dim=1)
    else:
        loss_B = -log_BN.masked_fill(~right_BN, NONE).logsumexp(dim=1)
    return (1 - label_smoothing) * loss_B - label_smoothing * (_even(inside_BN) * log_BN).sum(dim=1)


class ContextProbabilities(NamedTuple):
    """How likely a model finds the words before an answer, counted back from it: first the word just before it."""

    words: Tensor
    """The words ``[B, N]``, as numbers of the examples' stream, -1 before the first of a passage."""
    own: Tensor
    """The probability of every place, ``[B, N]``."""
    by_word: Tensor
    """The probability of every place's word, ``[B, N]``: the sum over all its occurrences."""
    answers: Tensor
    """The words that were left out, ``[B]``."""


class Predictions(NamedTuple):
    """What a model answered to every example; each ``[E]``."""

    answers: Tensor
    """The right words, as numbers of the examples' stream."""
    by_position: Tensor
    """The words at the most likely positions."""
    by_word: Tensor
    """The words that are most likely when all their occurrences are added up."""
    probability: Tensor
    """How likely the right word was thought to be."""
    distance: Tensor
    """How many words before the answer it was last mentioned, 0 for never."""

    @property
    def accuracy(self) -> dict[str, float]:
        """Share of right answers by both ways to choose, over all examples."""
        right = {"position": self.by_position == self.answers, "word": self.by_word == self.answers}
        return {way: float(right_E.double().mean()) for way, right_E in right.items()}


Answer = Callable[[nn.Module, PassageDataset, Tensor, int], Predictions]
"""What a model answers to some rows of examples, over so many placements."""


@torch.inference_mode()
def predict(
    model: nn.Module,
    examples: PassageDataset,
    *,
    placements: int = 1,
    batch: int = 256,
    on_progress: Callable[[int], None] = lambda examples: None,
    answer: Answer | None = None,
) -> Predictions:
    """Let a model answer all examples.

    Args:
        model: Maps ids to scores; its mode is left as it was.
        examples: The passages.
        placements: Places among the positions over which probabilities are averaged; 1 is the middle alone.
        batch: Passages at once.
        on_progress: Called with the number of passages just answered.
        answer: What a model's scores mean; by default they point at a word of the passage.
    """
    answer = answer or _point
    was_training = model.training
    model.eval()
    device = examples.stream_T.device
    parts = []
    for rows_B in torch.arange(len(examples), device=device).split(batch):
        parts.append(answer(model, examples, rows_B, placements))
        on_progress(len(rows_B))
    model.train(was_training)
    return Predictions(*(torch.cat(column).cpu() for column in zip(*parts, strict=True)))


def context_probabilities(
    model: nn.Module, examples: PassageDataset, rows_B: Tensor, placements: int = 1
) -> ContextProbabilities:
    """The probabilities of the words of some examples, averaged over places among the positions."""
    back_N = torch.arange(1, examples.positions, device=rows_B.device)
    own_BN = torch.zeros(len(rows_B), len(back_N), device=rows_B.device)
    for number in range(placements):
        batch = examples.batch(rows_B, (number + 0.5) / placements)
        log_BN = _log_probability(model(batch.ids), batch.pointable)
        at_BN = batch.mask_position[:, None] - back_N
        there_BN = (at_BN >= 0) & batch.pointable.gather(1, at_BN.clamp(min=0))
        own_BN += torch.where(there_BN, log_BN.gather(1, at_BN.clamp(min=0)).exp(), 0) / placements
    words_BN = torch.where(there_BN, batch.words.gather(1, at_BN.clamp(min=0)), -1)
    same_BNN = words_BN[:, :, None] == words_BN[:, None, :]
    by_word_BN = (same_BNN * own_BN[:, None, :]).sum(dim=2)
    return ContextProbabilities(words_BN, own_BN, by_word_BN, batch.answers)


def _point(model: nn.Module, examples: PassageDataset, rows_B: Tensor, placements: int) -> Predictions:
    words_BN, own_BN, by_word_BN, answers_B = context_probabilities(model, examples, rows_B, placements)
    right_BN = words_BN == answers_B[:, None]
    distance_B = torch.where(right_BN.any(dim=1), right_BN.int().argmax(dim=1) + 1, 0)
    return Predictions(
        answers=answers_B,
        by_position=_most_likely(own_BN, words_BN),
        by_word=_most_likely(by_word_BN, words_BN),
        probability=(own_BN * right_BN).sum(dim=1),
        distance=distance_B,
    )


def _most_likely(probability_BN: Tensor, words_BN: Tensor) -> Tensor:
    return words_BN.gather(1, probability_BN.argmax(dim=1, keepdim=True))[:, 0]


def _log_probability(score_BN: Tensor, inside_BN: Tensor) -> Tensor:
    return score_BN.float().masked_fill(~inside_BN, NONE).log_softmax(dim=1)


def _even(chosen_BN: Tensor) -> Tensor:
    """One, spread over the chosen positions of every row; nothing in a row without any."""
    return chosen_BN / chosen_BN.sum(dim=1, keepdim=True).clamp(min=1)
