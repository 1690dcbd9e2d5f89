"""``riffle export``: a trained network for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from riffle.cli.display import Json, errors, print_json, print_next, require
from riffle.cli.evaluate import RunFolder
from riffle.files import check_exported, check_writable, replacing_files

ENDINGS = {"onnx": ".onnx", "torch": ".pt2", "hub": ""}
LOADERS = {
    "onnx": "onnxruntime.InferenceSession({path!r})",
    "torch": "torch.export.load({path!r}).module()",
    "hub": "{kind}.from_pretrained({path!r})",
}
"""How each format is loaded in Python."""
HUB_FILES = ("README.md", "config.json", "model.safetensors")
"""What a folder for the hub has."""


def export(
    run: RunFolder,
    format: Annotated[
        str, typer.Option(help="onnx, torch (torch.export) or hub (a folder for from_pretrained).")
    ] = "onnx",
    length: Annotated[
        int | None,
        typer.Option(help="The longest sequence that a torch program must take.", min=1, show_default="64"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The file or folder to write.", show_default="RUN/model with an ending"),
    ] = None,
    json: Json = False,
) -> None:
    """Write a run's network as ONNX, as a torch.export program, or as a folder for the Hugging Face hub.

    Programs take symbols, int64 [batch, length], and give logits, float32 [batch, length, classes]. An ONNX program
    also takes the lengths of the rows, int64 [batch], and serves all lengths; one of torch.export holds the layers for
    one power of two, and so serves lengths such as 33 to 64.
    """
    from safetensors import SafetensorError

    from riffle.models.export import write_program
    from riffle.models.sequence import SequenceModel
    from riffle.nn.hub import package_of
    from riffle.train.run import OWNED_FILES, Run

    if format not in ENDINGS:
        raise ValueError(f"unknown format {format!r}; choose one of {', '.join(ENDINGS)}")
    if format == "onnx":
        require("onnxscript")
    model = Run(run).model()
    all_lengths = format == "hub" or (format == "onnx" and isinstance(model, SequenceModel))
    if all_lengths and length is not None:
        raise ValueError(f"--length is for torch programs: {format} holds a network for all lengths")
    path = out or run / f"model{'' if all_lengths else f'-{length or 64}'}{ENDINGS[format]}"
    if path.name in OWNED_FILES and path.resolve().parent == run.resolve():
        raise ValueError(f"{path} is a file of the run itself: choose another name with --out")
    path.parent.mkdir(parents=True, exist_ok=True)
    record, served = {"run": str(run), "format": format, "path": str(path)}, ""
    if format != "hub":
        check_writable(path)
        lengths = write_program(model, format, length or 64, path)
        record |= lengths._asdict()
        served = f" for {lengths}"
    elif hasattr(model, "save_pretrained"):
        check_exported(path, HUB_FILES)
        try:
            with replacing_files(path) as temporary:
                model.save_pretrained(temporary)
                if (path / "README.md").exists():  # somebody may have written more into an earlier card
                    (temporary / "README.md").unlink()
        except SafetensorError as error:
            reason = str(error).rpartition(": ")[2]
            raise OSError(f"{path} cannot be written: {reason}") from None
    else:
        raise ValueError(f"{type(model).__name__} has no save_pretrained")
    if json:
        print_json(record)
    else:
        errors.print(f"wrote {path}{served}", markup=False, soft_wrap=True)
        kind = f"{package_of(type(model))}.{type(model).__name__}"
        print_next(f"load it in Python: {LOADERS[format].format(path=str(path), kind=kind)}")
