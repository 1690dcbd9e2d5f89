"""A sequence of symbols longer than a device can hold: embedding, network and output layer part by part."""

# B = 1 sequence, N = length, D = features per cell
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import nn
from torch.nn import functional as F

from riffle.models.sequence import SequenceModel
from riffle.nn.lengths import bits, pad_to
from riffle.parallel import stream
from riffle.parallel.mapped import mapped
from riffle.parallel.streaming import part_bits
from riffle.tasks.base import BLANK


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
        state_BND = mapped(Path(folder, "cells"), like)
        table = model.cells()
        for cells_BND, inputs_BN in zip(state_BND.split(part, 1), symbols_BN.split(part, 1), strict=True):
            cells_BND.copy_(F.embedding(inputs_BN.to(weight.device), table))
        stream(model.network, state_BND, part=part, scratch=Path(folder), on_progress=on_progress)
        classes: list[int] = []
        for cells_BND in state_BND.split(part, 1):
            classes += model.output(cells_BND.to(weight.device)).argmax(-1)[0].tolist()
    return classes[:length]
