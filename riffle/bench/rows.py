"""What is measured: the rows of the table, their FLOPs, and the forms in which each is run.

Nothing here imports torch, so that ``riffle bench --help`` can list the rows at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Work = Literal["inference", "forward and backward", "training step", "encoder"]
Form = Literal["eager", "compiled", "fused", "fused-keep"]

FORMS: dict[Form, str] = {
    "eager": "the reference backend in float32",
    "compiled": "torch.compile of the reference backend in bfloat16",
    "fused": "the fused kernels in bfloat16",
    "fused-keep": "the fused kernels, keeping the gates for the backward pass",
}
"""Every form and what it is."""
BACKWARD = 2
"""Forward passes that a backward pass counts for: a product has two gradients."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One piece of work."""

    name: str
    """What ``--rows`` calls it."""
    work: Work
    """What is done."""
    features: int
    """Feature maps per cell."""
    blocks: int
    """Beneš blocks; of an encoder, layers."""
    lengths: tuple[int, ...]
    """Cells of a sequence; of a training step, of every bin."""
    batch: int = 1
    """Sequences of each length."""
    graph: bool = False
    """Whether the fused form, or the encoder, is replayed as a CUDA graph: without, a short row measures launches."""

    @property
    def title(self) -> str:
        """The row in words."""
        blocks = f"{self.blocks} block{'s' if self.blocks > 1 else ''}"
        if self.work == "encoder":
            blocks = f"{self.blocks} layers"
        lengths = "+".join(map(short, self.lengths))
        lengths = f"bins {lengths}" if self.work == "training step" else f"n = {lengths}"
        batch = f", batch {self.batch}" if self.batch > 1 else ""
        return f"{self.work}, {self.features} maps, {blocks}, {lengths}{batch}"

    @property
    def flops(self) -> int:
        """FLOPs of the matrix products, and of an encoder's attention."""
        count = encoder_flops if self.work == "encoder" else network_flops
        forward = self.batch * sum(count(length, self.features, self.blocks) for length in self.lengths)
        return forward if self.work in ("inference", "encoder") else (1 + BACKWARD) * forward


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


def short(length: int) -> str:
    """A length as people say it.

    >>> short(128), short(1024), short(2**21)
    ('128', '1K', '2M')
    """
    for size, letter in ((2**20, "M"), (2**10, "K")):
        if length >= size and length % size == 0:
            return f"{length // size}{letter}"
    return str(length)


INFER: Work = "inference"
BACK: Work = "forward and backward"
K, M = 2**10, 2**20
ROWS: dict[str, tuple[Row, ...]] = {
    "cuda": (
        Row(name="infer-2m", work=INFER, features=96, blocks=1, lengths=(2 * M,)),
        Row(name="infer-1m", work=INFER, features=192, blocks=1, lengths=(M,)),
        Row(name="infer-128k", work=INFER, features=384, blocks=2, lengths=(128 * K,)),
        Row(name="lambada", work=INFER, features=384, blocks=2, lengths=(128,), batch=64, graph=True),
        Row(name="latency", work=INFER, features=96, blocks=1, lengths=(K,), graph=True),
        Row(name="backward-1m", work=BACK, features=192, blocks=1, lengths=(M,)),
        Row(name="backward-2m", work=BACK, features=96, blocks=1, lengths=(2 * M,)),
        Row(name="backward-lambada", work=BACK, features=384, blocks=2, lengths=(128,), batch=512, graph=True),
        Row(name="step", work="training step", features=192, blocks=1, lengths=(8, 16, 32, 64), batch=64, graph=True),
    ),
    "cpu": (
        Row(name="lambada", work=INFER, features=384, blocks=2, lengths=(128,), batch=4),
        Row(name="latency", work=INFER, features=96, blocks=1, lengths=(K,)),
        Row(name="step", work="training step", features=48, blocks=1, lengths=(8, 16, 32), batch=32),
    ),
}
"""The rows of each kind of device; a CPU takes the short ones."""
CURVE: dict[str, tuple[Row, ...]] = {
    device: tuple(
        Row(name=f"curve-{length}", work=INFER, features=96, blocks=1, lengths=(length,), graph=True)
        for length in lengths
    )
    for device, lengths in {
        "cuda": (K, 4 * K, 16 * K, 64 * K, 256 * K, M, 2 * M),
        "cpu": (256, K, 4 * K, 16 * K),
    }.items()
}
"""Time over length."""
ATTENTION: dict[str, tuple[tuple[Row, Row], ...]] = {
    device: tuple(
        (
            Row(name=f"ours-{length}", work=INFER, features=192, blocks=2, lengths=(length,), graph=True),
            Row(
                name=f"encoder-{length}",
                work="encoder",
                features=192,
                blocks=6,
                lengths=(length,),
                graph=length <= 16 * K,
            ),
        )
        for length in lengths
    )
    for device, lengths in {
        "cuda": (K, 4 * K, 8 * K, 16 * K, 64 * K, 256 * K, M),
        "cpu": (256, 512, K, 2 * K),
    }.items()
}
"""Two Beneš blocks beside a transformer encoder of the same width."""
