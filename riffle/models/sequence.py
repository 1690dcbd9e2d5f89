"""Symbols in, symbols out: embedding, shuffle-exchange network, a class for every position.

A sequence of symbols longer than a device can hold: embedding, network and output layer part by part.
"""

# B = batch, N = length, D = features per cell, C = classes
# B = 1 sequence, N = length, D = features per cell
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from riffle.kernels import Backend
from riffle.models.base import SymbolModel
from riffle.nn.hub import HubMixin
from riffle.nn.lengths import at_own_power_of_two, at_powers_of_two, pad_to
from riffle.nn.merge import cut, join
from riffle.nn.network import ShuffleExchange
from riffle.nn.switch import Unit
from riffle.parallel import stream
from riffle.parallel.streaming import memory_mapped, part_bits
from riffle.shuffle import Sharing, bits
from riffle.tasks.base import BLANK

EMBEDDING_RANGE = 0.01
SMALL_TABLE = 64
"""Symbols up to which a product with one-hot rows is the quicker lookup in training."""
EMBEDDING_SCALE = 30.0
"""A symbol enters the network as tanh(30 e): vectors that start within ±0.3 and stay within ±1."""


class SequenceModel(SymbolModel, HubMixin, tags=["neural-shuffle-exchange"], license="mit"):
    r"""Map a sequence of symbols to scores over the output alphabet, one set for each position.

    Args:
        symbols: Size of the input alphabet; symbol 0 is the blank that pads a sequence.
        classes: Size of the output alphabet.
        features: Feature maps per cell.
        blocks, sharing, unit, dropout, noise, backend, recompute: See :class:`~riffle.nn.network.ShuffleExchange`.

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
        recompute: bool = True,
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
            dropout=dropout,
            noise=noise,
            backend=backend,
            recompute=recompute,
            **factory,
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
        _check(symbols_BN)
        if lengths is None:
            return at_powers_of_two(self._run, [symbols_BN])[0]
        return at_own_power_of_two(self._run, symbols_BN, lengths)

    def forward_batches(self, batches: Sequence[Tensor]) -> list[Tensor]:
        """The scores of several batches; embedding, output layer and merged switch layers are one call for all."""
        for symbols_BN in batches:
            _check(symbols_BN)
        return at_powers_of_two(self._run, batches) if batches else []

    def cells(self) -> Tensor:
        """What each symbol enters the network as; tanh of this table costs less than of all cells."""
        return torch.tanh(EMBEDDING_SCALE * self.embedding.weight)

    def _run(self, batches: list[Tensor]) -> list[Tensor]:
        table = self.cells()
        sizes = [symbols_BN.shape[0] * symbols_BN.shape[1] for symbols_BN in batches]
        cells_CD = _rows(table, join([symbols_BN.flatten() for symbols_BN in batches]))
        xs_BND = [x_CD.view(*x_BN.shape, -1) for x_CD, x_BN in zip(cut(cells_CD, sizes), batches, strict=True)]
        # One batch goes by the network's forward, which hooks may watch.
        ys_BND = self.network.forward_batches(xs_BND) if len(xs_BND) > 1 else [self.network(xs_BND[0])]
        scores = self.output(join([y_BND.flatten(0, 1) for y_BND in ys_BND]))
        return [part.view(*x_BN.shape, -1) for part, x_BN in zip(cut(scores, sizes), batches, strict=True)]

    def forward_cells(self, x_BND: Tensor) -> Tensor:
        """The scores of cells that are given as vectors."""
        return self.output(self.network(x_BND))

    def operations(self, length: int) -> float:
        """Additions and multiplications for one sequence: a unit's weights once for each pair of every layer."""
        k = bits(length)
        pairs = 2 ** (k - 1)
        weights = {name: sum(part.numel() for part in unit.parameters()) for name, unit in self.network.units.items()}
        return 2.0 * pairs * sum(weights[layer.unit] for layer in self.network.layers(k))

    @classmethod
    def from_official(cls, variables: Mapping[str, Any], *, blocks: int | None = None) -> SequenceModel:
        """The model whose weights the authors' TensorFlow code saved; see :meth:`ShuffleExchange.from_official`."""
        from riffle.nn.official import read_model

        arguments, state = read_model(variables, blocks)
        model = cls(**arguments, dtype=state["output.weight"].dtype)
        model.load_state_dict(state)
        return model


def _check(symbols_BN: Tensor) -> None:
    if symbols_BN.dim() != 2:
        raise ValueError(f"the input must be [batch, length] symbols, got shape {tuple(symbols_BN.shape)}")
    if symbols_BN.shape[1] < 1:
        raise ValueError("the input has no symbols: its length must be at least 1")


def _rows(table_VD: Tensor, symbols_C: Tensor) -> Tensor:
    """The rows of a table; in training, of a small one by a product, whose gradient is a product too and not a sort."""
    if table_VD.requires_grad and table_VD.shape[0] <= SMALL_TABLE:
        return F.one_hot(symbols_C, table_VD.shape[0]).to(table_VD.dtype) @ table_VD
    return F.embedding(symbols_C, table_VD)


@torch.no_grad()
def predict_streamed(
    model: nn.Module,
    symbols: list[int],
    *,
    part: int,
    scratch: Path | None = None,
    on_progress: Callable[[int, int], None] = lambda done, parts: None,
) -> list[int]:
    """The class of every position, as the model gives it when the sequence fits.

    Args:
        model: A :class:`~riffle.models.sequence.SequenceModel`, on the device that computes.
        symbols: The sequence.
        part: Cells that are on the device at once, a power of two.
        scratch: A folder for the cells, and for what skip connections keep; None for the system's temporary one.
        on_progress: See :func:`riffle.parallel.stream`.
    """
    if not isinstance(model, SequenceModel):
        raise ValueError(f"only shuffle-exchange networks can be streamed, this is a {type(model).__name__}")
    part_bits(part)  # before the cells are written
    weight = model.output.weight
    symbols_BN = torch.tensor([symbols or [BLANK]])
    length = symbols_BN.shape[1]
    symbols_BN = pad_to(symbols_BN, 2 ** bits(length))
    with TemporaryDirectory(dir=scratch) as folder:
        like = torch.empty(*symbols_BN.shape, model.network.features, dtype=weight.dtype, device="meta")
        state_BND = memory_mapped(Path(folder, "cells"), like)
        table = model.cells()
        for cells_BND, inputs_BN in zip(state_BND.split(part, 1), symbols_BN.split(part, 1), strict=True):
            cells_BND.copy_(F.embedding(inputs_BN.to(weight.device), table))
        stream(model.network, state_BND, part=part, scratch=Path(folder), on_progress=on_progress)
        classes: list[int] = []
        for cells_BND in state_BND.split(part, 1):
            classes += model.output(cells_BND.to(weight.device)).argmax(-1)[0].tolist()
    return classes[:length]
