"""Sequence parallel: a network whose sequence is spread over the ranks of a process group."""

# B = batch, N = cells on this rank, D = features per cell
from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from riffle.kernels import resolve
from riffle.nn.layer import compute_dtype, switch_of
from riffle.nn.lengths import bits, checked_lengths
from riffle.nn.switch import FUSED_UNITS
from riffle.parallel.agreement import Meaning, agree, text_checksum, weights_checksum
from riffle.parallel.exchange import exchange
from riffle.parallel.forms import in_place, shuffled
from riffle.parallel.layout import shard_schedule

if TYPE_CHECKING:
    from riffle.nn.network import ShuffleExchange


def shards_of(group: dist.ProcessGroup | None, unit: str) -> SequenceShards | None:
    """How to run a network over a group; None where one rank holds the whole sequence."""
    if group is None:
        return None
    ranks = dist.get_world_size(group)
    if ranks < 1:
        raise ValueError("this process is not a rank of sequence_group: build the network on its members only")
    if ranks & (ranks - 1):
        raise ValueError(f"sequence_group has {ranks} ranks: a sequence of 2^k cells needs a power of two of them")
    if ranks > 1 and unit == "no-benes":
        raise ValueError('unit="no-benes" has no mirrored halves and cannot be spread over a sequence_group')
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
            lengths: The length of every whole row, on every rank alike.
        """
        self._agree(network, x_BND, lengths)
        k, p = self._bits(x_BND.shape[1])
        inside_BN1 = None
        if lengths is not None:
            inside_BN1 = self._inside(x_BND, lengths)
            x_BND = torch.where(inside_BN1, x_BND, 0)
        half = network.features // 2 if network.order == "official" else 0
        y_BND = self._run_layers(network, x_BND.roll(half, -1) if half else x_BND, k, p)
        y_BND = y_BND.roll(-half, -1) if half else y_BND
        return y_BND if inside_BN1 is None else torch.where(inside_BN1, y_BND, 0)

    def _run_layers(self, network: ShuffleExchange, x_BND: Tensor, k: int, p: int) -> Tensor:
        layers = shard_schedule(network.layers(k), k, p)
        swap_bits = partial(exchange, group=self.group)
        switch = switch_of(network, x_BND, k)
        if network.unit in FUSED_UNITS and resolve(network.backend, x_BND) == "fused":
            return shuffled(x_BND.to(compute_dtype(x_BND)), layers, switch, swap_bits).to(x_BND.dtype)
        form = shuffled if torch.is_grad_enabled() else in_place
        return form(x_BND, layers, switch, swap_bits)

    def _agree(self, network: ShuffleExchange, x_BND: Tensor, lengths: Tensor | Sequence[int] | None) -> None:
        if self.weights is None:
            self.weights = weights_checksum(network.parameters())
        wanted = any(tensor.requires_grad for tensor in (x_BND, *network.parameters()))
        mine = Meaning(
            network=text_checksum(f"{network.extra_repr()}, {network.order}, {network.length}"),
            batch=x_BND.shape[0],
            cells=x_BND.shape[1],
            dtype=text_checksum(str(x_BND.dtype)),
            gradients=torch.is_grad_enabled() and wanted,
            lengths=0 if lengths is None else text_checksum(str(torch.as_tensor(lengths).tolist())),
            weights=self.weights,
        )
        agree(mine, self.group, x_BND.device)

    def _bits(self, cells: int) -> tuple[int, int]:
        """The address bits of the whole sequence, and those of them that number the ranks."""
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
        return bits(cells * self.ranks), bits(self.ranks)

    def _inside(self, x_BND: Tensor, lengths: Tensor | Sequence[int]) -> Tensor:
        """Which of this rank's cells lie within their rows, ``[B, N, 1]``."""
        cells = x_BND.shape[1]
        whole = cells * self.ranks
        sizes = checked_lengths(lengths, x_BND.shape[0], whole)
        short = [size for size in sizes if bits(size) < bits(whole)]
        if short:
            raise ValueError(
                f"a row of {short[0]} cells would run at {2 ** bits(short[0])} cells, the others at {whole}: with a "
                "sequence_group, batch only rows that need the same power of two"
            )
        addresses_N = torch.arange(self.rank * cells, (self.rank + 1) * cells, device=x_BND.device)
        ends_B = torch.tensor(sizes, device=x_BND.device)
        return (addresses_N < ends_B[:, None]).unsqueeze(-1)
