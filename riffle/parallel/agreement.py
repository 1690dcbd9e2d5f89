"""Whether all ranks of a sequence group mean the same, asked before cells travel: afterwards they would hang."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

WIDTHS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integers as wide as a weight, to read its bits by."""


class Meaning(NamedTuple):
    """What a rank is about to do; the fields are in the order in which a disagreement is told."""

    network: int
    """A checksum of the network's arguments."""
    batch: int
    """Rows."""
    cells: int
    """Cells of this rank."""
    dtype: int
    """A checksum of the dtype's name."""
    gradients: int
    """Whether weights want gradients."""
    input_gradients: int
    """Whether the input wants its gradient."""
    lengths: int
    """A checksum of the rows' lengths."""
    weights: int
    """A checksum of the weights at the first call."""


REMEDIES = {
    "network": "the ranks of sequence_group have networks with different arguments: build the same one on every rank",
    "batch": "the ranks of sequence_group have batches of {values} rows: give every rank its part of the same rows",
    "cells": "the ranks of sequence_group have shards of {values} cells: give every rank as many",
    "dtype": "the ranks of sequence_group have inputs of different dtypes: convert them to one",
    "gradients": "some ranks of sequence_group want gradients and others do not: all must take part in a backward pass",
    "input_gradients": "some ranks of sequence_group want their input's gradient and others do not: "
    "call requires_grad_() on the input of every rank or of none",
    "lengths": "the ranks of sequence_group have different lengths=: give every rank those of the whole rows",
    "weights": "the ranks of sequence_group have different weights: load the same ones, or seed alike before building",
}


def agree(mine: Meaning, group: dist.ProcessGroup, device: torch.device) -> None:
    """Raise the same ``ValueError`` on every rank where they do not mean the same; one small all-gather."""
    own = torch.tensor(mine, dtype=torch.int64, device=device)
    every = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(every, own, group=group)
    for name, values in zip(Meaning._fields, zip(*torch.stack(every).tolist(), strict=True), strict=True):
        if len(set(values)) > 1:
            raise ValueError(REMEDIES[name].format(values=", ".join(str(value) for value in values)))


def text_checksum(text: str) -> int:
    """The same number for the same text in every process, which ``hash`` is not."""
    return zlib.crc32(text.encode())


def weights_checksum(parameters: Iterable[Tensor]) -> int:
    """A number that equal weights share whatever device they are on: integers, so no order of adding up matters.

    >>> weights_checksum([torch.ones(2)]) == weights_checksum([torch.ones(2)])
    True
    >>> weights_checksum([torch.tensor([1.0, 2.0])]) == weights_checksum([torch.tensor([2.0, 1.0])])
    False
    """
    total = 0
    for index, parameter in enumerate(parameters):
        whole = parameter.detach().contiguous().flatten().view(WIDTHS[parameter.element_size()]).long()
        places = torch.arange(whole.numel(), device=whole.device) % 65_521 + 1
        total += (index + 1) * int((whole * places).sum().item())
    return total % 2**62
