"""The cost model: FLOPs, bytes and seconds of a network on one device or on many.

**FLOPs.** A layer's matrix products are 16 m^2 FLOP a cell, for m feature maps: gates 24 m^2 and candidates 8 m^2 for a
pair. With 2^k cells, or any even number of them above 2^(k - 1), a network of b blocks has L = 2 (k - 1) b + 1 layers
("no-benes": k in place of k - 1).

**Bytes** (:class:`MemoryModel`) are counted in buffers of all cells, in the dtype they are computed in, at the moment
when most of them are held; long sequences dwarf the weights, which are left out.

**Seconds** (:class:`ShardedCost`) of a sequence on P ranks: products at the rate of a large product, reads and writes
at the rate of a large copy, and for each block two exchanges that send (n / P) m (1 - 1 / P) numbers a rank over the
link. ``docs/scaling.md`` derives them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from riffle.kernels.tuning import CHUNK_PAIRS, CHUNK_PAIRS_DEVICE, GRADIENT_PAIRS, find_layer_form, switch_blocks
from riffle.shuffle import PADS, Pad, bits, padded_length

# FLOPs


def layer_flops(length: int, features: int, unit: str = "gated") -> int:
    """Products of one switch layer: for each pair, 2 FLOP for each entry of the unit's matrices.

    >>> layer_flops(2, 1)  # three gates of 2m x 2m and two candidates of 2m x m
    32
    """
    # The units with two fully connected layers happen to have as many entries; a further gate has 4 m^2.
    entries = (20 if unit in ("swap-gate", "two-fc-gate") else 16) * features * features
    return length // 2 * 2 * entries


def layer_count(k: int, blocks: int, *, benes: bool = True) -> int:
    """The switch layers of a network on ``2**k`` cells."""
    return 2 * (k - 1 if benes else k) * blocks + 1


def network_flops(length: int, features: int, blocks: int, unit: str = "gated") -> int:
    """Products of all layers of a network on ``length`` cells, an even number."""
    layers = layer_count(bits(length), blocks, benes=unit != "no-benes")
    return layers * layer_flops(length, features, unit)


def encoder_flops(length: int, features: int, layers: int) -> int:
    """A transformer encoder: four products of d x d, two of d x 4d, and attention of every cell to every cell."""
    return layers * (2 * length * 12 * features * features + 4 * length * length * features)


# Bytes

SLACK = 1.2
"""What fits has to fit with this much to spare: the allocator leaves gaps between tensors of different sizes."""
FIXED_BYTES = 32 * 2**20
"""And with this much beside it: the workspace of a library of matrix products, or the rest of a segment of 20 MiB, in
which the allocator places tensors below 10 MiB."""
Shape = tuple[int, int]
"""Sequences, and cells of each."""


class EagerBuffers(NamedTuple):
    """Buffers of a unit in plain PyTorch: in 16 bits, and in more."""

    computed: tuple[int, int]
    """Without gradients, at the moment when most are held: the pairs side by side and what is computed from them."""
    kept: tuple[int, int]
    """What autograd keeps of a layer."""


EAGER_GATED = EagerBuffers(computed=(9, 6), kept=(8, 8))
"""The gated units. In 16 bits nothing is overwritten."""
EAGER_UNITS = {
    "swap-gate": EagerBuffers(computed=(13, 10), kept=(12, 12)),
    "two-fc": EagerBuffers(computed=(5, 5), kept=(3, 3)),
    "two-fc-gate": EagerBuffers(computed=(6, 6), kept=(6, 6)),
    "residual": EagerBuffers(computed=(19, 9), kept=(15, 9)),  # it normalises in float32
}
"""The others."""


@dataclass(frozen=True)
class MemoryModel:
    """What decides how many bytes a cell needs."""

    features: int
    blocks: int
    skips: bool
    """Whether blocks are joined by skip connections."""
    benes: bool
    """Whether the second half of a block shuffles back."""
    dtype: torch.dtype
    fused: bool
    """Whether the fused kernels compute the cells."""
    training: bool
    """Whether a backward pass follows."""
    recompute: bool = True
    """See :class:`~riffle.nn.network.ShuffleExchange`."""
    device: str = "cuda"
    pad: Pad = "power"
    """To which length sequences are padded."""
    warpgroups: bool = False
    """Whether the device can run a layer as one launch."""
    unit: str = "gated"
    pairwise: bool = True
    """Whether pairs go through a unit in chunks; False where it normalises over all of a sequence."""
    autocast: bool = False
    """Whether plain PyTorch computes in another dtype than that of the cells."""

    def bytes(self, batch: int, cells: int) -> int:
        """What ``batch`` sequences of ``cells`` cells need, their input included; an estimate."""
        k, size = bits(cells), self.features * self.dtype.itemsize
        rows = batch * padded_length(cells, self.pad)
        return int(self.buffers(k, rows) * rows * size)

    def largest_length(self, free: float, shapes: Sequence[Shape]) -> int | None:
        """The largest power of two, below the longest asked for, to which sequences can be cut to fit into ``free``.

        >>> net = MemoryModel(192, blocks=1, skips=False, benes=True, dtype=torch.float32, fused=True, training=False)
        >>> net.largest_length(6e9, [(1, 2**22)])
        524288
        """
        k, room = bits(max(cells for _, cells in shapes)) - 1, (free - FIXED_BYTES) / SLACK
        while k > 0 and sum(self.bytes(batch, min(cells, 2**k)) for batch, cells in shapes) > room:
            k -= 1
        return 2**k if k > 0 else None

    def buffers(self, k: int, rows: int) -> float:
        """Buffers that a network on ``2**k`` cells needs at once, where the device holds ``rows`` cells.

        Gates are three buffers, with a swap gate four, what the candidates read is two, the candidates are one.
        """
        gates = 4 if self.unit == "swap-gate" else 3
        layers = layer_count(k, self.blocks, benes=self.benes)
        skipped = (layers - 1) // self.blocks if self.skips and self.blocks > 1 else 0
        joined = skipped > 0
        if self.fused and self.training:
            # The layers' inputs, with recompute=False their gates and in float32 their candidates too; of the layers of
            # a unit that share a product, the gradients of gates and candidates and what they read, with tiles'
            # shares of the biases' gradients; input, output, their gradients and what one layer at a time needs.
            wide = self.dtype.itemsize > 2
            kept = layers if self.recompute else (1 + gates + wide) * layers
            run = k - 1 if self.benes else k
            shared = max(1, min(run, GRADIENT_PAIRS // max(1, rows // 2))) if self.features % 8 == 0 else 1
            part = gates + 3 + (gates + 2) / 8 / self.dtype.itemsize + (shared > 1)
            return kept + shared * part + (6 if wide and not self.recompute else 7) + 3 * joined
        if self.fused and self.warpgroups and find_layer_form(rows // 2, self.features, self.dtype, keep=False):
            return skipped + 3  # the input, a layer's input and its output
        if self.fused:
            # The input, a layer's input, and gates and output, or gates, what the candidates read and candidates where
            # the library computes their product. Skip connections keep a block's inputs and read a sum of two buffers.
            forming = gates + (3 if switch_blocks(rows, self.features, self.dtype) is None else 1)
            return skipped + (3 if joined else 2) + forming
        eager, wide = EAGER_UNITS.get(self.unit, EAGER_GATED), self.dtype.itemsize > 2
        if self.training:
            # What autograd keeps: of the gated units input, gates, what the candidates read, candidates and the swapped
            # pair. Beside it there are the input, gradients, and what one layer at a time needs.
            kept = eager.kept[wide]
            return kept * layers + skipped * max(0, self.blocks - 2) + max(kept, 8)
        # The input, a copy that the layers overwrite, and what a unit computes for a chunk of pairs at a time; for all
        # pairs at other lengths than powers of two. A skip connection is gathered, scaled and added.
        whole = self.pad == "even" or not self.pairwise
        chunk = CHUNK_PAIRS.get(self.device, CHUNK_PAIRS_DEVICE) / max(1, rows // 2)
        computed = eager.computed[wide] + self.autocast + 3 * joined
        return 2 + skipped + computed * (1.0 if whole else min(1.0, chunk))


def out_of_memory_message(model: MemoryModel, shapes: Sequence[Shape], free: int) -> str:
    """One sentence about work that does not fit: what it needs, what would fit, what needs less."""
    asked = " and ".join(f"{batch} sequence{'s' * (batch != 1)} of {cells:,} cells" for batch, cells in shapes)
    needed = sum(model.bytes(batch, cells) for batch, cells in shapes)
    length = model.largest_length(free, shapes)
    fits = "no length would fit at this batch" if length is None else f"at this batch {length:,} cells would fit"
    helps = ["a smaller batch"]
    if model.dtype.itemsize > 2:
        helps.append("bfloat16")
    if model.fused and model.training and not model.recompute:
        helps.append("recompute=True")
    return (
        f"out of GPU memory: {asked} with {model.features} features need about {needed / 2**30:,.2f} GiB "
        f"{'to train' if model.training else 'without gradients'} and {free / 2**30:,.2f} GiB are free for them; "
        f"{fits}, and {' or '.join(helps)} {'needs' if len(helps) == 1 else 'need'} less"
    )


# Seconds over many devices

TRAINING_FLOPS = 4
"""Forward, twice as much backward, and the forward products once more, since gates and candidates are recomputed."""
LAYER_NUMBERS, ONE_LAUNCH_NUMBERS, BACKWARD_NUMBERS = 9, 3, 43
"""Numbers a cell and m that a layer reads and writes: 4 by the gates' product and 5 by the launch after it, or 3 where
it is one launch; in training 43 more by the launches of the backward pass of a layer by itself, counted in
docs/kernels.md."""
ROTATION_NUMBERS = 6
"""Numbers a cell, m and block to rotate the cells of a rank before and after exchanges: three copies."""
WEIGHT_BYTES, TRAINING_WEIGHT_BYTES = 4, 16
"""A float32 weight; with its gradient and Adam's two moments."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """One device and its link; the defaults are an H200 as ``research/bench/results/h200.json`` measured it."""

    flops: float = 679e12
    """FLOP a second of a large matrix product."""
    copy: float = 4.24e12
    """Bytes a second that a copy reads and writes."""
    memory: float = 141e9
    """Bytes."""
    link: float = 50e9
    """Bytes a second that a device can send while it receives as many (400 Gb)."""
    latency: float = 5e-6
    """Latency of a message, in seconds."""
    warpgroups: bool = True
    """Whether it has warpgroup products (compute capability 9.0), by which a layer is one launch."""


@dataclass(frozen=True, kw_only=True)
class ShardedWork:
    """A network on a sequence spread over ranks."""

    length: int
    """Cells of the whole sequence: a power of two, or with pad="even" on one device an even number."""
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
    pad: Pad = "power"
    """To which length a sequence is padded."""

    def __post_init__(self) -> None:
        if self.pad not in PADS:
            raise ValueError(f"unknown pad {self.pad!r}; choose one of {', '.join(PADS)}")
        if self.length < 2 or self.length != padded_length(self.length, self.pad):
            kind = "even" if self.pad == "even" else "a power of two"
            padded = padded_length(self.length, self.pad) if self.length > 0 else 2
            raise ValueError(
                f"the length must be {kind}, as a sequence is padded to {padded:,} cells, got {self.length}"
            )
        if self.ranks > 1 and self.length & (self.length - 1):
            raise ValueError(f"a sequence spread over devices has a power of two of cells, got {self.length}")
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
        return layer_count(bits(self.length), self.blocks)

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
    def dtype(self) -> torch.dtype:
        """Of the cells."""
        return {2: torch.bfloat16, 4: torch.float32}[self.work.itemsize]

    @property
    def one_launch(self) -> bool:
        """Whether a layer's forward pass is one launch; in training its gates are formed again, not kept."""
        pairs, features = self.work.cells // 2, self.work.features
        return self.machine.warpgroups and find_layer_form(pairs, features, self.dtype, keep=False) is not None

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
        flops = self.work.layers * layer_flops(self.work.cells, self.work.features)
        return (TRAINING_FLOPS if self.work.training else 1) * flops / self.machine.flops

    @property
    def copy_seconds(self) -> float:
        """Reading and writing by the kernels."""
        work = self.work
        layer = ONE_LAUNCH_NUMBERS if self.one_launch else LAYER_NUMBERS
        layer += BACKWARD_NUMBERS if work.training else 0
        rotation = ROTATION_NUMBERS * self.exchanges / 2
        return (layer * work.layers + rotation) * work.features * work.cells * work.itemsize / self.machine.copy

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

    @property
    def memory_bytes(self) -> int:
        """What a rank needs at the moment when it needs most, on the fused kernels."""
        work = self.work
        memory = MemoryModel(
            work.features, work.blocks, skips=True, benes=True, dtype=self.dtype, fused=True, training=work.training,
            warpgroups=self.machine.warpgroups,
        )  # fmt: skip
        # The depth is that of the whole sequence, the rows are the rank's; an exchange sends one buffer and fills one.
        buffers = memory.buffers(bits(work.length), work.cells) + (2 if work.ranks > 1 else 0)
        weights = (TRAINING_WEIGHT_BYTES if work.training else WEIGHT_BYTES) * work.parameters
        return int(buffers * work.state_bytes) + weights

    @property
    def fits(self) -> bool:
        """Whether the device has that much."""
        return self.memory_bytes <= self.machine.memory

    @property
    def fewest_ranks(self) -> int | None:
        """The smallest number of devices on which the work fits; None where no number does."""
        ranks, length = 1, self.work.length
        most = length if length & (length - 1) == 0 else 1
        while ranks**2 <= most:
            if ShardedCost(replace(self.work, ranks=ranks), self.machine).fits:
                return ranks
            ranks *= 2
        return None
