"""Rivals of the causal network: a transformer, a GRU and gated linear attention, each a stack of pre-norm layers."""

# B = batch, N = length, D = features, H = heads, E = D // H features per head, M = chunks of C cells
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from research.baselines.transformers import Attention, FeedForward, ScaledEmbedding, choose_heads
from riffle.models.base import SymbolModel
from riffle.nn.lengths import pad_to

CHUNK = 64
"""Cells of which linear attention forms all pairs; it passes a state from one chunk to the next."""
SLOW_DECAY = 16
"""What the logarithm of a forget gate is divided by, as Yang et al. (2024) do, so that a state is kept for long."""


class GatedLinearAttention(nn.Module):
    r"""A state :math:`S_i = a_i S_{i-1} + k_i v_i^T` read by :math:`q_i`; each head forgets by its :math:`a`."""

    def __init__(self, features: int, heads: int, **factory: Any) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(features, 3 * features, bias=False, **factory)
        self.forget = nn.Linear(features, heads, **factory)
        self.gate, self.output = (nn.Linear(features, features, bias=False, **factory) for _ in range(2))

    def forward(self, x_BND: Tensor) -> Tensor:
        """What the cells read, normalised for each head and gated."""
        length = x_BND.shape[1]
        cells_BND = pad_to(x_BND, -(-length // CHUNK) * CHUNK)
        parts = (part.unflatten(-1, (self.heads, -1)) for part in self.query_key_value(cells_BND).chunk(3, dim=-1))
        query, key, value = (part.transpose(1, 2).unflatten(2, (-1, CHUNK)) for part in parts)  # [B, H, M, C, E]
        forget = F.logsigmoid(self.forget(cells_BND).float()).transpose(1, 2) / SLOW_DECAY
        decay_BHMC = forget.unflatten(2, (-1, CHUNK)).cumsum(-1)
        earlier_CC = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=x_BND.device).tril()
        steps_BHMCC = (decay_BHMC[..., None] - decay_BHMC[..., None, :]).masked_fill(~earlier_CC, -torch.inf)
        key = key * key.shape[-1] ** -0.5
        read = (query @ key.transpose(-1, -2) * steps_BHMCC.exp().to(query.dtype)) @ value
        left_BHMC = (decay_BHMC[..., -1:] - decay_BHMC).exp().to(query.dtype)
        added = (key * left_BHMC[..., None]).transpose(-1, -2) @ value
        state = torch.zeros_like(added[:, :, 0])
        states = []
        for chunk in range(added.shape[2]):
            states.append(state)
            state = decay_BHMC[:, :, chunk, -1, None, None].exp().to(state.dtype) * state + added[:, :, chunk]
        read = read + decay_BHMC[..., None].exp().to(query.dtype) * (query @ torch.stack(states, 2))
        read = F.rms_norm(read, read.shape[-1:]).flatten(2, 3)[:, :, :length].transpose(1, 2).flatten(-2)
        return self.output(read * F.silu(self.gate(x_BND)))


class CausalRecurrence(nn.GRU):
    """A GRU that gives its states."""

    def __init__(self, features: int, heads: int, **factory: Any) -> None:
        super().__init__(features, features, batch_first=True, **factory)

    def forward(self, x_BND: Tensor) -> Tensor:  # type: ignore[override]
        """The states after each cell."""
        return super().forward(x_BND)[0]


MIXERS: dict[str, Callable[..., nn.Module]] = {
    "causal-transformer": partial(Attention, positions="rotary", causal=True),
    "causal-linear-attention": GatedLinearAttention,
    "causal-gru": CausalRecurrence,
}
"""What mixes the cells, by the kind of the model."""


class CausalRival(SymbolModel):
    """Map a sequence of symbols to scores that depend on the symbols up to each position.

    Args:
        symbols, classes: See :class:`~riffle.models.base.SymbolModel`.
        features: Features per position.
        mixer: An entry of :data:`MIXERS`.
        layers: Layers of the mixer and a feed-forward layer; of a GRU the mixer alone.
        dropout: Dropout rate of what each sublayer adds.
    """

    def __init__(
        self,
        symbols: int,
        classes: int,
        features: int,
        *,
        mixer: str,
        layers: int = 4,
        dropout: float = 0.0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        factory = {"device": device, "dtype": dtype}
        self.embedding = ScaledEmbedding(symbols, features, **factory)
        self.sublayers = nn.ModuleList()
        for _ in range(layers):
            self.sublayers.append(MIXERS[mixer](features, choose_heads(features), **factory))
            if mixer != "causal-gru":
                self.sublayers.append(FeedForward(features, nn.GELU(), **factory))
        self.norms = nn.ModuleList(nn.LayerNorm(features, **factory) for _ in self.sublayers)
        self.dropout, self.norm = nn.Dropout(dropout), nn.LayerNorm(features, **factory)
        self.output = nn.Linear(features, classes, **factory)

    def forward_cells(self, x_BND: Tensor) -> Tensor:
        for norm, sublayer in zip(self.norms, self.sublayers, strict=True):
            x_BND = x_BND + self.dropout(sublayer(norm(x_BND)))
        return self.output(self.norm(x_BND))
