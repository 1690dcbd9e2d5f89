"""Loss and accuracy, as the paper counts them."""

# B = batch, N = length, C = classes, X = any number of symbols
from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from riffle.tasks.base import BLANK


def symbol_loss(logits_XC: Tensor, targets_X: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Softmax cross entropy of every symbol, at least in float32."""
    logits_XC = logits_XC if logits_XC.dtype == torch.float64 else logits_XC.float()
    return F.cross_entropy(logits_XC, targets_X, reduction="none", label_smoothing=label_smoothing)


def sequence_loss(logits_BNC: Tensor, targets_BN: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Softmax cross entropy of every row, averaged over all its positions, blanks included."""
    loss_X = symbol_loss(logits_BNC.flatten(0, 1), targets_BN.flatten(), label_smoothing)
    return loss_X.view_as(targets_BN).mean(dim=1)


class Counts(NamedTuple):
    """Right and wrong answers, as tensors that can be added up without waiting for the device."""

    right: Tensor
    """Right symbols, where the target or the output is not blank."""
    symbols: Tensor
    """All such symbols."""
    right_sequences: Tensor
    """Rows without a wrong symbol."""
    sequences: Tensor
    """Rows."""


def count(logits_BNC: Tensor, targets_BN: Tensor) -> Counts:
    """Compare outputs with targets over the positions where either is not blank."""
    outputs_BN = logits_BNC.argmax(dim=-1)
    right_symbols, symbols = count_symbols(outputs_BN, targets_BN)
    perfect_B = (outputs_BN == targets_BN).all(dim=1)
    return Counts(right_symbols, symbols, perfect_B.sum(), torch.full_like(perfect_B.sum(), len(perfect_B)))


def count_symbols(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """How many symbols are right, and how many there are, where target or output is not blank; any shape."""
    matters = (targets != BLANK) | (outputs != BLANK)
    return ((outputs == targets) & matters).sum(), matters.sum()
