"""Symbols in, symbols out: embedding, shuffle-exchange network, a class for every position."""

# B = batch, N = length, D = features per cell, C = classes
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from riffle.kernels import Backend
from riffle.nn.lengths import at_own_power_of_two, at_power_of_two
from riffle.nn.network import ShuffleExchange
from riffle.nn.pretrained import Pretrained
from riffle.nn.switch import Unit
from riffle.shuffle import Sharing

EMBEDDING_RANGE = 0.01
EMBEDDING_SCALE = 30.0
"""A symbol enters the network as tanh(30 e): vectors that start within ±0.3 and stay within ±1."""


class SequenceModel(nn.Module, Pretrained, tags=["neural-shuffle-exchange"], license="mit"):
    r"""Map a sequence of symbols to scores over the output alphabet, one set for each position.

    Args:
        symbols: Size of the input alphabet; symbol 0 is the blank that pads a sequence.
        classes: Size of the output alphabet.
        features: Feature maps per cell.
        blocks, sharing, unit, dropout, noise, backend: See :class:`~riffle.nn.network.ShuffleExchange`.

    Shape:
        - Input: :math:`(B, N)` integers below ``symbols``, any :math:`N \ge 1`.
        - Output: :math:`(B, N, C)` with :math:`C` = ``classes``.

    Examples::

        >>> model = SequenceModel(symbols=12, classes=12, features=16)
        >>> model(torch.tensor([[3, 1, 2]])).shape
        torch.Size([1, 3, 12])
    """

    def __init__(
        self,
        symbols: int,
        classes: int,
        features: int,
        blocks: int = 1,
        *,
        sharing: Sharing = "block",
        unit: Unit = "gated",
        dropout: float = 0.0,
        noise: float = 0.0,
        backend: Backend = "auto",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        factory = {"device": device, "dtype": dtype}
        self.embedding = nn.Embedding(symbols, features, **factory)
        self.network = ShuffleExchange(
            features, blocks, sharing=sharing, unit=unit, dropout=dropout, noise=noise, backend=backend, **factory
        )
        self.output = nn.Linear(features, classes, **factory)
        nn.init.uniform_(self.embedding.weight, -EMBEDDING_RANGE, EMBEDDING_RANGE)
        nn.init.xavier_uniform_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, symbols_BN: Tensor, lengths: Tensor | Sequence[int] | None = None) -> Tensor:
        """Score every class at every position.

        Args:
            symbols_BN: The symbols, blank-padded.
            lengths: The length of every row, where they differ; each row then runs at the smallest power of two that
                holds it, whatever it is batched with, and scores past its end are zero.
        """
        if symbols_BN.dim() != 2:
            raise ValueError(f"the input must be [batch, length] symbols, got shape {tuple(symbols_BN.shape)}")
        if symbols_BN.shape[1] < 1:
            raise ValueError("the input has no symbols: its length must be at least 1")
        if lengths is None:
            return at_power_of_two(self._run, symbols_BN)
        return at_own_power_of_two(self._run, symbols_BN, lengths)

    def _run(self, symbols_BN: Tensor) -> Tensor:
        cells_BND = torch.tanh(EMBEDDING_SCALE * self.embedding(symbols_BN))
        return self.output(self.network(cells_BND))

    @classmethod
    def from_official(cls, variables: Mapping[str, Any], *, blocks: int | None = None) -> SequenceModel:
        """The model whose weights the authors' TensorFlow code saved; see :meth:`ShuffleExchange.from_official`."""
        from riffle.nn.official import read_model

        arguments, state = read_model(variables, blocks)
        model = cls(**arguments, dtype=state["output.weight"].dtype)
        model.load_state_dict(state)
        return model
