"""Loss and accuracy, as the paper counts them."""

# B = batch, N = length, C = classes
from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from riffle.tasks.base import BLANK


def sequence_loss(logits_BNC: Tensor, targets_BN: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Softmax cross entropy of every row, averaged over all its positions, blanks included."""
    loss_BN = F.cross_entropy(
        logits_BNC.float().transpose(1, 2) if logits_BNC.dtype != torch.float64 else logits_BNC.transpose(1, 2),
        targets_BN,
        reduction="none",
        label_smoothing=label_smoothing,
    )
    return loss_BN.mean(dim=1)


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
    matters_BN = (targets_BN != BLANK) | (outputs_BN != BLANK)
    right_BN = (outputs_BN == targets_BN) & matters_BN
    perfect_B = (outputs_BN == targets_BN).all(dim=1)
    return Counts(right_BN.sum(), matters_BN.sum(), perfect_B.sum(), torch.full_like(perfect_B.sum(), len(perfect_B)))
