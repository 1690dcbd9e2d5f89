"""A trained model for other programs: ONNX, torch.export, or a folder for the Hugging Face hub."""

# B = batch, N = length
from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn


def to_torch(model: nn.Module, path: Path, length: int) -> None:
    """Write a torch.export program for one length and any batch."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch's own serialisation uses names it has deprecated
        content = io.BytesIO()  # a path that cannot be written is then an OSError like every other
        torch.export.save(program(model, length), content)
    path.write_bytes(content.getvalue())


def to_onnx(model: nn.Module, path: Path, length: int) -> None:
    """Write an ONNX file for one length and any batch."""
    try:
        import onnxscript  # noqa: F401, torch.onnx needs it and would say so less clearly
    except ImportError:
        raise ImportError("ONNX export needs onnx and onnxscript: pip install 'riffle-nn[export]'") from None
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # or it lists the operators of absent libraries
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # as above
        exported = torch.onnx.export(
            program(model, length), input_names=["symbols"], output_names=["scores"], dynamo=True, verbose=False
        )
    assert exported is not None
    exported.save(path)


def to_hub(model: nn.Module, path: Path, length: int) -> None:
    """Write a folder that ``from_pretrained`` reads; it serves every length."""
    save = getattr(model, "save_pretrained", None)
    if save is None:
        raise ValueError(f"{type(model).__name__} has no save_pretrained")
    save(path)


def program(model: nn.Module, length: int) -> torch.export.ExportedProgram:
    """The model at one length as a graph, with the batch left free."""
    symbols_BN = torch.zeros(2, length, dtype=torch.int64, device=next(model.parameters()).device)
    batch = torch.export.Dim("batch")
    return torch.export.export(model.eval(), (symbols_BN,), dynamic_shapes=({0: batch},))


FORMATS: dict[str, tuple[Callable[[nn.Module, Path, int], None], str]] = {
    "onnx": (to_onnx, ".onnx"),
    "torch": (to_torch, ".pt2"),
    "hub": (to_hub, ""),
}
"""How to write each format, and the ending of its files."""
