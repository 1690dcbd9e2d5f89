"""What ``bench`` measures: workloads, their FLOPs, the forms in which they run, and which of them a run takes.

Importing this module does not import torch, so that ``bench --help`` is quick.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from riffle.quantities import format_length

WorkloadKind = Literal[
    "inference", "forward and backward", "training step", "encoder",
    "plain forward", "plain forward and backward", "plain training step",
]  # fmt: skip
"""The plain kinds are a loop as users write it: float32 weights, autocast to bfloat16, AdamW, a call of a module."""
Form = Literal[
    "eager", "compiled", "fused", "fused-keep",
    "riffle", "riffle-compiled", "riffle-reduced", "riffle-graphs", "riffle-graphs-compiled",
    "encoder", "encoder-compiled", "encoder-graphs", "gla", "gla-graphs", "gated-deltanet", "gated-deltanet-graphs",
]  # fmt: skip
FORMS: dict[Form, str] = {
    "eager": "the reference backend in float32",
    "compiled": "torch.compile of the reference backend in bfloat16",
    "fused": "the fused kernels in bfloat16",
    "fused-keep": "the fused kernels, keeping the gates for the backward pass",
}
OWN_LOOP_FORMS: dict[Form, str] = {
    "riffle": "this layer with graphs=False",
    "riffle-compiled": "torch.compile of it",
    "riffle-reduced": "torch.compile with mode reduce-overhead",
    "riffle-graphs": "replayed as CUDA graphs, its default",
    "riffle-graphs-compiled": "torch.compile of that",
    "encoder": "nn.TransformerEncoder of six layers",
    "encoder-compiled": "torch.compile of it",
    "encoder-graphs": "replayed as CUDA graphs",
    "gla": "gated linear attention in both directions, of flash-linear-attention",
    "gla-graphs": "replayed as CUDA graphs",
    "gated-deltanet": "gated DeltaNet in both directions, of flash-linear-attention",
    "gated-deltanet-graphs": "replayed as CUDA graphs",
}
"""A module in a user's own loop; all have about as many parameters."""
DEVICE_FORMS: dict[str, tuple[Form, ...]] = {"cuda": tuple(FORMS), "cpu": ("eager", "compiled")}
Section = Literal["rows", "attention", "own-loop"]
SECTIONS: tuple[Section, ...] = get_args(Section)
"""Parts of the result file: the table, the comparison with attention, and users' own loops."""


@dataclass(frozen=True)
class Workload:
    """A network, the shape of its input, and what is computed."""

    name: str
    kind: WorkloadKind
    features: int
    blocks: int
    """Beneš blocks; layers of an encoder."""
    lengths: tuple[int, ...]
    """Cells per sequence; a training step has a batch of each length."""
    batch: int = 1
    graph: bool = False
    """Whether the fused form, or the encoder, is replayed as a CUDA graph: short ones would measure launch overhead."""
    unit: str = "gated"
    """The switch unit."""

    @property
    def title(self) -> str:
        """The workload in words."""
        layers = f"{self.blocks} layers" if self.kind == "encoder" else f"{self.blocks} block{'s' * (self.blocks > 1)}"
        lengths = "+".join(map(format_length, self.lengths))
        lengths = f"bins {lengths}" if len(self.lengths) > 1 else f"n = {lengths}"
        batch = f", batch {self.batch}" if self.batch > 1 else ""
        unit = "" if self.unit == "gated" else f", {self.unit} unit"
        return f"{self.kind.removeprefix('plain ')}, {self.features} maps, {layers}, {lengths}{batch}{unit}"

    @property
    def flops(self) -> int:
        """FLOPs of the matrix products, and of an encoder's attention; a backward pass has twice those of a forward."""
        from research.bench.cost import encoder_flops, network_flops

        count = encoder_flops if self.kind == "encoder" else network_flops
        forward = self.batch * sum(count(length, self.features, self.blocks) for length in self.lengths)
        return forward if self.kind in ("inference", "encoder", "plain forward") else 3 * forward


K, M = 2**10, 2**20
WORKLOADS: dict[str, tuple[Workload, ...]] = {
    "cuda": (
        Workload("infer-2m", "inference", 96, 1, (2 * M,)),
        Workload("infer-1m", "inference", 192, 1, (M,)),
        Workload("infer-128k", "inference", 384, 2, (128 * K,)),
        Workload("lambada", "inference", 384, 2, (128,), batch=64, graph=True),
        Workload("latency", "inference", 96, 1, (K,), graph=True),
        Workload("backward-1m", "forward and backward", 192, 1, (M,)),
        Workload("backward-2m", "forward and backward", 96, 1, (2 * M,)),
        Workload("backward-lambada", "forward and backward", 384, 2, (128,), batch=512, graph=True),
        Workload("step", "training step", 192, 1, (8, 16, 32, 64), batch=64, graph=True),
        Workload("residual-step", "training step", 192, 1, (8, 16, 32, 64), batch=64, graph=True, unit="residual"),
        Workload("residual-backward-1m", "forward and backward", 192, 1, (M,), unit="residual"),
    ),
    "cpu": (
        Workload("lambada", "inference", 384, 2, (128,), batch=4),
        Workload("latency", "inference", 96, 1, (K,)),
        Workload("step", "training step", 48, 1, (8, 16, 32), batch=32),
    ),
}
"""The rows of the table, for each type of device."""
ATTENTION: dict[str, tuple[tuple[Workload, Workload], ...]] = {
    device: tuple(
        (
            Workload(f"ours-{length}", "inference", 192, 2, (length,), graph=True),
            Workload(f"encoder-{length}", "encoder", 192, 6, (length,), graph=length <= 16 * K),
        )
        for length in lengths
    )
    for device, lengths in {"cuda": (K, 4 * K, 8 * K, 16 * K, 64 * K, 256 * K, M), "cpu": (256, 512, K, 2 * K)}.items()
}
"""Two Beneš blocks beside a transformer encoder of the same width, at each length."""

_CALL: tuple[Form, ...] = ("riffle", "riffle-graphs")
_STEP: tuple[Form, ...] = tuple(form for form in OWN_LOOP_FORMS if form.startswith(("riffle", "encoder")))
_ALL: tuple[Form, ...] = tuple(
    form for form in OWN_LOOP_FORMS if not (form.startswith("riffle") and form.endswith(("-compiled", "-reduced")))
)
_LONG: tuple[Form, ...] = ("riffle", "riffle-graphs", "encoder", "gla", "gated-deltanet")  # the host does not matter
OWN_LOOP: dict[str, tuple[tuple[Workload, tuple[Form, ...]], ...]] = {
    "cuda": (
        (Workload("own-step-256", "plain training step", 192, 1, (256,), batch=64), _STEP),
        (Workload("own-step-1k", "plain training step", 192, 2, (K,), batch=32), _STEP),
        (Workload("own-step-4k", "plain training step", 192, 2, (4 * K,), batch=8), _STEP),
        (Workload("own-call-1k", "plain forward", 96, 1, (K,)), _CALL),
        (Workload("own-call-4k", "plain forward", 192, 2, (4 * K,)), _CALL),
        (Workload("own-forward-1k", "plain forward", 192, 2, (K,), batch=32), _ALL),
        (Workload("own-backward-1k", "plain forward and backward", 192, 2, (K,), batch=32), _ALL),
        (Workload("own-forward-16k", "plain forward", 192, 2, (16 * K,), batch=2), _ALL),
        (Workload("own-backward-16k", "plain forward and backward", 192, 2, (16 * K,), batch=2), _ALL),
        (Workload("own-forward-256k", "plain forward", 192, 2, (256 * K,)), _LONG),
        (Workload("own-backward-256k", "plain forward and backward", 192, 2, (256 * K,)), _LONG),
    ),
    "cpu": ((Workload("own-step-256", "plain training step", 48, 1, (256,), batch=4), _STEP),),
}
"""What users do in their own loops, and the forms in which it is measured."""


class Case(NamedTuple):
    """One measurement to make: a workload in a form, for a section of the result file."""

    section: Section
    workload: Workload
    form: Form


def select_cases(device: str, names: Sequence[str] | None = None, forms: Sequence[str] | None = None) -> list[Case]:
    """The measurements of a run, in order; an unknown name is refused with the list of names.

    None for ``names`` takes all rows; None for ``forms`` takes all forms on a GPU, on a CPU those that are quick.
    """
    selected = list(row_names(device) if names is None else names)
    selected_forms = forms or (
        (*FORMS, *OWN_LOOP_FORMS) if device == "cuda" else ("eager", "riffle", "encoder")  # others take minutes
    )
    form_names = (*DEVICE_FORMS[device], *OWN_LOOP_FORMS)
    checks = (("row", selected, row_names(device)), ("form", selected_forms, form_names))
    for what, given, choices in checks:
        for name in given:
            if name not in choices:
                raise ValueError(f"no {what} {name!r} on {device}; choose from {', '.join(choices)}")
    cases = [
        Case("rows", workload, form)
        for workload in WORKLOADS[device]
        if workload.name in selected
        for form in DEVICE_FORMS[device]
        if form in selected_forms and (form != "fused-keep" or workload.kind != "inference")
    ]
    network_form: Form = "fused" if device == "cuda" else "eager"
    encoder_form: Form = "compiled" if device == "cuda" else "eager"
    if "attention" in selected:
        for network, encoder in ATTENTION[device]:
            cases += [Case("attention", network, network_form), Case("attention", encoder, encoder_form)]
    for workload, own_forms in OWN_LOOP[device]:
        if {"own-loop", workload.name} & set(selected):
            cases += [Case("own-loop", workload, form) for form in own_forms if form in selected_forms]
    return cases


def row_names(device: str) -> tuple[str, ...]:
    """Every name that ``--rows`` takes on a type of device."""
    own = (workload.name for workload, _ in OWN_LOOP[device])
    return (*(workload.name for workload in WORKLOADS[device]), "attention", "own-loop", *own)
