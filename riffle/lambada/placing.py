"""Passages of a corpus as a network reads them: placed among its positions, the answer masked; on any device."""

# B = passages, N = positions, E = examples, T = tokens of the stream
from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from riffle.lambada.passages import index
from riffle.lambada.words import MASK, Words

NO_WORD = -1
"""The corpus word of a position without one."""
COMMON = 1000
"""The most common words, which are never forgotten."""


class Placed(NamedTuple):
    """Passages among the positions of a network."""

    ids: Tensor
    """What the network reads, ``[B, N]``: ids of words, the mask at the answer's place, blanks around."""
    words: Tensor
    """The corpus words there, ``[B, N]``; :data:`NO_WORD` where none is and at the answer's place."""
    answers: Tensor
    """The corpus words that were left out, ``[B]``."""
    mask: Tensor
    """Their places, ``[B]``."""

    @property
    def inside(self) -> Tensor:
        """Positions that can be pointed at, ``[B, N]``."""
        return self.words != NO_WORD

    @property
    def right(self) -> Tensor:
        """Where the answer occurs, ``[B, N]``."""
        return self.words == self.answers[:, None]


class Examples:
    """Passages in a stream of tokens on a device, to be drawn at random or taken in order.

    Args:
        stream_T: The tokens: numbers of words, of which the lower ones are more common.
        examples: Where the passages lie, see :data:`riffle.lambada.sentences.EXAMPLE`.
        words: The words the model knows.
        lookup_V: What ``words.lookup`` gives for the words that tokens number.
        positions: Positions of the network; a longer passage keeps its last ones.
        flatten: How far answers that occur often are drawn less: 0 as they occur, 1 all alike.
    """

    def __init__(
        self,
        stream_T: Tensor,
        examples: NDArray[np.void],
        words: Words,
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
    def of(cls, passages: Sequence[Sequence[str]], words: Words, positions: int, device: Any = "cpu") -> Examples:
        """Passages given as words, the answer last."""
        different = list(dict.fromkeys(chain.from_iterable(passages)))
        numbers = {word: number for number, word in enumerate(different)}
        stream_T = torch.tensor([numbers[word] for word in chain.from_iterable(passages)], device=device)
        return cls(stream_T, index(passages, 0), words, words.lookup(different).to(device), positions)

    def __len__(self) -> int:
        return len(self.context_E)

    def draw(self, batch: int, *, forget: float = 0.0, generator: torch.Generator) -> Placed:
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

    def placed(self, rows_B: Tensor, share: float = 0.5) -> Placed:
        """Given examples with this share of the free positions before them; by default in the middle."""
        free_B = self.positions - 1 - self.context_E[rows_B]
        return self._place(rows_B, (free_B * share).long())

    def _place(self, rows_B: Tensor, before_B: Tensor, forgotten_BN: Tensor | None = None) -> Placed:
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
        return Placed(ids_BN, words_BN, self.stream_T[answer_at_B], before_B + context_B1[:, 0])


def _shares(answers_E: Tensor, flatten: float) -> Tensor:
    """Up to which number between 0 and 1 each example is drawn."""
    weights_E = answers_E.bincount()[answers_E].double() ** -flatten
    return weights_E.cumsum(0) / weights_E.sum()
