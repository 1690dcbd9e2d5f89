"""``riffle export``: a trained network for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from riffle.cli.display import Json, errors, print_json, print_next
from riffle.cli.evaluate import RunFolder
from riffle.files import replacing_files

ENDINGS = {"onnx": ".onnx", "torch": ".pt2", "hub": ""}
LOADERS = {
    "onnx": "onnxruntime.InferenceSession({!r})",
    "torch": "torch.export.load({!r}).module()",
    "hub": "riffle.SequenceModel.from_pretrained({!r})",
}
"""How each format is loaded in Python."""


def export(
    run: RunFolder,
    format: Annotated[
        str, typer.Option(help="onnx, torch (torch.export) or hub (a folder for from_pretrained).")
    ] = "onnx",
    length: Annotated[
        int, typer.Option(help="The longest sequence that the exported network must take; any batch.", min=1)
    ] = 64,
    out: Annotated[
        Path | None, typer.Option(help="The file or folder to write.", show_default="RUN/model-N.FORMAT")
    ] = None,
    json: Json = False,
) -> None:
    """Write a run's network as ONNX, as a torch.export program, or as a folder for the Hugging Face hub.

    ONNX and torch.export files hold the layers for one power of two, and so serve lengths such as 33 to 64. Their input
    is symbols, int64 [batch, length], their output logits, float32 [batch, length, classes].
    """
    from safetensors import SafetensorError

    from riffle.models.export import export_program, write_onnx, write_torch
    from riffle.train.run import Run

    if format not in ENDINGS:
        raise ValueError(f"unknown format {format!r}; choose one of {', '.join(ENDINGS)}")
    path = out or run / f"model-{length}{ENDINGS[format]}"
    model = Run(run).model()
    path.parent.mkdir(parents=True, exist_ok=True)
    record, served = {"run": str(run), "format": format, "path": str(path)}, ""
    if format != "hub":
        program, lengths = export_program(model, length)
        (write_onnx if format == "onnx" else write_torch)(program, path)
        record |= lengths._asdict()
        served = f" for {lengths}"
    elif hasattr(model, "save_pretrained"):
        try:
            with replacing_files(path) as temporary:
                model.save_pretrained(temporary)
        except SafetensorError as error:
            reason = str(error).rpartition(": ")[2]
            raise OSError(f"{path} cannot be written: {reason}") from None
    else:
        raise ValueError(f"{type(model).__name__} has no save_pretrained")
    if json:
        print_json(record)
    else:
        errors.print(f"wrote {path}{served}", markup=False, soft_wrap=True)
        print_next(f"load it in Python: {LOADERS[format].format(str(path))}")
