"""Block sizes of the Triton kernels, by width, with the run that chose them.

Chosen on an H200 in bfloat16 from some thirty forms at 64 to 384 features (docs/kernels.md has the figures).
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from riffle.kernels import TRITON_VERSION

CHUNK_PAIRS = {"cpu": 4096}
"""Pairs that go through a unit at once, so that a CPU's cache holds what they need."""
CHUNK_PAIRS_DEVICE = 2**18
"""The same on any other device: enough to fill it, little beside the sequences that need it."""
PASS_ROWS = 32
"""Rows of a tile, pairs or cells, in the kernels that make one pass over memory."""
NUMBERS_A_WARP = 512
"""Elements of a tile per warp in these kernels."""
FEW_PAIRS = 2**15
"""Up to this many pairs, smaller tiles are faster although they leave more partial sums."""
GRADIENT_PAIRS = 2**16
"""Layers of one unit share the product for their weights' gradients up to this many pairs in all."""
FEWEST_PAIRS = 2048
"""From this many pairs on, a Triton kernel forms the candidates; fewer make too few tiles to fill the GPU."""
FEWEST_RESIDUAL_PAIRS = 8192
"""From this many pairs on, warps share the rows that the residual unit normalises."""
MOST_LENGTHS = 16
"""With pad="even", at most this many batches of different lengths run in one call of the kernels."""
L2_CACHE_BYTES = 40 * 2**20
"""How much of one launch's output the next one still finds in the second-level cache."""


class Blocks(NamedTuple):
    """How a kernel's work is cut up."""

    rows: int
    """Rows of a tile."""
    columns: int
    """Columns of a block, a power of two."""
    options: dict[str, Any]
    """What else the launch takes: warps, stages, registers, the step along a product's sum."""


@lru_cache(maxsize=256)
def pass_blocks(width: int, rows: int = PASS_ROWS) -> Blocks:
    """For the kernels that make one pass over memory, on rows of ``width`` numbers; ``rows`` of a tile."""
    columns = _divisor(width, 64)
    return Blocks(rows, columns, {"num_warps": max(1, columns * rows // NUMBERS_A_WARP)})


def summing_rows(pairs: int) -> int:
    """Rows of a tile in the passes that store a partial sum per tile."""
    return PASS_ROWS // 2 if pairs <= FEW_PAIRS else PASS_ROWS


class RowForm(NamedTuple):
    """How a kernel that normalises rows cuts up its work."""

    tile: int
    """Rows of a program; the backward kernel stores one partial sum for them."""
    warps: int
    """The most warps of a program."""
    shared: bool = False
    """Whether warps share rows; otherwise each warp has whole rows, up to 1,024 numbers wide."""


FEW_ROWS = {"forward": RowForm(4, 4), "backward": RowForm(32, 8)}
"""Below :data:`FEWEST_RESIDUAL_PAIRS`: few programs, each of which loads its rows at once."""
MANY_ROWS = {"forward": RowForm(PASS_ROWS, 4, shared=True), "backward": RowForm(PASS_ROWS, 4, shared=True)}


def row_form(pairs: int, way: str) -> RowForm:
    """The form for a number of pairs; ``way`` is "forward" or "backward"."""
    return (FEW_ROWS if pairs < FEWEST_RESIDUAL_PAIRS else MANY_ROWS)[way]


@lru_cache(maxsize=256)
def row_blocks(form: RowForm, width: int) -> Blocks:
    """For rows of ``width`` numbers."""
    whole = 1 << (width - 1).bit_length()
    options: dict[str, Any] = {"TILE_P": form.tile, "WARP_ROWS": not form.shared}
    if form.shared:
        rows = max(1, min(form.tile, 512 * form.warps // whole))
        return Blocks(rows, whole, options | {"num_warps": form.warps})
    # Eight numbers a thread: 256 columns are one warp's.
    most = max(256, whole // 4)
    columns = min(most, width & -width)
    if width > 8 * columns:
        columns = min(most, whole)
    rows = max(1, min(form.tile, form.warps * 256 // columns))
    return Blocks(rows, columns, options | {"num_warps": max(1, rows * columns // 256)})


@lru_cache(maxsize=4096)
def switch_blocks(cells: int, features: int, dtype: torch.dtype) -> Blocks | None:
    """For the kernel that forms the candidates too; None where the library's product serves better."""
    columns = _divisor(features, 128 if features > 128 else 64)
    fewest = FEWEST_PAIRS if features <= 192 else 2 * FEWEST_PAIRS
    if dtype == torch.float32 or cells < 2 * fewest or features % columns or features > 3 * columns:
        return None
    # A wide unit gives the library enough to do, unless its gates stay in the cache between the two launches.
    if features > 192 and 3 * cells * features * dtype.itemsize > L2_CACHE_BYTES:
        return None
    # The fewest registers without spilling: more programs on a multiprocessor hide each other's latency. Where all
    # programs run at once anyway, each gets more registers.
    most = {96: 96, 128: 128, 192: 168}.get(features)
    if features == 192 and cells <= 2**16:
        most = None
    return Blocks(
        64,
        columns,
        {
            "BLOCK_K": _divisor(2 * features, 64),
            "num_warps": 4 if features <= 192 else 8,
            "num_stages": 2 if most else 3,
            "maxnreg": most,
        },
    )


SIDE_STREAMS = 3
"""Streams for the gradients of weights in a graph of small work. With three a training step of the bins 8 to 64 took
0.972 ms with the gated unit and 0.976 with the residual one on an H200, with one 1.008 and 1.000."""


class LayerForm(NamedTuple):
    """How the kernel that does a whole layer cuts up its work (:mod:`riffle.kernels.hopper`)."""

    groups: int
    """Groups of warps in a program; each has its own pairs."""
    stages: int
    """Buffers for weights in shared memory."""
    split: int = 1
    """Buffers that the weights of one product take."""
    shared: bool = False
    """Whether the pairs lie in shared memory instead of registers."""
    loop: bool = False
    """Whether the chunks of outputs are made by a loop."""
    ways: int = 1
    """Programs that share a tile: 1, or 4 that each make half of the outputs of one of its cells."""
    ahead: int = 0
    """Tiles whose pairs are prefetched into shared memory, where no skip connection is added."""

    def chunk(self, features: int) -> int:
        """Columns of reset gates that are formed at once."""
        return 64 if features % 32 == 0 else 32

    @property
    def registers(self) -> tuple[int, int]:
        """Registers per thread: of the computing groups, and of all warps when the program starts."""
        return {1: (240, 256), 2: (240, 168), 3: (160, 128)}[self.groups]


class LayerRow(NamedTuple):
    """Where one form of that kernel is faster than the other kernels."""

    features: int
    keep: bool
    """Whether the gates are kept."""
    fewest: int
    """Pairs from which on it is."""
    form: LayerForm
    skip: bool | None = None
    """Whether there is a skip connection, which other kernels add in a launch of its own; None for both."""
    most: int | None = None
    """Pairs up to which it is; None for any number."""

    def fits(self, pairs: int, features: int, *, keep: bool, skip: bool) -> bool:
        """Whether it is for such a layer."""
        alike = (self.features, self.keep) == (features, keep) and self.skip in (None, skip)
        return alike and self.fewest <= pairs <= (self.most or pairs)


_LOOP_192 = LayerForm(groups=2, stages=6, split=3, shared=True, loop=True)
LAYER_ROWS: tuple[LayerRow, ...] = (
    LayerRow(32, False, 2**15, LayerForm(groups=3, stages=2)),
    LayerRow(48, False, 2**15, LayerForm(groups=3, stages=6)),
    LayerRow(64, False, 2**13, LayerForm(groups=3, stages=4)),
    LayerRow(64, True, 2**20, LayerForm(groups=3, stages=4)),
    LayerRow(96, False, 2**12, LayerForm(groups=2, stages=6, ahead=1)),
    LayerRow(96, True, 2**14, LayerForm(groups=2, stages=6)),
    LayerRow(128, False, 2**14, LayerForm(groups=2, stages=4)),
    LayerRow(192, False, 2**9, LayerForm(groups=1, stages=6, split=3, shared=True, ways=4), most=2**11),
    LayerRow(192, False, 2**14, _LOOP_192),
    # Without a skip connection, other kernels keep the gates of a million cells faster, and those of 128K slower.
    LayerRow(192, True, 2**14, _LOOP_192, most=2**16),
    LayerRow(192, True, 2**13, _LOOP_192, skip=True),
)
"""A layer takes the form of the last row that fits it; without one, other kernels run it."""


class ProductForm(NamedTuple):
    """How the kernel of a layer's way back from its candidates to its reset gates cuts up its work."""

    fewest: int
    """Pairs from which on it is faster than the library's product and the reset pass."""
    stages: int
    """Tiles that have room in shared memory at once."""
    step: int
    """Columns of a block of the candidates' gradients."""
    chunk: int = 64
    """Columns of the pair that a program has."""


PRODUCT_FORMS: dict[int, ProductForm] = {
    96: ProductForm(fewest=2**14, stages=4, step=32),
    192: ProductForm(fewest=2**11, stages=3, step=64),
}
"""By features (:mod:`riffle.kernels.hopper_backward`)."""


RESIDENT_PAIRS: dict[int, int] = {192: 2**11}
"""By features, pairs up to which consecutive layers of a unit are faster as one launch than as one each
(:mod:`riffle.kernels.hopper_resident`)."""
MPS_SHARE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
"""The variable that says which part of a GPU's multiprocessors a process may take."""
DEPENDENT_LAUNCH = True
"""Whether a kernel may begin while the one before it ends (programmatic dependent launch), where the chip can.

Such a kernel waits (`griddepcontrol.wait`) before it reads or writes anything that another launch writes or reads; the
wait ends when the launch before has ended and all that it wrote can be seen. Only then does it let the next one begin
(`griddepcontrol.launch_dependents`), so that two launches back everything has ended. Weights alone are read before the
wait, by the kernels of ``hopper.py`` and ``hopper_backward.py``: the first layer of a forward pass is launched without
all this, and ends after the launch that cast the weights; on the way back, `update_backward` runs before.
"""


@lru_cache(maxsize=4096)
def find_layer_form(
    pairs: int, features: int, dtype: torch.dtype, *, keep: bool, skip: bool = False
) -> LayerForm | None:
    """The form of the kernel that does a whole layer, on a chip that runs it; None where other kernels are faster."""
    forms = [row.form for row in LAYER_ROWS if row.fits(pairs, features, keep=keep, skip=skip)]
    return forms[-1] if forms and dtype != torch.float32 else None


@lru_cache(maxsize=4096)
def layer_form(
    pairs: int, features: int, dtype: torch.dtype, device: torch.device, *, keep: bool, skip: bool = False
) -> LayerForm | None:
    """For the kernel that does a whole layer; None where the chip cannot run it or other kernels are faster."""
    form = find_layer_form(pairs, features, dtype, keep=keep, skip=skip)
    if form is None or not has_warpgroups(device):
        return None
    # Few pairs: one group of 64 per program, so that all multiprocessors have work.
    tiles = -(-pairs // (64 * multiprocessors(device)))
    return form._replace(groups=min(form.groups, tiles))


@lru_cache(maxsize=4096)
def product_form(pairs: int, features: int, dtype: torch.dtype, device: torch.device) -> ProductForm | None:
    """For the way back from candidates to reset gates in one launch; None where the library's product is faster."""
    form = PRODUCT_FORMS.get(features)
    if form is None or pairs < form.fewest or dtype == torch.float32 or not has_warpgroups(device):
        return None
    return form


def is_resident(pairs: int, features: int, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether consecutive layers of a unit are one launch: where that is faster, and all programs run at once.

    Eight programs share 128 pairs, each on a multiprocessor of its own, of which a share of the chip under NVIDIA's MPS
    has too few.
    """
    shared = os.environ.get(MPS_SHARE, "100") != "100"
    if shared or pairs % 128 or pairs > RESIDENT_PAIRS.get(features, 0) or dtype == torch.float32:
        return False
    return has_warpgroups(device) and pairs // 16 <= multiprocessors(device)


def dependent_launch(device: torch.device) -> bool:
    """Whether kernels on a device are launched so (:data:`DEPENDENT_LAUNCH`)."""
    return DEPENDENT_LAUNCH and has_warpgroups(device)


@lru_cache
def has_warpgroups(device: torch.device) -> bool:
    """Whether the chip has warpgroup products and Triton a language for them."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return False
    return TRITON_VERSION >= (3, 6) and torch.cuda.get_device_capability(device) == (9, 0)


@lru_cache
def multiprocessors(device: torch.device) -> int:
    """Multiprocessors of a device."""
    return torch.cuda.get_device_properties(device).multi_processor_count


def _divisor(width: int, most: int) -> int:
    """The largest power of two up to ``most`` that divides ``width``, or 16 where masks are needed anyway."""
    return max(16, min(most, width & -width))
