"""Vectors for words: a frozen table with a linear map to the features of the network, or a table that is learned."""

# B = passages, N = positions, D = features of the network, T = numbers of a table's vector
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from riffle.lambada.table import Vectors
from riffle.lambada.words import BLANK, FIRST_UNKNOWN, MASK, Words

SPREAD = 1000
"""So many of the most common words say how vectors are spread."""


class FrozenWords(nn.Module):
    r"""Words as :math:`\tanh(W v + b)` of their pretrained vectors :math:`v`, which are not trained.

    A blank is the zero vector. The mask has a vector that is learned. An unknown word has one of ``words.unknowns``
    frozen random vectors, spread like those of the table, by which it is told from others in its passage.

    Args:
        words: The ids; its known words are the first of the table's.
        vectors: The pretrained table.
        features: Feature maps per cell, :math:`m` in the paper.
        seed: Chooses the vectors of unknown words.

    Shape:
        - Input: ids :math:`(B, N)`, as :class:`Words` gives them.
        - Output: :math:`(B, N, D)` with :math:`D` = ``features``.

    Examples::

        >>> import numpy as np
        >>> vectors = Vectors(["a", "b"], np.ones((2, 5), dtype=np.float16))
        >>> FrozenWords(Words(vectors.words), vectors, features=8)(torch.tensor([[0, 1, 2, 130]])).shape
        torch.Size([1, 4, 8])
    """

    table: Tensor
    fingerprint: Tensor

    def __init__(
        self, words: Words, vectors: Vectors, features: int, *, seed: int = 0, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        if words.known != vectors.words[: len(words.known)]:
            raise ValueError(
                f"the {len(words.known)} known words are not the first of the table's {len(vectors.words)}: "
                "make both from the same table"
            )
        known = torch.from_numpy(vectors.table[: len(words.known)])
        width = known.shape[1]
        generator = torch.Generator().manual_seed(seed)
        # The most common words alone decide, so that a table cut short keeps the vectors of unknown words.
        deviation, mean = torch.std_mean(known[:SPREAD].float(), dim=0, correction=0)
        unknown = torch.randn(words.unknowns, width, generator=generator) * deviation + mean
        special = torch.zeros(FIRST_UNKNOWN, width)  # the mask's row is added in forward, where it can be learned
        rows = torch.cat([special.half(), unknown.half(), known])
        # Not part of a checkpoint: it is the same for all models and larger than most of them.
        self.register_buffer("table", rows.to(device), persistent=False)
        self.register_buffer("fingerprint", torch.tensor(words.fingerprint()))
        self.mask = nn.Parameter(torch.zeros(width, device=device, dtype=dtype))
        self.map = nn.Linear(width, features, device=device, dtype=dtype)

    def forward(self, ids_BN: Tensor) -> Tensor:
        vectors_BNT = self.table[ids_BN].to(self.map.weight.dtype)
        vectors_BNT = vectors_BNT + (ids_BN == MASK).unsqueeze(-1) * self.mask
        return torch.tanh(self.map(vectors_BNT)) * (ids_BN != BLANK).unsqueeze(-1)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        # Weights mean nothing with other vectors, and nothing but this would tell.
        *_, errors = args
        saved = state_dict.get(f"{prefix}fingerprint")
        if saved is not None and not torch.equal(saved.cpu(), self.fingerprint.cpu()):
            errors.append(f"the {len(self.table)} words of the table are not those the weights were trained with")
        super()._load_from_state_dict(state_dict, prefix, *args)

    def extra_repr(self) -> str:
        return f"words={len(self.table)}, frozen={self.table.shape[1]}"


class LearnedWords(nn.Module):
    r"""Words as :math:`\tanh(30 e)` of learned vectors :math:`e`, which begin uniform in :math:`[-0.01, 0.01]`.

    Args:
        words: The ids; with the 60,000 most common words the table has the size of the paper's.
        features: Feature maps per cell, :math:`m` in the paper.

    Shape:
        - Input: ids :math:`(B, N)`.
        - Output: :math:`(B, N, D)` with :math:`D` = ``features``; zero for a blank.

    Examples::

        >>> LearnedWords(Words(["a", "b"]), features=8)(torch.tensor([[0, 130]])).shape
        torch.Size([1, 2, 8])
    """

    def __init__(self, words: Words, features: int, *, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.table = nn.Embedding(len(words), features, padding_idx=BLANK, device=device, dtype=dtype)
        nn.init.uniform_(self.table.weight, -0.01, 0.01)
        with torch.no_grad():
            self.table.weight[BLANK].zero_()

    def forward(self, ids_BN: Tensor) -> Tensor:
        return torch.tanh(30 * self.table(ids_BN))
