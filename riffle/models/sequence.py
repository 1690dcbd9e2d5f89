"""The paper's model: an embedding of symbols, a shuffle-exchange network, an output layer at every position.

:func:`predict_streamed` runs a trained one on a sequence that is longer than a device can hold.
"""

# B = batch, N = length, D = features per cell, C = classes; R = all positions of all batches, V = symbols
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from riffle.kernels import Backend
from riffle.kernels.reference import Norm
from riffle.models.base import SymbolModel, check_symbols
from riffle.nn.lengths import at_own_padded_length, at_padded_lengths, concatenate, pad_to, split
from riffle.nn.network import ShuffleExchange
from riffle.shuffle import Pad, Sharing, padded_length
from riffle.tasks.task import BLANK

EMBEDDING_RANGE = 0.01
SMALL_TABLE = 64
"""Symbols up to which a product with one-hot rows is the faster lookup in training."""
EMBEDDING_SCALE = 30.0
"""A symbol enters the network as tanh(30 e): vectors that start within ±0.3 and stay within ±1."""


class SequenceModel(SymbolModel, tags=["neural-shuffle-exchange"]):
    r"""Map a sequence of symbols to scores over the output alphabet at every position.

    Args:
        symbols: Size of the input alphabet; symbol 0 is the blank that pads a sequence.
        classes: Size of the output alphabet.
        features: Feature maps per cell.
        blocks, sharing, unit, norm, dropout, noise, pad, backend, recompute: See
            :class:`~riffle.nn.network.ShuffleExchange`.

    Shape:
        - Input: :math:`(B, N)` integers below ``symbols``, any :math:`N \ge 1`. Rows whose ``lengths`` are given run on
          the smallest number of cells that holds them and ``pad`` allows, whatever they are batched with.
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
        unit: str = "gated",
        norm: Norm = "features",
        dropout: float = 0.0,
        noise: float = 0.0,
        pad: Pad = "power",
        backend: Backend = "auto",
        recompute: bool | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        factory = {"device": device, "dtype": dtype}
        self.embedding = nn.Embedding(symbols, features, **factory)
        self.network = ShuffleExchange(
            features,
            blocks,
            sharing=sharing,
            unit=unit,
            norm=norm,
            dropout=dropout,
            noise=noise,
            pad=pad,
            backend=backend,
            recompute=recompute,
            **factory,
        )
        self.output = nn.Linear(features, classes, **factory)
        nn.init.uniform_(self.embedding.weight, -EMBEDDING_RANGE, EMBEDDING_RANGE)
        nn.init.xavier_uniform_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, symbols_BN: Tensor, lengths: Tensor | Sequence[int] | None = None) -> Tensor:
        check_symbols([symbols_BN])
        if lengths is None:
            return at_padded_lengths(self._run, [symbols_BN], self.network.pad)[0]
        return at_own_padded_length(self._run, symbols_BN, lengths, self.network.pad)

    def forward_batches(self, batches: Sequence[Tensor]) -> list[Tensor]:
        """Score several batches; embedding, output layer and merged switch layers are one call for all."""
        check_symbols(batches)
        return at_padded_lengths(self._run, batches, self.network.pad) if batches else []

    def cells(self) -> Tensor:
        """The cell of every symbol, ``[V, D]``; the tanh of this table costs less than that of all positions."""
        return torch.tanh(EMBEDDING_SCALE * self.embedding.weight)

    def _run(self, batches: list[Tensor]) -> list[Tensor]:
        table = self.cells()
        sizes = [symbols_BN.shape[0] * symbols_BN.shape[1] for symbols_BN in batches]
        cells_RD = look_up(table, concatenate([symbols_BN.flatten() for symbols_BN in batches]))
        xs_BND = [x_RD.view(*x_BN.shape, -1) for x_RD, x_BN in zip(split(cells_RD, sizes), batches, strict=True)]
        # A single batch goes through the network's forward, so that hooks see it.
        ys_BND = self.network.forward_batches(xs_BND) if len(xs_BND) > 1 else [self.network(xs_BND[0])]
        scores = self.output(concatenate([y_BND.flatten(0, 1) for y_BND in ys_BND]))
        return [part.view(*x_BN.shape, -1) for part, x_BN in zip(split(scores, sizes), batches, strict=True)]

    def forward_cells(self, x_BND: Tensor) -> Tensor:
        return self.output(self.network(x_BND))

    @classmethod
    def from_official(cls, variables: Mapping[str, Any], *, blocks: int | None = None) -> SequenceModel:
        """The model whose weights the authors' TensorFlow code saved; see :meth:`ShuffleExchange.from_official`."""
        from riffle.nn.official import load_network, read_model

        arguments, state, network = read_model(variables, blocks)
        model = cls(**arguments, dtype=state["output.weight"].dtype)
        model.load_state_dict(state, strict=False)
        load_network(model.network, network)
        return model


def look_up(table_VD: Tensor, symbols_R: Tensor) -> Tensor:
    """The rows of a table; a small one is multiplied in training, since an embedding's gradient sorts the symbols."""
    if table_VD.requires_grad and table_VD.shape[0] <= SMALL_TABLE:
        return F.one_hot(symbols_R, table_VD.shape[0]).to(table_VD.dtype) @ table_VD
    return F.embedding(symbols_R, table_VD)


@torch.no_grad()
def predict_streamed(
    model: nn.Module,
    symbols: list[int],
    *,
    part: int,
    scratch: Path | None = None,
    on_progress: Callable[[int, int], None] = lambda done, parts: None,
) -> list[int]:
    """The class of every position of a sequence whose cells lie on disk in ``scratch``, the system's by default.

    ``part`` of them, a power of two, are on the model's device at once, see :func:`riffle.parallel.stream`.
    """
    from riffle.parallel.streaming import memory_mapped, part_bits, stream

    if not isinstance(model, SequenceModel):
        raise ValueError(f"only shuffle-exchange networks can be streamed, this is a {type(model).__name__}")
    part_bits(part)  # before the cells are written
    weight = model.output.weight
    symbols_BN = torch.tensor([symbols or [BLANK]])
    length = symbols_BN.shape[1]
    symbols_BN = pad_to(symbols_BN, padded_length(length, model.network.pad))
    like = torch.empty(*symbols_BN.shape, model.network.features, dtype=weight.dtype, device="meta")
    state_BND = memory_mapped(like, scratch)
    table = model.cells()
    for cells_BND, inputs_BN in zip(state_BND.split(part, 1), symbols_BN.split(part, 1), strict=True):
        cells_BND.copy_(F.embedding(inputs_BN.to(weight.device), table))
    stream(model.network, state_BND, part=part, scratch=scratch or Path(gettempdir()), on_progress=on_progress)
    classes: list[int] = []
    for cells_BND in state_BND.split(part, 1):
        classes += model.output(cells_BND.to(weight.device)).argmax(-1)[0].tolist()
    return classes[:length]
