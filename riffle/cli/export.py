"""``riffle export``: a trained network for other programs."""

# B = batch, N = length
from __future__ import annotations

import io
import logging
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from riffle.cli.display import Json, errors, print_json
from riffle.cli.evaluate import RunFolder

if TYPE_CHECKING:
    from torch import nn

ENDINGS = {"onnx": ".onnx", "torch": ".pt2", "hub": ""}


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
    from riffle.train.run import Run

    if format not in ENDINGS:
        raise ValueError(f"unknown format {format!r}; choose one of {', '.join(ENDINGS)}")
    path = out or run / f"model-{length}{ENDINGS[format]}"
    model = Run(run).model()
    path.parent.mkdir(parents=True, exist_ok=True)
    if format != "hub":
        _write_program(model, path, length, format)
    elif hasattr(model, "save_pretrained"):
        model.save_pretrained(path)
    else:
        raise ValueError(f"{type(model).__name__} has no save_pretrained")
    if json:
        print_json({"run": str(run), "format": format, "length": length, "path": str(path)})
    else:
        errors.print(f"wrote {path}", markup=False, soft_wrap=True)


def _write_program(model: nn.Module, path: Path, length: int, format: str) -> None:
    """Write a model as a graph for one length and any batch."""
    import torch

    if format == "onnx":
        try:
            import onnxscript  # noqa: F401, torch.onnx needs it and would say so less clearly
        except ImportError:
            raise ImportError("ONNX export needs onnx and onnxscript: pip install 'riffle-nn[export]'") from None
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # or it lists the operators of absent libraries
    symbols_BN = torch.zeros(2, length, dtype=torch.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch's own serialisation uses names it has deprecated
        program = torch.export.export(model, (symbols_BN,), dynamic_shapes=({0: torch.export.Dim("batch")},))
        if format == "onnx":
            exported = torch.onnx.export(
                program, input_names=["symbols"], output_names=["scores"], dynamo=True, verbose=False
            )
            assert exported is not None
            exported.save(path)
        else:
            content = io.BytesIO()  # a path that cannot be written is then an OSError like every other
            torch.export.save(program, content)
            path.write_bytes(content.getvalue())
