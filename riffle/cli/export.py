"""``riffle export``: a trained network for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from riffle.cli.display import Json, RunFolder, errors, print_json


def export(
    run: RunFolder,
    format: Annotated[
        str, typer.Option(help="onnx, torch (torch.export) or hub (a folder for from_pretrained).")
    ] = "onnx",
    length: Annotated[int, typer.Option(help="Length of the exported network; the batch stays free.", min=1)] = 64,
    out: Annotated[
        Path | None, typer.Option(help="The file or folder to write.", show_default="RUN/model-N.FORMAT")
    ] = None,
    json: Json = False,
) -> None:
    """Write a run's network as ONNX, as a torch.export program, or as a folder for the Hugging Face hub.

    ONNX and torch.export files hold the network for one length. Their input is symbols, int64 [batch, length], their
    output logits, float32 [batch, length, classes].
    """
    import riffle.lambada.train  # noqa: F401, it registers the objective of runs on LAMBADA
    from riffle.models.export import FORMATS
    from riffle.train.run import Run

    if format not in FORMATS:
        raise ValueError(f"unknown format {format!r}; choose one of {', '.join(FORMATS)}")
    write, ending = FORMATS[format]
    path = out or run / f"model-{length}{ending}"
    model = Run(run).model()
    path.parent.mkdir(parents=True, exist_ok=True)
    write(model, path, length)
    if json:
        print_json({"run": str(run), "format": format, "length": length, "path": str(path)})
    else:
        errors.print(f"wrote {path}", markup=False, soft_wrap=True)
