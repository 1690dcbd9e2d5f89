"""The Universal Transformer as a reader: which word a passage ends with."""

# B = batch, N = length, D = features, V = words
from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from riffle.baselines.universal_transformer import PONDER_WEIGHT, UniversalStack, embed, make_embedding
from riffle.models.base import Reader
from riffle.nn.pretrained import Pretrained

Head = Literal["class", "pointer"]


class UniversalReader(Reader, Pretrained, tags=["universal-transformer"], license="mit"):
    r"""Answer a passage with a word: a class over the vocabulary, or a position of the passage.

    The class head is that of the Universal Transformer's paper: a decoder attends to the encoded passage from one
    position that starts as zeros, and a linear map scores every word. The pointer head scores every position of the
    encoded passage, as a shuffle-exchange network does.

    Args:
        words: Size of the vocabulary; word 0 is the blank.
        features: Features per position.
        head: "class" or "pointer".
        classes: Words that can be an answer, where these are not all of ``words``.
        **stack: See :class:`~riffle.baselines.universal_transformer.UniversalStack`.

    Shape:
        - Input: :math:`(B, N)` words.
        - Output: :math:`(B, V)` with :math:`V` = ``classes`` for classes, :math:`(B, N)` for a pointer.

    Examples::

        >>> passage = torch.tensor([[3, 1, 2, 5]])
        >>> UniversalReader(100, 16, steps=2)(passage).shape
        torch.Size([1, 100])
        >>> UniversalReader(100, 16, steps=2, head="pointer")(passage).shape
        torch.Size([1, 4])
    """

    def __init__(
        self,
        words: int,
        features: int = 1024,
        *,
        head: Head = "class",
        classes: int | None = None,
        device: Any = None,
        dtype: Any = None,
        **stack: Any,
    ) -> None:
        super().__init__()
        if head not in ("class", "pointer"):
            raise ValueError(f"unknown head {head!r}; choose one of class, pointer")
        factory = {"device": device, "dtype": dtype}
        self.embedding = make_embedding(words, features, **factory)
        self.encoder = UniversalStack(features, **stack, **factory)
        self.decoder = UniversalStack(features, cross=True, **stack, **factory) if head == "class" else None
        self.output = nn.Linear(features, (classes or words) if head == "class" else 1, **factory)

    def forward(self, words_BN: Tensor) -> Tensor:
        """Score every word, or every position."""
        return self.read(embed(self.embedding, words_BN))

    def read(self, x_BND: Tensor) -> Tensor:
        """The same for words that are given as vectors."""
        passage_BND = self.encoder(x_BND)
        if self.decoder is None:
            return self.output(passage_BND)[..., 0]
        answer_B1D = self.decoder(torch.zeros_like(passage_BND[:, :1]), passage_BND)
        return self.output(answer_B1D)[:, 0]

    def extra_loss(self) -> Tensor:
        """The weighted ponder loss of the last call; zero without halting."""
        stacks = [self.encoder] if self.decoder is None else [self.encoder, self.decoder]
        ponder = [stack.ponder for stack in stacks if stack.ponder is not None]
        return PONDER_WEIGHT * torch.stack(ponder).sum() if ponder else torch.zeros_like(self.output.bias[0])
