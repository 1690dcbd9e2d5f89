"""What a pointer says: its loss in training, the word it chooses, how many passages it answers."""

# B = passages, N = positions, E = examples
from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from riffle.lambada.placing import Examples, Placed

Label = Literal["even", "sum"]
NONE = torch.finfo(torch.float32).min
"""The score of a position that cannot be pointed at."""


def pointer_loss(score_BN: Tensor, placed: Placed, label_smoothing: float = 0.0, label: Label = "even") -> Tensor:
    """Softmax cross entropy of every passage over its positions, ``[B]``.

    Args:
        score_BN: The scores of the positions.
        placed: The passages.
        label_smoothing: The part of the label that is spread over all positions.
        label: "even": spread over the occurrences of the answer, as in the paper. "sum": their probabilities are added
            up, however they share it.
    """
    inside_BN, right_BN = placed.inside, placed.right
    log_BN = _log_probability(score_BN, inside_BN)
    if label == "even":
        loss_B = -(_even(right_BN) * log_BN).sum(dim=1)
    else:
        loss_B = -log_BN.masked_fill(~right_BN, NONE).logsumexp(dim=1)
    return (1 - label_smoothing) * loss_B - label_smoothing * (_even(inside_BN) * log_BN).sum(dim=1)


class Spread(NamedTuple):
    """How likely a model finds the words before an answer, counted back from it: first the word just before it."""

    words: Tensor
    """The words ``[B, N]``, as numbers of the examples' stream, -1 before the first of a passage."""
    own: Tensor
    """The probability of every place, ``[B, N]``."""
    by_word: Tensor
    """The probability of every place's word, ``[B, N]``: the sum over all its occurrences."""
    answers: Tensor
    """The words that were left out, ``[B]``."""


class Pointed(NamedTuple):
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


Answer = Callable[[nn.Module, Examples, Tensor, int], Pointed]
"""What a model answers to some rows of examples, over so many placements."""


@torch.inference_mode()
def point(
    model: nn.Module,
    examples: Examples,
    *,
    placements: int = 1,
    batch: int = 256,
    on_progress: Callable[[int], None] = lambda examples: None,
    answer: Answer | None = None,
) -> Pointed:
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
    return Pointed(*(torch.cat(column).cpu() for column in zip(*parts, strict=True)))


def spread(model: nn.Module, examples: Examples, rows_B: Tensor, placements: int = 1) -> Spread:
    """The probabilities of the words of some examples, averaged over places among the positions."""
    back_N = torch.arange(1, examples.positions, device=rows_B.device)
    own_BN = torch.zeros(len(rows_B), len(back_N), device=rows_B.device)
    for number in range(placements):
        placed = examples.placed(rows_B, (number + 0.5) / placements)
        log_BN = _log_probability(model(placed.ids), placed.inside)
        at_BN = placed.mask[:, None] - back_N
        there_BN = (at_BN >= 0) & placed.inside.gather(1, at_BN.clamp(min=0))
        own_BN += torch.where(there_BN, log_BN.gather(1, at_BN.clamp(min=0)).exp(), 0) / placements
    words_BN = torch.where(there_BN, placed.words.gather(1, at_BN.clamp(min=0)), -1)
    same_BNN = words_BN[:, :, None] == words_BN[:, None, :]
    by_word_BN = (same_BNN * own_BN[:, None, :]).sum(dim=2)
    return Spread(words_BN, own_BN, by_word_BN, placed.answers)


def _point(model: nn.Module, examples: Examples, rows_B: Tensor, placements: int) -> Pointed:
    words_BN, own_BN, by_word_BN, answers_B = spread(model, examples, rows_B, placements)
    right_BN = words_BN == answers_B[:, None]
    distance_B = torch.where(right_BN.any(dim=1), right_BN.int().argmax(dim=1) + 1, 0)
    return Pointed(
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
