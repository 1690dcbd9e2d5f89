"""``riffle lambada train``: learn to point at the last word of a passage."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from riffle.cli.display import Device, Json
from riffle.cli.train import (
    Features,
    Graph,
    PrecisionName,
    Resume,
    Seed,
    Show,
    Steps,
    Timeout,
    TrainMessages,
    bold_names,
    print_config,
    train_run,
)
from riffle.recipes import LAMBADA_BASELINES


def train(
    corpus: Annotated[
        Path | None,
        typer.Option(help="Folder that riffle lambada prepare made.", show_default="data/lambada"),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="[bold]shuffle-exchange[/], or a baseline: " + bold_names(LAMBADA_BASELINES) + ".",
            show_default="shuffle-exchange",
            metavar="NAME",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the run.", show_default="runs/lambada, runs/lambada-NAME with --model"),
    ] = None,
    steps: Steps = None,
    features: Features = None,
    seed: Seed = None,
    precision: PrecisionName = None,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change any field, e.g. --set data.within=0; see --show.", metavar="KEY=VALUE"),
    ] = None,
    show: Show = False,
    resume: Resume = False,
    device: Device = "auto",
    graph: Graph = True,
    timeout: Timeout = 600,
    json: Json = False,
) -> None:
    """Learn from prepared passages and leave a run folder behind.

    The paper's network: two Beneš blocks of 384 maps over 128 positions, for a GPU. A CPU needs a smaller one, such as
    --features 48 --set model.blocks=1 --set data.batch=32 --precision fp32.
    """
    import riffle.lambada.train  # noqa: F401, it registers the objective of the run
    from riffle.config import override
    from riffle.recipes import lambada, with_model
    from riffle.train.run import Run

    folder = out or Path("runs") / (f"lambada-{model}" if model else "lambada")
    named = {
        "data.corpus": corpus,
        "train.steps": steps,
        "model.features": features,
        "train.seed": seed,
        "train.precision": precision,
    }
    changes = [f"{name}={value}" for name, value in named.items() if value is not None] + (change or [])
    if resume:
        config = override(Run(folder).config, ([f"model.kind={model}"] if model else []) + changes)
    else:
        config = override(with_model(lambada(), model) if model else lambada(), changes)
    if show:
        print_config(config, json)
        return
    messages = TrainMessages(
        command="riffle lambada train",
        metric="passages answered",
        score="{} in {}",
        next_step="Look closer: riffle lambada eval --run",
    )
    train_run(config, folder, messages, resume=resume, device_name=device, graph=graph, timeout=timeout, json=json)
