"""Sequence parallel: a network whose sequence is spread over the ranks of a process group."""

# B = batch, N = cells on this rank, D = features per cell; C = cells of all rows, R = rows of a group, W = their cells
from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from riffle.nn.layer import compute_dtype, is_fused, switch_of
from riffle.nn.lengths import bits, checked_lengths
from riffle.parallel.agreement import Meaning, agree, text_checksum, weights_checksum
from riffle.parallel.deal import deal
from riffle.parallel.exchange import exchange
from riffle.parallel.forms import in_place, shuffled
from riffle.parallel.layout import shard_schedule
from riffle.parallel.rows import group_rows, route_of

if TYPE_CHECKING:
    from riffle.nn.network import ShuffleExchange


def shards_of(group: dist.ProcessGroup | None) -> SequenceShards | None:
    """How to run a network over a group; None where one rank holds the whole sequence."""
    if group is None:
        return None
    ranks = dist.get_world_size(group)
    if ranks < 1:
        raise ValueError("this process is not a rank of sequence_group: build the network on its members only")
    if ranks & (ranks - 1):
        raise ValueError(f"sequence_group has {ranks} ranks: a sequence of 2^k cells needs a power of two of them")
    return SequenceShards(group) if ranks > 1 else None


class SequenceShards:
    """Run a network on a sequence of which every rank holds an equal part, in the order of the ranks.

    Dropout and noise are drawn by every rank for its own cells, so seed the ranks differently once the weights are the
    same; the masks are other ones than on one device, their distribution is the same.

    Args:
        group: The ranks, a power of two of them.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.ranks, self.rank = dist.get_world_size(group), dist.get_rank(group)
        self.weights: int | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> SequenceShards:
        # A copy of the network talks to the same ranks; its weights are checked anew.
        return SequenceShards(self.group)

    def run(self, network: ShuffleExchange, x_BND: Tensor, lengths: Tensor | Sequence[int] | None) -> Tensor:
        """This rank's part of the output.

        Args:
            network: The network, with the same weights on every rank.
            x_BND: This rank's cells, as many as on every other rank.
            lengths: The length of every whole row, on every rank alike; None where all cells belong to the rows.
        """
        self._agree(network, x_BND, lengths)
        self._check_cells(x_BND.shape[1])
        if lengths is None:
            return self._run_spread(network, x_BND)
        return self._run_rows(network, x_BND, checked_lengths(lengths, x_BND.shape[0], x_BND.shape[1] * self.ranks))

    def _run_rows(self, network: ShuffleExchange, x_BND: Tensor, sizes: list[int]) -> Tensor:
        """Every row at its own power of two: dealt to where it runs, run, and dealt back.

        The ranks take the same steps in the same order, and autograd takes them in reverse, so their messages meet.
        """
        groups = group_rows(sizes, self.ranks)
        route = route_of(sizes, x_BND.shape[1], self.rank, self.ranks, x_BND.device)
        x_CD = deal(x_BND.flatten(0, 1), route, self.group)
        parts = x_CD.split([math.prod(group.shape) for group in groups])
        xs_RWD = [part_CD.unflatten(0, group.shape) for part_CD, group in zip(parts, groups, strict=True)]
        # The shortest come first, and so those that are whole on a rank.
        whole = sum(not group.spread for group in groups)
        ys_RWD = network._run(xs_RWD[:whole]) if whole else []
        ys_RWD += [self._run_spread(network, x_RWD) for x_RWD in xs_RWD[whole:]]
        y_CD = torch.cat([y_RWD.flatten(0, 1) for y_RWD in ys_RWD])
        return deal(y_CD, route.back(), self.group).view_as(x_BND)

    def _run_spread(self, network: ShuffleExchange, x_BND: Tensor) -> Tensor:
        """Rows of one power of two, of which every rank holds its part."""
        half = network.features // 2 if network.order == "official" else 0
        y_BND = self._run_layers(network, x_BND.roll(half, -1) if half else x_BND)
        return y_BND.roll(-half, -1) if half else y_BND

    def _run_layers(self, network: ShuffleExchange, x_BND: Tensor) -> Tensor:
        k, p = bits(x_BND.shape[1] * self.ranks), bits(self.ranks)
        layers = shard_schedule(network.layers(k), k, p)
        swap_bits = partial(exchange, group=self.group)
        switch = switch_of(network, x_BND, k)
        if is_fused(network, x_BND):
            return shuffled(x_BND.to(compute_dtype(x_BND)), layers, switch, swap_bits).to(x_BND.dtype)
        form = shuffled if torch.is_grad_enabled() else in_place
        return form(x_BND, layers, switch, swap_bits)

    def _agree(self, network: ShuffleExchange, x_BND: Tensor, lengths: Tensor | Sequence[int] | None) -> None:
        if self.weights is None:
            self.weights = weights_checksum(network.parameters())
        weights = any(parameter.requires_grad for parameter in network.parameters())
        mine = Meaning(
            network=text_checksum(f"{network.extra_repr()}, {network.order}, {network.length}"),
            batch=x_BND.shape[0],
            cells=x_BND.shape[1],
            dtype=text_checksum(str(x_BND.dtype)),
            gradients=torch.is_grad_enabled() and weights,
            input_gradients=torch.is_grad_enabled() and x_BND.requires_grad,
            lengths=0 if lengths is None else text_checksum(str(torch.as_tensor(lengths).tolist())),
            weights=self.weights,
        )
        agree(mine, self.group, x_BND.device)

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
