"""The cost model: FLOPs, bytes and seconds of a network on one device or on many.

**FLOPs.** A layer's matrix products are 16 m^2 FLOP a cell, for m feature maps: gates 24 m^2 and candidates 8 m^2 for a
pair. With 2^k cells, or any even number of them above 2^(k - 1), a network of b blocks has L = 2 (k - 1) b + 1 layers.

**Bytes** are counted in buffers of all cells at the moment when most of them are held, on the fused kernels.

**Seconds** (:class:`ShardedCost`) of a sequence on P ranks: products at the rate of a large product, reads and writes
at the rate of a large copy, and for each block two exchanges that send (n / P) m (1 - 1 / P) numbers a rank over the
link. ``docs/scaling.md`` derives them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from riffle.kernels.tuning import GRADIENT_PAIRS, find_layer_form, switch_blocks
from riffle.shuffle import PADS, Pad, bits, padded_length, schedule


def network_flops(length: int, features: int, blocks: int) -> int:
    """Matrix products of a forward pass on one sequence of an even length.

    >>> network_flops(2, 2, 1)  # one pair: three gates of 2m x 2m and two candidates of 2m x m
    128
    """
    return len(schedule(bits(length), blocks)) * 16 * features**2 * length


def encoder_flops(length: int, features: int, layers: int) -> int:
    """A transformer encoder: four products of d x d, two of d x 4d, and attention of every cell to every cell."""
    return layers * (2 * length * 12 * features * features + 4 * length * length * features)


TRAINING_FLOPS = 4
"""Forward, twice as much backward, and the forward products once more, since gates and candidates are recomputed."""
LAYER_NUMBERS, ONE_LAUNCH_NUMBERS, BACKWARD_NUMBERS = 9, 3, 43
"""Numbers a cell and m that a layer reads and writes: 4 by the gates' product and 5 by the launch after it, or 3 where
it is one launch; in training 43 more by the launches of the backward pass of a layer by itself, counted in
docs/kernels.md."""
ROTATION_NUMBERS = 6
"""Numbers a cell, m and block to rotate the cells of a rank before and after exchanges: three copies."""
ITEM_BYTES, WEIGHT_BYTES, TRAINING_WEIGHT_BYTES = 2, 4, 16
"""A bfloat16 number of a cell; a float32 weight; one with its gradient and Adam's two moments."""


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
        return len(schedule(bits(self.length), self.blocks))

    @property
    def cells(self) -> int:
        """Cells of one rank, of all sequences."""
        return self.batch * self.length // self.ranks

    @property
    def state_bytes(self) -> int:
        """The cells of one rank, once."""
        return self.cells * self.features * ITEM_BYTES

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
    def one_launch(self) -> bool:
        """Whether a layer's forward pass is one launch; in training its gates are formed again, not kept."""
        pairs, features = self.work.cells // 2, self.work.features
        return self.machine.warpgroups and find_layer_form(pairs, features, torch.bfloat16, keep=False) is not None

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
        return self.sent_numbers * ITEM_BYTES + summed

    @property
    def product_seconds(self) -> float:
        """Matrix products."""
        flops = self.work.layers * 16 * self.work.features**2 * self.work.cells
        return (TRAINING_FLOPS if self.work.training else 1) * flops / self.machine.flops

    @property
    def copy_seconds(self) -> float:
        """Reading and writing by the kernels."""
        work = self.work
        layer = ONE_LAUNCH_NUMBERS if self.one_launch else LAYER_NUMBERS
        layer += BACKWARD_NUMBERS if work.training else 0
        rotation = ROTATION_NUMBERS * self.exchanges / 2
        return (layer * work.layers + rotation) * work.features * work.cells * ITEM_BYTES / self.machine.copy

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
    def buffers(self) -> float:
        """Buffers of a rank's cells that are held at once: gates take three, what the candidates read two."""
        work = self.work
        skipped = (work.layers - 1) // work.blocks if work.blocks > 1 else 0  # a block's inputs, for skip connections
        if work.training:
            # The layers' inputs; of the layers of a unit that share a product, the gradients of gates and candidates
            # and what they read, with tiles' shares of the biases' gradients; input, output, their gradients and what
            # one layer at a time needs.
            half = bits(work.length) - 1
            shared = max(1, min(half, 2 * GRADIENT_PAIRS // work.cells)) if work.features % 8 == 0 else 1
            part = 6 + 5 / 8 / ITEM_BYTES + (shared > 1)
            return work.layers + shared * part + (10 if skipped else 7)
        if self.one_launch:
            return skipped + 3  # the input, a layer's input and its output
        # The input, a layer's input, gates and output; or gates, what the candidates read and candidates where the
        # library computes their product. Skip connections read a sum of two buffers.
        forming = 6 if switch_blocks(work.cells, work.features, torch.bfloat16) is None else 4
        return skipped + (3 if skipped else 2) + forming

    @property
    def memory_bytes(self) -> int:
        """What a rank needs at the moment when it needs most, on the fused kernels."""
        work = self.work
        # An exchange sends one buffer and fills one.
        buffers = self.buffers + (2 if work.ranks > 1 else 0)
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
