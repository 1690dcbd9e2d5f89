"""``riffle inspect``: look inside a trained network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from riffle.cli.display import Device, Json, choose_device, errors, output, print_json, progress_bar
from riffle.cli.evaluate import _lengths
from riffle.quantities import format_percent


def inspect(
    run: Annotated[Path, typer.Argument(help="Folder of a run, as riffle train made it.", metavar="RUN")],
    input: Annotated[
        str | None, typer.Option(help="The input to look at, as a person would write it.", show_default="a random one")
    ] = None,
    length: Annotated[
        int | None, typer.Option(help="Length of the random input.", show_default="the trained length", min=1)
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random input and of the examples.")] = 1,
    probes: Annotated[
        int, typer.Option(help="Gradients for each output of the dependence map; more are slower and exacter.", min=1)
    ] = 4,
    lengths: Annotated[
        str | None,
        typer.Option(
            help="Lengths at which to look for errors, separated by commas.",
            show_default="powers of two up to 16 times the trained length",
        ),
    ] = None,
    examples: Annotated[int, typer.Option(help="Examples for each of these lengths.", min=1)] = 64,
    out: Annotated[Path | None, typer.Option(help="Where to save the pictures.", show_default="RUN/inspect")] = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Look inside a run: pictures of its gates and states, of what outputs depend on, of where errors fall.

    gates.png: the update gate of every layer. states.png: what leaves every layer. dependence.png: how far each output
    depends on each input. errors.png: the share of wrong symbols by position, as sequences grow.
    """
    import torch

    from riffle.inspect import dependence, errors_over_length, source_positions, strongest_source, trace
    from riffle.inspect.figures import dependence_figure, errors_figure, gates_figure, states_figure
    from riffle.plots import save_figure
    from riffle.tasks import get_task
    from riffle.train.evaluate import predict, strip
    from riffle.train.run import Run

    if input is not None and length is not None:
        raise ValueError("--input has a length of its own: leave out --input or --length")
    trained = Run(run)
    task = get_task(trained.config.task)
    longest = max(trained.config.data.bins)
    sizes = _lengths(lengths) if lengths is not None else [2**k for k in range(3, (16 * longest).bit_length())]
    if input is None:
        drawn = task.sample(1, length or longest, generator=torch.Generator().manual_seed(seed))
        symbols = trained.padded(drawn.inputs[0].tolist())
    else:
        symbols = trained.padded(task.parse([input]))
    model = trained.model(choose_device(device))
    row = torch.tensor([symbols], device=choose_device(device))
    seen = trace(model, row)
    folder = out or run / "inspect"
    folder.mkdir(parents=True, exist_ok=True)
    with progress_bar() as bar:
        first = bar.add_task("what outputs depend on", total=len(symbols))
        depends = dependence(model, row, probes=probes, seed=seed, on_progress=lambda rows: bar.advance(first, rows))
        second = bar.add_task("where errors fall", total=len(sizes) * examples)
        rates = errors_over_length(
            model,
            task,
            sizes,
            examples=examples,
            trained_length=longest,
            seed=seed,
            on_progress=lambda count: bar.advance(second, count),
        )
    figures = {
        "states": states_figure(seen),
        "dependence": dependence_figure(depends, title=f"{task.name}: what each output depends on"),
        "errors": errors_figure(rates, sizes, trained_length=longest, title=f"{task.name}: where errors fall"),
    }
    if all(layer.update is not None for layer in seen.layers):
        figures["gates"] = gates_figure(seen)
    for name, figure in figures.items():
        save_figure(figure, folder / f"{name}.png", dpi=120)

    got, right = predict(model, symbols), strip(task.answer(row.cpu())[0].tolist())
    sources = source_positions(task, symbols)
    agreeing = [
        found == source
        for found, source in zip(strongest_source(depends).tolist(), sources or (), strict=False)
        if source is not None
    ]
    result = {
        "task": task.name,
        "run": str(run),
        "symbols": symbols,
        "output": task.render(got),
        "expected": task.render(right),
        "correct": got == right,
        "layers": [
            {
                "unit": layer.layer.unit,
                "bit": layer.layer.bit,
                "update": None if layer.update is None else float(layer.update[:, : seen.length].mean()),
                "state": float(layer.out[:, : seen.length].abs().mean()),
            }
            for layer in seen.layers
        ],
        "routed": sum(agreeing) / len(agreeing) if agreeing else None,
        "errors": [
            {"length": size, "by_position": [None if rate != rate else rate for rate in each]}
            for size, each in zip(sizes, rates.tolist(), strict=True)
        ],
        "figures": sorted(str(folder / f"{name}.png") for name in figures),
    }
    if json:
        print_json(result)
        return
    output.print(_layer_table(f"{task.name}, {len(symbols)} symbols", result["layers"]))
    if agreeing:
        output.print(
            f"{format_percent(sum(agreeing) / len(agreeing))} of {len(agreeing)} outputs depend most on the input that "
            f"the "
            "task moves there",
            highlight=False,
        )
    errors.print(f"pictures: {', '.join(sorted(figures))} in {folder}", markup=False, soft_wrap=True, highlight=False)


def _layer_table(title: str, layers: Any) -> Table:
    """The mean of the update gate and the mean size of the state, layer by layer."""
    table = Table(title=title, title_justify="left", header_style="bold")
    for column in ("layer", "unit", "bit", "update gate", "", "state"):
        table.add_column(column, justify="left" if column in ("unit", "") else "right")
    for index, layer in enumerate(layers):
        update = layer["update"]
        gate = ("none", "") if update is None else (f"{update:.2f}", "█" * round(20 * update))
        table.add_row(str(index), layer["unit"], str(layer["bit"]), *gate, f"{layer['state']:.2f}")
    return table
