"""Sequence parallelism: one sequence spread over the ranks of a process group.

Number the ``2**k`` cells in binary and spread them over ``2**p`` ranks in order: the high ``p`` address bits are the
rank, the low ``k - p`` the place on it. A rank can run a layer alone where it holds both cells of every pair, so where
the layer's bit is one of the low ones. For the others the ranks exchange cells: the bits of the rank change places with
the highest ``p`` bits of the place, and then they are local:

    at home     | rank: k-1 ... k-p     | place: k-p-1 ... k-2p, k-2p-1 ... 0
    exchanged   | rank: k-p-1 ... k-2p  | place: k-1   ... k-p,  k-2p-1 ... 0

A Beneš block climbs from bit 0 to k - 1 and comes down again, so it takes two exchanges a block, however long the
sequence, and ``k >= 2 p``: at least as many cells on a rank as there are ranks.
"""

# B = batch, N = cells on this rank, D = features per cell; C = cells of all rows, R = rows of a group, W = their cells
from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import Tensor, nn

from riffle.nn.execute import RunLayer, SwitchLayer, compute_dtype, is_fused, switch_layer, walk
from riffle.nn.lengths import checked_lengths
from riffle.parallel.exchange import exchange, group_rows, make_redistribution, redistribute
from riffle.shuffle import Layer, bits, rotate

if TYPE_CHECKING:
    from riffle.nn.network import ShuffleExchange


@dataclass(frozen=True)
class ShardedLayer(Layer):
    """One switch layer as a rank runs it on the cells it holds: ``bit`` is one of the place, not of the address."""

    exchange: bool
    """Whether the ranks exchange cells before this layer."""


def shard_schedule(layers: tuple[Layer, ...], k: int, p: int) -> tuple[ShardedLayer, ...]:
    """The layers of a schedule of Beneš blocks on ``2**k`` cells as each of ``2**p`` ranks runs them.

    >>> from riffle.shuffle import schedule
    >>> [("exchange " if layer.exchange else "") + str(layer.bit) for layer in shard_schedule(schedule(5), 5, 2)]
    ['0', '1', '2', 'exchange 1', '2', '1', 'exchange 2', '1', '0']
    """
    assert k >= 2 * p, "a rank needs as many cells as there are ranks"
    sharded = []
    was_home = True
    for layer in layers:
        home = layer.bit < k - p
        bit = layer.bit if home else layer.bit - p
        sharded.append(ShardedLayer(layer.unit, bit, layer.shuffle, layer.skip, home != was_home))
        was_home = home
        if layer.skip is not None:
            assert layers[layer.skip].bit == layer.bit, "a skip connection does not cross the ranks"
    assert was_home, "the last layer is at bit 0"
    return tuple(sharded)


@dataclass
class RotatedCells:
    """The cells of a rank between layers, shuffled so that adjacent ones differ in bit ``lowest`` of the place."""

    cells: Tensor
    lowest: int = 0

    def rotate_to(self, bit: int) -> None:
        """Shuffle the cells so that adjacent ones differ in another bit."""
        self.cells = rotate(self.cells, bit - self.lowest, self.cells.shape[1].bit_length() - 1)
        self.lowest = bit


def sharded_layer(switch: SwitchLayer, exchange: Callable[[Tensor], Tensor]) -> RunLayer[RotatedCells]:
    """How to run a layer: it joins adjacent cells, and a shuffle of the rank's own cells follows."""

    def run_layer(
        index: int, layer: ShardedLayer, cells: RotatedCells, skip_BND: Tensor | None
    ) -> tuple[RotatedCells, Tensor]:
        if layer.exchange:
            cells.rotate_to(0)
            cells.cells = exchange(cells.cells)
        cells.rotate_to(layer.bit)
        x_BND = cells.cells
        cells.cells = switch(x_BND, layer.unit, layer.shuffle, skip_BND)
        cells.lowest = layer.bit + layer.shuffle
        return cells, x_BND

    return run_layer


class SequenceSharding:
    """Run a network on a sequence of which every rank holds an equal part, in the order of the ranks.

    Dropout and noise are drawn by every rank for its own cells, so seed the ranks differently once the weights are the
    same; the masks are other ones than on one device, their distribution is the same.

    Args:
        group: The ranks, a power of two of them; with one rank a network runs as without sharding.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.ranks, self.rank = dist.get_world_size(group), dist.get_rank(group)
        self._checksums: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()
        if self.ranks < 1:
            raise ValueError("this process is not a rank of the group: build the network on its members only")
        if self.ranks & (self.ranks - 1):
            raise ValueError(
                f"the group of a sharding has {self.ranks} ranks: a sequence of 2^k cells needs a power of two of them"
            )

    def __deepcopy__(self, memo: dict[int, Any]) -> SequenceSharding:
        # A copy of the network talks to the same ranks.
        return self

    def run(self, network: ShuffleExchange, x_BND: Tensor, lengths: Tensor | Sequence[int] | None) -> Tensor:
        """This rank's part of the output.

        Args:
            network: The network, with the same weights on every rank.
            x_BND: This rank's cells, as many as on every other rank.
            lengths: The length of every whole row, on every rank alike; None where all cells belong to the rows.
        """
        self._check_agreement(network, x_BND, lengths)
        self._check_cells(x_BND.shape[1])
        if lengths is not None and network.pad == "even":
            raise ValueError('sharded rows of several lengths run at powers of two: build the network with pad="power"')
        if lengths is None:
            return self._run_spread(network, x_BND)
        sizes = checked_lengths(lengths, x_BND.shape[0], x_BND.shape[1] * self.ranks)
        return self._run_rows(network, x_BND, sizes) if sizes else self._run_spread(network, x_BND)

    def _run_rows(self, network: ShuffleExchange, x_BND: Tensor, sizes: list[int]) -> Tensor:
        """Every row at its own power of two: redistributed to where it runs, run, and brought back.

        The ranks take the same steps in the same order, and autograd takes them in reverse, so their messages meet.
        """
        groups = group_rows(sizes, self.ranks)
        moves = make_redistribution(sizes, x_BND.shape[1], self.rank, self.ranks, x_BND.device)
        x_CD = redistribute(x_BND.flatten(0, 1), moves, self.group)
        parts = x_CD.split([math.prod(group.shape) for group in groups])
        xs_RWD = [part_CD.unflatten(0, group.shape) for part_CD, group in zip(parts, groups, strict=True)]
        # The shortest come first, and so those that are whole on a rank.
        whole = sum(not group.spread for group in groups)
        ys_RWD = network.run_batches(xs_RWD[:whole]) if whole else []
        ys_RWD += [self._run_spread(network, x_RWD) for x_RWD in xs_RWD[whole:]]
        y_CD = torch.cat([y_RWD.flatten(0, 1) for y_RWD in ys_RWD])
        return redistribute(y_CD, moves.inverse(), self.group).view_as(x_BND)

    def _run_spread(self, network: ShuffleExchange, x_BND: Tensor) -> Tensor:
        """Rows of one power of two, of which every rank holds its part."""
        k, p = bits(x_BND.shape[1] * self.ranks), bits(self.ranks)
        layers = shard_schedule(network.layers(k), k, p)
        run_layer = sharded_layer(switch_layer(network, x_BND, k), partial(exchange, group=self.group))
        cells_BND = network.relabel(x_BND)
        if is_fused(network, x_BND):
            cells_BND = cells_BND.to(compute_dtype(x_BND))
        y_BND = walk(layers, RotatedCells(cells_BND), run_layer).cells  # the last layer is at bit 0
        return network.relabel(y_BND.to(x_BND.dtype))

    def _check_agreement(self, network: ShuffleExchange, x_BND: Tensor, lengths: Tensor | Sequence[int] | None) -> None:
        """Raise the same ``ValueError`` on every rank where they differ; one small all-gather."""
        if network not in self._checksums:
            self._checksums[network] = weights_checksum(network.parameters())
        trains = torch.is_grad_enabled() and any(parameter.requires_grad for parameter in network.parameters())
        call = {
            "network": _text_checksum(f"{network.extra_repr()}, {network.order}, {network.length}"),
            "batch": x_BND.shape[0],
            "cells": x_BND.shape[1],
            "dtype": _text_checksum(str(x_BND.dtype)),
            "gradients": trains,
            "input_gradients": torch.is_grad_enabled() and x_BND.requires_grad,
            "lengths": 0 if lengths is None else _text_checksum(str(torch.as_tensor(lengths).tolist())),
            "weights": self._checksums[network],
        }
        own = torch.tensor([int(value) for value in call.values()], device=x_BND.device)
        gathered = [torch.empty_like(own) for _ in range(self.ranks)]
        dist.all_gather(gathered, own, group=self.group)
        for name, values in zip(call, zip(*torch.stack(gathered).tolist(), strict=True), strict=True):
            if len(set(values)) > 1:
                raise ValueError(REMEDIES[name].format(values=", ".join(str(value) for value in values)))

    def _check_cells(self, cells: int) -> None:
        """Refuse a shard on which the exchanges do not work."""
        if cells & (cells - 1):
            raise ValueError(
                f"a shard of {cells} cells is no power of two: pad the whole sequence with zero cells to one first"
            )
        if cells < self.ranks:
            raise ValueError(
                f"{cells} cells on each of {self.ranks} ranks are too few: a rank needs as many cells as there are "
                f"ranks, so a sequence of {cells * self.ranks} cells runs on at most "
                f"{2 ** (bits(cells * self.ranks) // 2)} ranks"
            )


REMEDIES = {
    "network": "the ranks of this sharding have networks with different arguments: build the same one on every rank",
    "batch": "the ranks of this sharding have batches of {values} rows: give every rank its part of the same rows",
    "cells": "the ranks of this sharding have shards of {values} cells: give every rank as many",
    "dtype": "the ranks of this sharding have inputs of different dtypes: convert them to one",
    "gradients": "some ranks of this sharding want gradients and others do not: all must take part in a backward pass",
    "input_gradients": "some ranks of this sharding want their input's gradient and others do not: "
    "call requires_grad_() on the input of every rank or of none",
    "lengths": "the ranks of this sharding have different lengths=: give every rank those of the whole rows",
    "weights": "the ranks of this sharding have different weights: load the same ones, or seed alike before building",
}
"""What to do where the ranks of a call differ; a difference in the first of these is reported."""


def _text_checksum(text: str) -> int:
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
        whole = parameter.detach().contiguous().flatten().view(torch.uint8).long()
        places = torch.arange(whole.numel(), device=whole.device) % 65_521 + 1
        total += (index + 1) * int((whole * places).sum().item())
    return total % 2**62


def sum_gradients(module: nn.Module, group: dist.ProcessGroup) -> None:
    """Add up every parameter's gradient over the ranks of a sharding.

    After ``backward`` a rank's gradient is what its own cells contribute to the sum of all ranks' losses. The sum over
    ranks is the gradient that one device would have for that sum. Where each rank's loss is a mean over its cells and
    the mean over all cells is wanted, ``DistributedDataParallel`` does the same with the mean over ranks.

    Args:
        module: The module whose gradients to add up; parameters without one are skipped, on all ranks alike.
        group: The ranks.
    """
    for parameter in module.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad, group=group)
