"""A trained model for other programs: ONNX, torch.export, or a folder for the Hugging Face hub."""

# B = batch, N = length
from __future__ import annotations

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
        torch.export.save(program(model, length), path)


def to_onnx(model: nn.Module, path: Path, length: int) -> None:
    """Write an ONNX file for one length and any batch."""
    try:
        import onnxscript  # noqa: F401, torch.onnx needs it and would say so less clearly
    except ImportError:
        raise ImportError("ONNX export needs onnx and onnxscript: pip install 'riffle-nn[export]'") from None
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # or it lists the operators of absent libraries
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
