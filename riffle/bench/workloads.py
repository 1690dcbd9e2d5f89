"""What is measured: the rows of the table, their FLOPs, and the forms in which each is run.

Nothing here imports torch, so that ``riffle bench --help`` can list the rows at once.

Which rows a run measures, in which forms, in which order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from riffle.cost import encoder_flops, network_flops
from riffle.quantities import format_length

WorkKind = Literal["inference", "forward and backward", "training step", "encoder"]
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
class Workload:
    """One piece of work."""

    name: str
    """What ``--rows`` calls it."""
    work: WorkKind
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
        lengths = "+".join(map(format_length, self.lengths))
        lengths = f"bins {lengths}" if self.work == "training step" else f"n = {lengths}"
        batch = f", batch {self.batch}" if self.batch > 1 else ""
        return f"{self.work}, {self.features} maps, {blocks}, {lengths}{batch}"

    @property
    def flops(self) -> int:
        """FLOPs of the matrix products, and of an encoder's attention."""
        count = encoder_flops if self.work == "encoder" else network_flops
        forward = self.batch * sum(count(length, self.features, self.blocks) for length in self.lengths)
        return forward if self.work in ("inference", "encoder") else (1 + BACKWARD) * forward


INFER: WorkKind = "inference"
BACK: WorkKind = "forward and backward"
K, M = 2**10, 2**20
WORKLOADS: dict[str, tuple[Workload, ...]] = {
    "cuda": (
        Workload(name="infer-2m", work=INFER, features=96, blocks=1, lengths=(2 * M,)),
        Workload(name="infer-1m", work=INFER, features=192, blocks=1, lengths=(M,)),
        Workload(name="infer-128k", work=INFER, features=384, blocks=2, lengths=(128 * K,)),
        Workload(name="lambada", work=INFER, features=384, blocks=2, lengths=(128,), batch=64, graph=True),
        Workload(name="latency", work=INFER, features=96, blocks=1, lengths=(K,), graph=True),
        Workload(name="backward-1m", work=BACK, features=192, blocks=1, lengths=(M,)),
        Workload(name="backward-2m", work=BACK, features=96, blocks=1, lengths=(2 * M,)),
        Workload(name="backward-lambada", work=BACK, features=384, blocks=2, lengths=(128,), batch=512, graph=True),
        Workload(
            name="step", work="training step", features=192, blocks=1, lengths=(8, 16, 32, 64), batch=64, graph=True
        ),
    ),
    "cpu": (
        Workload(name="lambada", work=INFER, features=384, blocks=2, lengths=(128,), batch=4),
        Workload(name="latency", work=INFER, features=96, blocks=1, lengths=(K,)),
        Workload(name="step", work="training step", features=48, blocks=1, lengths=(8, 16, 32), batch=32),
    ),
}
"""The rows of each kind of device; a CPU takes the short ones."""
CURVE: dict[str, tuple[Workload, ...]] = {
    device: tuple(
        Workload(name=f"curve-{length}", work=INFER, features=96, blocks=1, lengths=(length,), graph=True)
        for length in lengths
    )
    for device, lengths in {
        "cuda": (K, 4 * K, 16 * K, 64 * K, 256 * K, M, 2 * M),
        "cpu": (256, K, 4 * K, 16 * K),
    }.items()
}
"""Time over length."""
ATTENTION: dict[str, tuple[tuple[Workload, Workload], ...]] = {
    device: tuple(
        (
            Workload(name=f"ours-{length}", work=INFER, features=192, blocks=2, lengths=(length,), graph=True),
            Workload(
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
Section = Literal["rows", "curve", "attention"]
SECTIONS: tuple[Section, ...] = ("rows", "curve", "attention")
DEVICE_FORMS: dict[str, tuple[Form, ...]] = {"cuda": tuple(FORMS), "cpu": ("eager", "compiled")}
"""The forms a kind of device can run."""
DEFAULT_FORMS: dict[str, tuple[Form, ...]] = {"cuda": tuple(FORMS), "cpu": ("eager",)}


class Measurement(NamedTuple):
    """One measurement."""

    section: Section
    """The part of the record it belongs to."""
    row: Workload
    """What is measured."""
    form: Form
    """How it is run."""


def plan(
    device: str, names: Sequence[str] | None = None, forms: Sequence[str] | None = None, *, attention: bool = True
) -> list[Measurement]:
    """The measurements of a run; an unknown name is answered with those that exist.

    Args:
        device: "cuda" or "cpu".
        names: Rows, "curve" and "attention"; None for all.
        forms: Forms of the rows; None for all that the device runs, on a CPU for eager alone.
        attention: False leaves the comparison with attention out, unless it is named.
    """
    chosen = _chosen("row", names, row_names(device), device)
    if names is None and not attention:
        chosen.remove("attention")
    wanted = _chosen("form", forms or DEFAULT_FORMS[device], DEVICE_FORMS[device], device)
    steps = [
        Measurement("rows", row, form)
        for row in WORKLOADS[device]
        if row.name in chosen
        for form in DEVICE_FORMS[device]
        if form in wanted and (form != "fused-keep" or row.work != "inference")
    ]
    ours: Form = "fused" if device == "cuda" else "eager"
    if "curve" in chosen:
        steps += [Measurement("curve", row, ours) for row in CURVE[device]]
    if "attention" in chosen:
        theirs: Form = "compiled" if device == "cuda" else "eager"
        for our_row, encoder in ATTENTION[device]:
            steps += [Measurement("attention", our_row, ours), Measurement("attention", encoder, theirs)]
    return steps


def row_names(device: str) -> tuple[str, ...]:
    """Everything ``--rows`` can choose on a kind of device."""
    return (*(row.name for row in WORKLOADS[device]), "curve", "attention")


def _chosen(what: str, names: Sequence[str] | None, choices: Sequence[str], device: str) -> list[str]:
    names = choices if names is None else names
    unknown = [name for name in names if name not in choices]
    if unknown:
        raise ValueError(f"no {what} {unknown[0]!r} on {device}; choose from {', '.join(choices)}")
    return list(names)
