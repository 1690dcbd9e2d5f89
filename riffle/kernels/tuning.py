"""Block sizes of the Triton kernels, by width, with the run that chose them.

Chosen on an H200 in bfloat16 from some thirty forms at 64 to 384 features (docs/kernels.md has the figures).
"""

from __future__ import annotations

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
FEW_PAIRS = 2**15
"""Up to so many, what the passes leave to be summed is little."""
GRADIENT_PAIRS = 2**16
"""Up to so many pairs of several layers are summed in one product for the gradients of a unit's weights."""
FEWEST_PAIRS = 2048
"""From here on the candidates are formed on the chip; tiles of fewer pairs would leave much of it idle."""
FEWEST_RESIDUAL_PAIRS = 8192
"""The same for the candidate of the residual unit."""
MOST_LENGTHS = 16
"""Batches of so many lengths that are no powers of two go through the layers together."""
L2_CACHE_BYTES = 40 * 2**20
"""What stays in the second-level cache from one launch to the next."""


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
    return Blocks(rows, columns, {"num_warps": max(1, columns * rows // 512)})


def summing_rows(pairs: int) -> int:
    """Rows of a tile in the passes that leave a tile's share of some sums: fewer are faster, and leave more shares."""
    return PASS_ROWS // 2 if pairs <= FEW_PAIRS else PASS_ROWS


@lru_cache(maxsize=256)
def row_blocks(width: int, rows: int) -> Blocks:
    """For the kernels that normalise rows of ``width`` numbers: a power of two of columns holds a whole row."""
    columns = 1 << (width - 1).bit_length()
    # Few rows leave few programs, which had better have many warps each.
    warps = 8 if rows < FEWEST_RESIDUAL_PAIRS else 4
    return Blocks(max(1, min(PASS_ROWS, 512 * warps // columns)), columns, {"num_warps": warps})


SEQUENCE_BLOCKS = Blocks(64, 32, {"num_warps": 4})
"""For the kernels that normalise sequences."""


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
    # As few registers as do not spill: programs side by side on a multiprocessor hide each other's waits. Where all
    # programs run at once anyway, each is better off with more of them.
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


class LayerForm(NamedTuple):
    """How the kernel that does a whole layer cuts up its work (:mod:`riffle.kernels.hopper`)."""

    groups: int
    """Warpgroups of a program, each with 64 pairs."""
    stages: int
    """Places for weights in shared memory."""
    split: int = 1
    """Places that the weights of one product take."""
    shared: bool = False
    """Whether the pairs lie in shared memory instead of registers."""

    def options(self, features: int) -> dict[str, Any]:
        """What the launch takes."""
        chunk = 64 if features % 32 == 0 else 32
        # Registers of a thread in the groups, and in all warps together when the program starts.
        registers, start = {1: (240, 256), 2: (240, 168), 3: (160, 128)}[self.groups]
        return {
            "GROUPS": self.groups, "STAGES": self.stages, "SPLIT": self.split, "SHARED": self.shared, "CHUNK": chunk,
            "OUT": chunk // 2, "REGISTERS": registers, "num_warps": 4, "maxnreg": start,
        }  # fmt: skip


LAYER_FORMS: dict[int, LayerForm] = {
    32: LayerForm(groups=3, stages=2),
    48: LayerForm(groups=3, stages=6),
    64: LayerForm(groups=3, stages=4),
    96: LayerForm(groups=2, stages=6),
    128: LayerForm(groups=2, stages=4),
    192: LayerForm(groups=2, stages=6, split=3, shared=True),
}
"""By features, for many pairs."""
FEWEST_LAYER_PAIRS: dict[tuple[int, bool], int] = {
    (32, False): 2**15,
    (48, False): 2**15,
    (64, False): 2**13,
    (64, True): 2**20,
    (96, False): 2**12,
    (96, True): 2**14,
    (128, False): 2**14,
    (192, False): 2**14,
}
"""By features and whether the gates are kept: from here on, one launch was faster than the others together."""


def is_one_launch(pairs: int, features: int, dtype: torch.dtype, *, keep: bool) -> bool:
    """Whether the kernel that does a whole layer is the fastest, on a chip that runs it."""
    fewest = FEWEST_LAYER_PAIRS.get((features, keep))
    return fewest is not None and pairs >= fewest and dtype != torch.float32


@lru_cache(maxsize=4096)
def layer_form(pairs: int, features: int, dtype: torch.dtype, device: torch.device, *, keep: bool) -> LayerForm | None:
    """For the kernel that does a whole layer; None where the chip cannot run it or other kernels are faster."""
    if not is_one_launch(pairs, features, dtype, keep=keep) or not has_warpgroups(device):
        return None
    # Rather one group on every multiprocessor than several on some.
    form = LAYER_FORMS[features]
    return form._replace(groups=min(form.groups, -(-pairs // (64 * multiprocessors(device)))))


@lru_cache
def has_warpgroups(device: torch.device) -> bool:
    """Whether the chip has warpgroup products and Triton a language for them."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return False
    return TRITON_VERSION >= (3, 6) and torch.cuda.get_device_capability(device) == (9, 0)


@lru_cache
def multiprocessors(device: torch.device) -> int:
    """How many programs run side by side where each takes a whole multiprocessor."""
    return torch.cuda.get_device_properties(device).multi_processor_count


def _divisor(width: int, most: int) -> int:
    """The largest power of two up to ``most`` that divides ``width``, or 16 where masks are needed anyway."""
    return max(16, min(most, width & -width))
