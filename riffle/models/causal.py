"""A model of sequences of symbols that writes: the next symbol from all before it."""

# B = batch, N = length, D = features per cell, C = classes
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from riffle.models.base import SymbolModel, check_symbols
from riffle.models.sequence import EMBEDDING_RANGE, EMBEDDING_SCALE
from riffle.nn.causal import CausalCache, CausalShuffleExchange
from riffle.nn.lengths import checked_lengths
from riffle.shuffle import Sharing
from riffle.tasks.task import BLANK


class CausalModel(SymbolModel, tags=["neural-shuffle-exchange"]):
    r"""Map a sequence of symbols to scores at every position, which depend on the symbols up to that position.

    Args:
        symbols: Size of the input alphabet; symbol 0 is the blank that pads a sequence.
        classes: Size of the output alphabet.
        features: Feature maps per cell.
        blocks, sharing, unit, dropout, length: See :class:`~riffle.nn.causal.CausalShuffleExchange`.

    Shape:
        - Input: :math:`(B, N)` integers below ``symbols``, any :math:`N \ge 1`.
        - Output: :math:`(B, N, C)` with :math:`C` = ``classes``.

    Examples::

        >>> model = CausalModel(symbols=12, classes=12, features=16)
        >>> model.generate(torch.tensor([[3, 1, 2]]), 5).shape
        torch.Size([1, 5])
    """

    def __init__(
        self,
        symbols: int,
        classes: int,
        features: int,
        blocks: int = 1,
        *,
        sharing: Sharing = "block",
        unit: str = "residual",
        dropout: float = 0.0,
        length: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        factory = {"device": device, "dtype": dtype}
        self.embedding = nn.Embedding(symbols, features, **factory)
        options: dict[str, Any] = {"sharing": sharing, "unit": unit, "dropout": dropout, "length": length}
        self.network = CausalShuffleExchange(features, blocks, **options, **factory)
        self.output = nn.Linear(features, classes, **factory)
        self._reset_own_parameters()

    def _reset_own_parameters(self) -> None:
        nn.init.uniform_(self.embedding.weight, -EMBEDDING_RANGE, EMBEDDING_RANGE)
        nn.init.xavier_uniform_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def reset_parameters(self) -> None:
        """Draw all parameters as those of a new model, as after ``to_empty`` of one on the device "meta"."""
        self.network.reset_parameters()
        self._reset_own_parameters()

    def embed(self, symbols_BN: Tensor) -> Tensor:
        """The cells of symbols, within [-1, 1]."""
        return torch.tanh(EMBEDDING_SCALE * self.embedding(symbols_BN))

    def scores(self, y_BND: Tensor) -> Tensor:
        """The scores of cells that have passed the network, normalised where it lets them grow."""
        return self.output(y_BND if self.network.bounded else F.layer_norm(y_BND, y_BND.shape[-1:]))

    def forward_cells(self, x_BND: Tensor) -> Tensor:
        return self.scores(self.network(x_BND))

    @torch.no_grad()
    def generate(
        self, symbols_BN: Tensor, count: int, lengths: Tensor | Sequence[int] | None = None, **sampling: Any
    ) -> Tensor:
        """Continue sequences by ``count`` symbols each, ``[B, count]``; see :meth:`write`."""
        return torch.stack(list(self.write(symbols_BN, count, lengths, **sampling)), 1)

    @torch.no_grad()
    def write(
        self,
        symbols_BN: Tensor,
        count: int,
        lengths: Tensor | Sequence[int] | None = None,
        *,
        temperature: float = 1.0,
        top_p: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> Iterator[Tensor]:
        """Continue sequences one symbol at a time, ``[B]`` each: a step of the network, never the blank.

        Args:
            symbols_BN: The beginnings, of at least one symbol.
            count: How many symbols to write.
            lengths: The length of every beginning, where they differ.
            temperature: What the scores are divided by before a symbol is drawn; 0 takes the most likely one.
            top_p: Draw from the most likely symbols whose probability adds up to this.
            generator: Draws the symbols.
        """
        check_symbols([symbols_BN])
        if count < 1:
            raise ValueError(f"count must be at least 1, got {count}")
        if temperature < 0 or not 0 < top_p <= 1:
            raise ValueError(f"temperature must be at least 0 and top_p in (0, 1], got {temperature} and {top_p}")
        if self.output.out_features != self.embedding.num_embeddings:
            raise ValueError("only a model whose outputs are its inputs can write: give symbols and classes alike")
        batch, longest = symbols_BN.shape
        sizes = [longest] * batch if lengths is None else checked_lengths(lengths, batch, longest)
        if 0 in sizes:
            raise ValueError("a beginning must have at least one symbol")
        y_BND, cache = self.network.prefill(self.embed(symbols_BN), sizes, length=longest + count)
        last_B = cache.positions - 1
        scores_BC = self.scores(y_BND[torch.arange(batch, device=last_B.device), last_B])
        for written in range(count):
            chosen_B = choose(scores_BC, temperature, top_p, generator)
            yield chosen_B
            if written + 1 < count:
                scores_BC = self.step(chosen_B, cache)

    def step(self, symbols_B: Tensor, cache: CausalCache) -> Tensor:
        """The scores after one more symbol of every row, ``[B, C]``; the cache is overwritten."""
        y_BD, _ = self.network.step(self.embed(symbols_B), cache)
        return self.scores(y_BD)


def choose(scores_BC: Tensor, temperature: float, top_p: float, generator: torch.Generator | None = None) -> Tensor:
    """Draw a symbol of every row, ``[B]``, but never the blank.

    >>> choose(torch.tensor([[9.0, 1.0, 3.0, 2.0]]), 0, 1.0).tolist()
    [2]
    """
    scores_BC = scores_BC.index_fill(1, torch.tensor([BLANK], device=scores_BC.device), -torch.inf)
    if temperature == 0:
        return scores_BC.argmax(-1)
    sorted_BC, order_BC = (scores_BC.float() / temperature).softmax(-1).sort(descending=True)
    before_BC = sorted_BC.cumsum(-1) - sorted_BC
    kept_BC = torch.where(before_BC < top_p, sorted_BC, 0)
    return order_BC.gather(1, torch.multinomial(kept_BC, 1, generator=generator))[:, 0]
