r"""How many bytes a network needs, and the longest sequence that fits into what is free.

Counted in buffers of all cells, :math:`B N D` numbers of the dtype they are computed in, at the moment when most of
them are held; weights are left out, which long sequences dwarf. With k address bits, a network of b blocks has
L = 2 (k - 1) b + 1 layers; with all shuffles in one direction read k for every k - 1. Gates are three buffers, what
the candidates read is two, the candidates are one.

======================  =============================================================================================
without gradients       the input, a layer's input, and as it forms its output: the gates and the output (4 buffers) or,
(fused)                 where the library does the candidates' product, gates, what they read and candidates (6). With
                        skip connections also the inputs of one block's 2 (k - 1) layers, that of the last block and the
                        sum that gates and candidates read: 3 more beside the 2 (k - 1), less the one already let go.
training (fused)        L layers' inputs, with ``recompute=False`` their gates and candidates too (5 L); the output, its
                        gradient, and in the backward pass of one layer: gates, candidates and what they read, unless
                        kept (4 + 2, else 2), and their gradients (4 in all). A skip connection adds 4.
without gradients       the input, a copy that the layers overwrite, and for a chunk of pairs at a time what a unit
(reference)             computes: 6 buffers of the chunk's size, 11 in 16 bits, where nothing is overwritten. With skip
                        connections copies of the inputs of 2 (k - 1) layers.
training (reference)    what autograd keeps of a layer: its input, gates (3), what the candidates read (2), candidates
                        and the swapped pair, together 8 L; 2 (k - 1) (b - 2) more with skip connections, and 8 for the
                        layer in work.
======================  =============================================================================================
"""

# B = batch, N = 2**k cells, D = features per cell
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from riffle.kernels.tuning import switch_blocks
from riffle.nn.in_place import CHUNK_PAIRS, CHUNK_PAIRS_DEVICE
from riffle.nn.layer import compute_dtype, is_fused
from riffle.nn.lengths import bits

if TYPE_CHECKING:
    from riffle.nn.network import ShuffleExchange

SLACK = 1.1
"""What fits has to fit with this much to spare: the allocator rounds up and leaves gaps."""
Shape = tuple[int, int]
"""Sequences, and cells of each."""


@dataclass(frozen=True)
class Footprint:
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


def footprint(network: ShuffleExchange, x_BND: Tensor, training: bool) -> Footprint:
    """What decides how many bytes a network needs for inputs such as ``x_BND``."""
    fused = is_fused(network, x_BND)
    return Footprint(
        features=network.features,
        blocks=network.blocks,
        skips=network.unit != "no-residual",
        benes=network.unit != "no-benes",
        dtype=compute_dtype(x_BND) if fused else x_BND.dtype,
        fused=fused,
        training=training,
        recompute=network.recompute,
        device=x_BND.device.type,
    )


def free_bytes(device: torch.device) -> int:
    """What can still be allocated on a GPU: by the driver's count, and by the share given to this process."""
    free, total = torch.cuda.mem_get_info(device)
    held = torch.cuda.memory_allocated(device)
    index = torch.cuda.current_device() if device.index is None else device.index
    share = int(torch.cuda.get_per_process_memory_fraction(index) * total)
    return min(free + torch.cuda.memory_reserved(device) - held, share - held)


def out_of_memory(network: ShuffleExchange, xs_BND: Sequence[Tensor]) -> torch.OutOfMemoryError:
    """The error to raise where a network ran out of memory on some batches: what it needs, and what would fit."""
    wanted = any(tensor.requires_grad for tensor in (*xs_BND, *network.parameters()))
    training = torch.is_grad_enabled() and wanted
    # The inputs are there already, and at another length they would be others.
    free = free_bytes(xs_BND[0].device) + sum(x_BND.nbytes for x_BND in xs_BND)
    shapes = [(x_BND.shape[0], x_BND.shape[1]) for x_BND in xs_BND]
    return torch.OutOfMemoryError(explain(footprint(network, xs_BND[0], training), shapes, free))


def explain(footprint: Footprint, shapes: Sequence[Shape], free: int) -> str:
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
