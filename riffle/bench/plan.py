"""Which rows a run measures, in which forms, in which order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from riffle.bench.rows import ATTENTION, CURVE, FORMS, ROWS, Form, Row

Section = Literal["rows", "curve", "attention"]
SECTIONS: tuple[Section, ...] = ("rows", "curve", "attention")
DEVICE_FORMS: dict[str, tuple[Form, ...]] = {"cuda": tuple(FORMS), "cpu": ("eager", "compiled")}
"""The forms a kind of device can run."""
DEFAULT_FORMS: dict[str, tuple[Form, ...]] = {"cuda": tuple(FORMS), "cpu": ("eager",)}


class Step(NamedTuple):
    """One measurement."""

    section: Section
    """The part of the record it belongs to."""
    row: Row
    """What is measured."""
    form: Form
    """How it is run."""


def plan(
    device: str, names: Sequence[str] | None = None, forms: Sequence[str] | None = None, *, attention: bool = True
) -> list[Step]:
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
        Step("rows", row, form)
        for row in ROWS[device]
        if row.name in chosen
        for form in DEVICE_FORMS[device]
        if form in wanted and (form != "fused-keep" or row.work != "inference")
    ]
    ours: Form = "fused" if device == "cuda" else "eager"
    if "curve" in chosen:
        steps += [Step("curve", row, ours) for row in CURVE[device]]
    if "attention" in chosen:
        theirs: Form = "compiled" if device == "cuda" else "eager"
        for our_row, encoder in ATTENTION[device]:
            steps += [Step("attention", our_row, ours), Step("attention", encoder, theirs)]
    return steps


def row_names(device: str) -> tuple[str, ...]:
    """Everything ``--rows`` can choose on a kind of device."""
    return (*(row.name for row in ROWS[device]), "curve", "attention")


def _chosen(what: str, names: Sequence[str] | None, choices: Sequence[str], device: str) -> list[str]:
    names = choices if names is None else names
    unknown = [name for name in names if name not in choices]
    if unknown:
        raise ValueError(f"no {what} {unknown[0]!r} on {device}; choose from {', '.join(choices)}")
    return list(names)
