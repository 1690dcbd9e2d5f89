"""A model of cost: memory, compute time and communication of one sequence over many devices.

``docs/scaling.md`` derives what stands here. Counted for a rank, with n cells, m feature maps, P ranks and
L = 2 (k - 1) blocks + 1 layers: a layer's matrix products are 16 m^2 FLOP a cell, its kernels read and write 8 m
numbers a cell, and a block has two exchanges that send (n / P) m (1 - 1 / P) numbers each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from riffle.kernels.tuning import CHUNK_PAIRS, CHUNK_PAIRS_DEVICE, switch_blocks
from riffle.shuffle import bits

LAYER_FLOPS = 16
"""FLOP a cell and m^2: gates 24 m^2 and candidates 8 m^2 for a pair of cells."""
TRAINING_FLOPS = 4
"""Forward, twice as much backward, and the forward products once more, since gates and candidates are formed again."""
LAYER_NUMBERS = 9
"""Numbers a cell and m that a layer reads and writes: 4 by the gates' product, 5 by the launch after it."""
TRAINING_NUMBERS = 52
"""The same forward and backward: 9 as above and 43 by the launches of the backward pass, counted in docs/kernels.md."""
TURNING_NUMBERS = 6
"""Numbers a cell, m and block to turn the cells of a rank before and after exchanges: three copies."""
WEIGHT_BYTES, TRAINING_WEIGHT_BYTES = 4, 16
"""A float32 weight; with its gradient and Adam's two moments."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """One device and its link; the defaults are an H200 as ``benchmarks/results/h200.json`` measured it."""

    flops: float = 679e12
    """FLOP a second of a large matrix product."""
    copy: float = 4.24e12
    """Bytes a second that a copy reads and writes."""
    memory: float = 141e9
    """Bytes."""
    link: float = 50e9
    """Bytes a second that a device can send while it receives as many (400 Gb)."""
    latency: float = 5e-6
    """Seconds by which a message is late however short it is."""


@dataclass(frozen=True, kw_only=True)
class ShardedWork:
    """A network on a sequence spread over ranks."""

    length: int
    """Cells of the whole sequence, a power of two."""
    features: int = 192
    """Feature maps per cell, m in the paper."""
    blocks: int = 1
    """Beneš blocks."""
    ranks: int = 1
    """Devices, a power of two and at most as many as each has cells."""
    batch: int = 1
    """Sequences."""
    itemsize: int = 2
    """Bytes of a number."""
    training: bool = False
    """Whether a backward pass follows."""

    def __post_init__(self) -> None:
        if self.length < 2 or self.length & (self.length - 1):
            raise ValueError(f"the length must be a power of two, as a sequence is padded to one, got {self.length}")
        if self.ranks < 1 or self.ranks & (self.ranks - 1):
            raise ValueError(f"a sequence is spread over a power of two of devices, got {self.ranks}")
        if self.ranks**2 > self.length:
            most = 2 ** ((self.length.bit_length() - 1) // 2)
            raise ValueError(
                f"{self.length} cells are too few for {self.ranks} devices: each needs as many cells as there are "
                f"devices, so at most {most}"
            )
        if min(self.features, self.blocks, self.batch) < 1 or self.features % 2:
            raise ValueError(
                "maps must be even and, like blocks and batch, positive, got "
                f"{self.features}, {self.blocks} and {self.batch}"
            )

    @property
    def layers(self) -> int:
        """Switch layers."""
        return 2 * (self.length.bit_length() - 2) * self.blocks + 1

    @property
    def cells(self) -> int:
        """Cells of one rank, of all sequences."""
        return self.batch * self.length // self.ranks

    @property
    def state_bytes(self) -> int:
        """The cells of one rank, once."""
        return self.cells * self.features * self.itemsize

    @property
    def parameters(self) -> int:
        """Weights: two units a block and the last, with scales of skip connections from the second block on."""
        m = self.features
        skips = 2 * self.blocks - 1 if self.blocks > 1 else 0
        return (2 * self.blocks + 1) * (16 * m * m + 8 * m) + skips * m


@dataclass(frozen=True)
class ShardedCost:
    """What a work costs each rank on a machine, for one pass: forward, or forward and backward."""

    work: ShardedWork
    machine: Machine

    @property
    def exchanges(self) -> int:
        """All-to-alls: two a block, and as many in the backward pass."""
        passes = 2 if self.work.training else 1
        return 2 * self.work.blocks * passes if self.work.ranks > 1 else 0

    @property
    def sent_numbers(self) -> int:
        """Numbers that a rank sends to others in exchanges; it receives as many."""
        work = self.work
        return self.exchanges * work.cells // work.ranks * work.features * (work.ranks - 1)

    @property
    def sent_bytes(self) -> int:
        """Bytes that a rank sends, those for the sum of the weights' gradients included."""
        work = self.work
        summed = 2 * 4 * work.parameters * (work.ranks - 1) // work.ranks if work.training else 0
        return self.sent_numbers * work.itemsize + summed

    @property
    def product_seconds(self) -> float:
        """Matrix products."""
        times = TRAINING_FLOPS if self.work.training else 1
        flops = LAYER_FLOPS * self.work.features**2 * self.work.cells * self.work.layers
        return times * flops / self.machine.flops

    @property
    def copy_seconds(self) -> float:
        """Reading and writing what the kernels read and write."""
        work = self.work
        layer = TRAINING_NUMBERS if work.training else LAYER_NUMBERS
        turning = TURNING_NUMBERS * self.exchanges / 2
        numbers = (layer * work.layers + turning) * work.features * work.cells
        return numbers * work.itemsize / self.machine.copy

    @property
    def compute_seconds(self) -> float:
        """Products and kernels one after the other, as they run."""
        return self.product_seconds + self.copy_seconds

    @property
    def communication_seconds(self) -> float:
        """Exchanges, P - 1 messages one after the other; in training also the sum of the gradients."""
        rounds = self.exchanges + (2 if self.work.training and self.work.ranks > 1 else 0)
        return rounds * (self.work.ranks - 1) * self.machine.latency + self.sent_bytes / self.machine.link

    @property
    def seconds(self) -> float:
        """All of it; nothing overlaps."""
        return self.compute_seconds + self.communication_seconds

    @cached_property
    def memory_bytes(self) -> int:
        """What a rank needs at the moment when it needs most, on the fused kernels."""
        import torch

        work = self.work
        dtype = {2: torch.bfloat16, 4: torch.float32}[work.itemsize]
        network = MemoryModel(
            features=work.features,
            blocks=work.blocks,
            skips=True,
            benes=True,
            dtype=dtype,
            fused=True,
            training=work.training,
        )
        # The depth is that of the whole sequence, the rows are the rank's; an exchange sends one buffer and fills one.
        buffers = network._buffers(work.length.bit_length() - 1, work.cells) + (2 if work.ranks > 1 else 0)
        weights = (TRAINING_WEIGHT_BYTES if work.training else WEIGHT_BYTES) * work.parameters
        return int(buffers * work.cells * work.features * work.itemsize) + weights

    @property
    def fits(self) -> bool:
        """Whether the device has that much."""
        return self.memory_bytes <= self.machine.memory

    @property
    def fewest_ranks(self) -> int | None:
        """The smallest number of devices on which the work fits; None where no number does."""
        ranks = 1
        while ranks**2 <= self.work.length:
            if ShardedCost(replace(self.work, ranks=ranks), self.machine).fits:
                return ranks
            ranks *= 2
        return None


SLACK = 1.1
"""What fits has to fit with this much to spare: the allocator rounds up and leaves gaps."""
Shape = tuple[int, int]
"""Sequences, and cells of each."""


@dataclass(frozen=True)
class MemoryModel:
    """What decides how many bytes a cell needs."""

    features: int
    """Feature maps per cell."""
    blocks: int
    """Beneš blocks."""
    skips: bool
    """Whether blocks are joined by skip connections."""
    benes: bool
    """Whether the second half of a block shuffles back."""
    dtype: torch.dtype
    """In which the cells are computed."""
    fused: bool
    """Whether the fused kernels compute them."""
    training: bool
    """Whether a backward pass follows."""
    recompute: bool = True
    """See :class:`~riffle.nn.network.ShuffleExchange`."""
    device: str = "cuda"
    """The type of the device."""

    def bytes(self, batch: int, cells: int) -> int:
        """What ``batch`` sequences of ``cells`` cells need, their input included; an estimate."""
        k, size = bits(cells), self.features * self.dtype.itemsize
        rows = batch * 2**k
        return int(self._buffers(k, rows) * rows * size)

    def largest_length(self, free: float, shapes: Sequence[Shape]) -> int | None:
        """The largest power of two, below the longest asked for, to which sequences can be cut to fit into ``free``.

        >>> net = Footprint(192, blocks=1, skips=False, benes=True, dtype=torch.bfloat16, fused=True, training=False)
        >>> net.largest_length(3e9, [(1, 2**22)])
        1048576
        """
        k = bits(max(cells for _, cells in shapes)) - 1
        while k > 0 and SLACK * sum(self.bytes(batch, min(cells, 2**k)) for batch, cells in shapes) > free:
            k -= 1
        return 2**k if k > 0 else None

    def _buffers(self, k: int, rows: int) -> float:
        levels = 2 * (k - 1 if self.benes else k)
        layers, skipped = levels * self.blocks + 1, levels if self.skips and self.blocks > 1 else 0
        joined = skipped > 0
        if self.fused and self.training:
            return layers + 12 + 4 * joined if self.recompute else 5 * layers + 8 + 3 * joined
        if self.fused:
            # Only shapes and dtypes matter, so no memory is taken for this.
            x_CD = torch.empty(rows, self.features, dtype=self.dtype, device="meta")
            forming = 6 if switch_blocks(x_CD) is None else 4
            return skipped + (3 if joined else 2) + forming
        if self.training:
            return 8 * layers + skipped * max(0, self.blocks - 2) + 8
        chunk = min(1.0, CHUNK_PAIRS.get(self.device, CHUNK_PAIRS_DEVICE) / max(1, rows // 2))
        unit = (6 if self.dtype.itemsize > 2 else 11) + joined
        return 2 + skipped + chunk * unit


def out_of_memory_message(footprint: MemoryModel, shapes: Sequence[Shape], free: int) -> str:
    """One sentence about work that does not fit."""
    asked = " and ".join(f"{batch} sequence{'s' * (batch != 1)} of {cells:,} cells" for batch, cells in shapes)
    needed = sum(footprint.bytes(batch, cells) for batch, cells in shapes)
    length = footprint.largest_length(free, shapes)
    fits = "no length would fit at this batch" if length is None else f"at this batch {length:,} cells would fit"
    helps = ["a smaller batch"]
    if footprint.dtype.itemsize > 2:
        helps.append("bfloat16")
    if footprint.fused and footprint.training and not footprint.recompute:
        helps.append("recompute=True")
    return (
        f"out of GPU memory: {asked} with {footprint.features} features need about {_gibibytes(needed)} "
        f"{'to train' if footprint.training else 'without gradients'} and {_gibibytes(free)} are free for them; "
        f"{fits}, and {' or '.join(helps)} {'needs' if len(helps) == 1 else 'need'} less"
    )


def _gibibytes(number: int) -> str:
    return f"{number / 2**30:,.2f} GiB"


def layer_flops(length: int, features: int) -> int:
    """Products of one switch layer: three gates of 2m x 2m and two candidates of 2m x m for each pair.

    >>> layer_flops(2, 1)
    32
    """
    pair = 2 * features
    return length // 2 * 2 * (3 * pair * pair + 2 * pair * features)


def network_flops(length: int, features: int, blocks: int) -> int:
    """All layers of a network on ``length`` cells, a power of two."""
    k = length.bit_length() - 1
    return (blocks * 2 * (k - 1) + 1) * layer_flops(length, features)


def encoder_flops(length: int, features: int, layers: int) -> int:
    """A transformer encoder: four products of d x d, two of d x 4d, and attention of every cell to every cell."""
    return layers * (2 * length * 12 * features * features + 4 * length * length * features)
