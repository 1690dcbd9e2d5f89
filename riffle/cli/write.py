"""``riffle write``: continue a text with a trained causal network."""

from __future__ import annotations

import codecs
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from riffle.cli.display import Device, Json, choose_device, output, print_json


def write(
    beginning: Annotated[list[str], typer.Argument(help="How the text begins.", metavar="TEXT...")],
    run: Annotated[
        Path | None, typer.Option(help="The trained run.", show_default="the newest of riffle train text in runs")
    ] = None,
    count: Annotated[int, typer.Option(help="How many bytes to write.", min=1, max=1_000_000)] = 500,
    temperature: Annotated[float, typer.Option(help="Below 1 likelier, above 1 bolder; 0 the likeliest.", min=0)] = 0.8,
    top_p: Annotated[
        float, typer.Option(help="Draw from the likeliest bytes with this probability together.", min=1e-6, max=1)
    ] = 0.95,
    seed: Annotated[int, typer.Option(help="Seed of the draws.")] = 0,
    device: Device = "cpu",
    json: Json = False,
) -> None:
    """Continue a text with a network that [bold]riffle train text --data FILE[/] trained.

    riffle write "It was a dark"
    """
    import torch

    from riffle.config import TextRunConfig
    from riffle.train.run import Run, find_run
    from riffle.train.text import decode, encode

    trained = Run(run) if run else find_run("text", Path("runs"))
    if trained is None:
        raise ValueError("there is no run on a text in runs: train one with riffle train text --data FILE")
    if not isinstance(trained.config, TextRunConfig):
        raise ValueError(f"{trained.folder} was trained on {trained.config.task}: riffle write needs a run on a text")
    text = " ".join(beginning)
    if not text:
        raise ValueError("there is no text to continue: give at least a letter")
    local = choose_device(device)
    model, generator = trained.model(local), torch.Generator(local).manual_seed(seed)
    symbols_BN = encode(text.encode("utf-8", "surrogateescape"))[None].to(local)
    characters = codecs.getincrementaldecoder("utf-8")("replace")
    symbols = model.write(symbols_BN, count, temperature=temperature, top_p=top_p, generator=generator)
    parts = (characters.decode(decode(symbol_B)) for symbol_B in symbols)
    if json:
        return print_json({"run": str(trained.folder), "beginning": text, "text": "".join(parts)})
    for part in chain([text], parts, ["\n"]):
        output.print(part, end="", markup=False, highlight=False, soft_wrap=True)
