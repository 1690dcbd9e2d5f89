"""``riffle inspect``: look inside a trained network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from riffle.cli.display import (
    Device,
    Json,
    choose_device,
    errors,
    output,
    print_json,
    print_next,
    progress_bar,
    require,
    titled_table,
)
from riffle.cli.evaluate import RunFolder, parse_lengths, task_of
from riffle.quantities import format_percent


def inspect(
    run: RunFolder,
    input: Annotated[
        str | None, typer.Option(help="The input to look at, as a person would write it.", show_default="a random one")
    ] = None,
    length: Annotated[
        int | None, typer.Option(help="Length of the random input.", show_default="the trained length", min=1)
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random input and of the examples.")] = 1,
    probes: Annotated[
        int, typer.Option(help="Gradients per output of the dependence map; more are slower and more exact.", min=1)
    ] = 4,
    lengths: Annotated[
        str | None,
        typer.Option(
            help="Lengths at which to look for errors, separated by commas.",
            show_default="3/5 of powers of two and the powers, up to 16 times the trained length",
        ),
    ] = None,
    examples: Annotated[int, typer.Option(help="Examples for each of these lengths.", min=1)] = 64,
    out: Annotated[Path | None, typer.Option(help="Where to save the pictures.", show_default="RUN/inspect")] = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Draw a run's gates and states, which inputs its outputs depend on, and where its errors are.

    gates.png: the update gate of every layer. states.png: the output of every layer. dependence.png: how strongly each
    output depends on each input. errors.png: the share of wrong symbols by position, for growing lengths.
    """
    from functools import partial

    import torch

    from riffle.inspect import dependence, errors_over_length, source_positions, strongest_source, trace
    from riffle.inspect.figures import dependence_figure, errors_figure, gates_figure, states_figure
    from riffle.plots import check_figures, save_figure
    from riffle.tasks.task import trim
    from riffle.train.evaluate import predict
    from riffle.train.run import Run

    require("matplotlib")
    if input is not None and length is not None:
        raise ValueError("--input has a length of its own: leave out --input or --length")
    trained = Run(run)
    task = task_of(trained)
    longest = trained.config.data.longest_input
    powers = [2**k for k in range(3, (16 * longest).bit_length())]
    default = [length for power in powers for length in (power * 3 // 5, power)]  # between powers of two, too
    sizes = parse_lengths(lengths) if lengths is not None else default
    if input is None:
        sample = task.sample(1, length or longest, generator=torch.Generator().manual_seed(seed))
        symbols = trained.padded(sample.inputs[0].tolist())
    else:
        symbols = trained.padded(task.parse([input]))
    device = choose_device(device)
    model, symbols_1N = trained.model(device), torch.tensor([symbols], device=device)
    traced = trace(model, symbols_1N)
    folder = out or run / "inspect"
    folder.mkdir(parents=True, exist_ok=True)
    check_figures(folder / "states.png")
    with progress_bar(counted=False) as bar:
        advance = partial(bar.advance, bar.add_task("what outputs depend on", total=len(symbols)))
        dependence_NN = dependence(model, symbols_1N, probes=probes, seed=seed, on_progress=advance)
        advance = partial(bar.advance, bar.add_task("where errors fall", total=sum(sizes) * examples))
        rates = errors_over_length(
            model, task, sizes, examples=examples, trained_length=longest, seed=seed, on_progress=advance
        )
    figures = {
        "states": states_figure(traced),
        "dependence": dependence_figure(dependence_NN, title=f"{task.name}: what each output depends on"),
        "errors": errors_figure(rates, sizes, trained_length=longest, title=f"{task.name}: where errors fall"),
    }
    if all(layer.update is not None for layer in traced.layers):
        figures["gates"] = gates_figure(traced)
    for name, figure in figures.items():
        save_figure(figure, folder / f"{name}.png", dpi=120)

    got, right = predict(model, symbols), trim(task.answer(symbols_1N.cpu())[0].tolist())
    strongest, sources = strongest_source(dependence_NN).tolist(), source_positions(task, symbols) or ()
    routed = [ours == source for ours, source in zip(strongest, sources, strict=False) if source is not None]
    result: dict[str, Any] = {
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
                "update": None if layer.update is None else float(layer.update[:, : traced.length].mean()),
                "state": float(layer.out[:, : traced.length].abs().mean()),
            }
            for layer in traced.layers
        ],
        "routed": sum(routed) / len(routed) if routed else None,
        "errors": [
            {"length": size, "by_position": [None if rate != rate else rate for rate in each]}
            for size, each in zip(sizes, rates.tolist(), strict=True)
        ],
        "figures": sorted(str(folder / f"{name}.png") for name in figures),
    }
    if json:
        return print_json(result)
    columns = ("layer", "unit", "bit", "update gate", "", "state")
    table = titled_table(f"{task.name}, {len(symbols)} symbols", *columns, left=("unit", ""))
    for index, layer in enumerate(result["layers"]):
        update = layer["update"]
        gate = ("none", "") if update is None else (f"{update:.2f}", "█" * round(20 * update))
        table.add_row(str(index), layer["unit"], str(layer["bit"]), *gate, f"{layer['state']:.2f}")
    output.print(table)
    if routed:
        share = f"{format_percent(result['routed'])} of {len(routed)} outputs"
        output.print(f"{share} depend most on the input that the task moves there", highlight=False)
    errors.print(f"pictures: {', '.join(sorted(figures))} in {folder}", markup=False, soft_wrap=True, highlight=False)
    print_next("the same for an input of your own with --input, and by the switch on the page of riffle demo")
