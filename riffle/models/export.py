"""A trained model as a program for others: a graph by ``torch.export``, and the same as ONNX."""

# B = batch, N = length
from __future__ import annotations

import io
import sys
import warnings
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn
from torch.export import Dim, ExportedProgram

from riffle.files import write_atomically
from riffle.models.sequence import SequenceModel
from riffle.nn import onnx


class LengthRange(NamedTuple):
    """The lengths that a program takes."""

    shortest: int
    longest: int | None
    """None where there is no bound."""

    def __str__(self) -> str:
        if self.longest is None:
            return f"any length from {self.shortest}"
        return (
            f"lengths {self.shortest} to {self.longest}" if self.longest > self.shortest else f"length {self.longest}"
        )


def write_program(model: nn.Module, format: str, length: int, path: Path) -> LengthRange:
    """Write a model of symbols for any batch as "onnx" or "torch"; the lengths it takes, among them ``length``.

    The ONNX program of a shuffle-exchange network takes all lengths, and those of the rows beside the symbols.
    """
    if format == "onnx" and isinstance(model, SequenceModel):
        inputs = torch.zeros(2, 3, dtype=torch.int64), torch.tensor([3, 2])
        onnx.export_onnx(model, inputs, path, input_names=["symbols", "lengths"], output_names=["scores"])
        return LengthRange(1, None)
    program, lengths = export_program(model, length)
    (write_onnx if format == "onnx" else write_torch)(program, path)
    return lengths


def export_program(model: nn.Module, length: int) -> tuple[ExportedProgram, LengthRange]:
    """The graph of a model of symbols for any batch, and the lengths it takes, among them ``length``.

    The depth of a shuffle-exchange network follows from the power of two that holds a sequence, so a graph serves the
    lengths of one power of two: for 64 those from 33 to 64, which it pads itself. Models that do the same at every
    length have no bound.
    """
    symbols_BN = torch.zeros(2, length, dtype=torch.int64)
    # Lengths 1 and 2 are powers of two by themselves, and torch specialises a dimension of size 1.
    free = {0: Dim("batch"), 1: Dim.AUTO if length > 2 else Dim.STATIC}
    program = torch.export.export(model, (symbols_BN,), dynamic_shapes=(free,))
    (name,) = program.graph_signature.user_inputs
    size = next(node for node in program.graph.nodes if node.name == name).meta["val"].shape[1]
    symbol = size if isinstance(size, int) else size.node.expr
    if symbol not in program.range_constraints:
        return program, LengthRange(int(symbol), int(symbol))
    bounds = program.range_constraints[symbol]
    return program, LengthRange(int(bounds.lower), None if bounds.upper > sys.maxsize else int(bounds.upper))


def write_torch(program: ExportedProgram, path: Path) -> None:
    """Write a program for ``torch.export.load``."""
    content = io.BytesIO()  # a path that cannot be written is then an OSError like every other
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch's own serialisation uses names it has deprecated
        torch.export.save(program, content)
    write_atomically(path, content.getvalue())


def write_onnx(program: ExportedProgram, path: Path) -> None:
    """Write a program as ONNX: "symbols" in, "scores" out."""
    onnx.save(onnx.translate(program, (), ["symbols"], ["scores"]), path)
