"""``python -m research plan``: what a sequence spread over many GPUs would cost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.table import Table

from research.quantities import format_milliseconds, parse_bytes
from riffle.cli.display import Json, errors, output, print_json, titled_table
from riffle.quantities import MAX_COUNT, format_bytes, parse_count

if TYPE_CHECKING:
    from research.bench.cost import ShardedCost
    from riffle.shuffle import Pad


def plan(
    length: Annotated[
        str, typer.Option(help="Cells of the sequence, a power of two unless --pad even: 2^30.")
    ] = "2^30",
    maps: Annotated[int, typer.Option(help="Feature maps per cell.", min=1, max=65_536)] = 192,
    blocks: Annotated[int, typer.Option(help="Beneš blocks.", min=1, max=1024)] = 1,
    gpus: Annotated[int, typer.Option(help="GPUs over which a sequence is spread, a power of two.", min=1)] = 1,
    batch: Annotated[int, typer.Option(help="Sequences at once.", min=1, max=MAX_COUNT)] = 1,
    pad: Annotated[
        str, typer.Option(help="What sequences are padded to: power (of two) or, on one GPU, even.")
    ] = "power",
    link: Annotated[str, typer.Option(help="Bandwidth of a GPU's link: 400Gb/s (bits) or 50GB/s (bytes).")] = "400Gb",
    json: Json = False,
) -> None:
    """Estimate memory, compute time and communication of one sequence spread over many H200 GPUs, in bfloat16.

    For a forward pass, and for a forward and a backward one. research/plan.md derives the model; in it nothing
    overlaps.
    """
    from research.bench.cost import Machine, ShardedCost, ShardedWork

    machine, cells = Machine(link=parse_bytes(link)), parse_count(length)
    work = ShardedWork(length=cells, features=maps, blocks=blocks, ranks=gpus, batch=batch, pad=cast("Pad", pad))
    forward, training = (ShardedCost(replace(work, training=training), machine) for training in (False, True))
    if json:
        print_json({"forward": _numbers(forward), "training": _numbers(training)})
        return
    output.print(_table(forward, training))
    single = ShardedCost(replace(work, ranks=1), machine)
    if not single.fits and cells & (cells - 1) == 0:
        note = (
            f"One GPU cannot hold the {format_bytes(single.memory_bytes)} of a forward pass, but the "
            f"{format_bytes(single.work.state_bytes)} of cells can be streamed through it: see riffle.parallel.stream."
        )
        errors.print(note, highlight=False, soft_wrap=True)


def _numbers(cost: ShardedCost) -> dict[str, float | None]:
    names = ("product_seconds", "copy_seconds", "compute_seconds", "exchanges", "sent_bytes", "communication_seconds")
    return {
        "length": cost.work.length,
        "maps": cost.work.features,
        "blocks": cost.work.blocks,
        "gpus": cost.work.ranks,
        "batch": cost.work.batch,
        "layers": cost.work.layers,
        "cells_per_gpu": cost.work.cells,
        "memory_bytes": cost.memory_bytes,
        "fits": cost.fits,
        "fewest_gpus": cost.fewest_ranks,
        **{name: getattr(cost, name) for name in (*names, "seconds")},
    }


def _table(forward: ShardedCost, training: ShardedCost) -> Table:
    work = forward.work
    title = (
        f"{work.length:,} cells, {work.features} maps, {work.blocks} block{'s' * (work.blocks != 1)} on {work.ranks:,} "
        f"GPU{'s' * (work.ranks != 1)}: {work.cells:,} cells each, {work.layers} layers"
    )
    table = titled_table(title, "each GPU", "forward", "forward and backward", left=["each GPU"])
    rows = {
        "memory": lambda cost: format_bytes(cost.memory_bytes) + ("" if cost.fits else " [red]does not fit[/]"),
        "fits on": lambda cost: "no number of GPUs" if cost.fewest_ranks is None else f"{cost.fewest_ranks:,} or more",
        "matrix products": lambda cost: format_milliseconds(cost.product_seconds * 1e3),
        "reading and writing": lambda cost: format_milliseconds(cost.copy_seconds * 1e3),
        "exchanges": lambda cost: str(cost.exchanges),
        "bytes sent": lambda cost: format_bytes(cost.sent_bytes),
        "communication": lambda cost: format_milliseconds(cost.communication_seconds * 1e3),
        "in all": lambda cost: f"[bold]{format_milliseconds(cost.seconds * 1e3)}[/]",
    }
    for name, row in rows.items():
        table.add_row(name, row(forward), row(training))
    return table
