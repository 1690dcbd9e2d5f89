"""ONNX programs, run by onnxruntime: one for all lengths, and those of one power of two, which refuse other lengths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.export import Dim

from riffle import Encoder, ShuffleExchange, export_onnx
from riffle.config import MODELS
from riffle.models.build import build
from riffle.models.export import write_program
from riffle.tasks import get_task

pytest.importorskip("onnxscript")
onnxruntime = pytest.importorskip("onnxruntime")
NETWORKS: list[dict[str, Any]] = [
    {"blocks": 3, "sharing": "minimal", "order": "official"},
    {"blocks": 2, "unit": "no-benes"},
    {"blocks": 2, "sharing": "full", "unit": "swap-gate", "pad": "even"},
    {"unit": "residual", "norm": "sequence"},
]


def cells(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(1)) * 2 - 1


def run(path: Path, *inputs: Tensor) -> Tensor:
    """The program's answer."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    named = zip(session.get_inputs(), inputs, strict=True)
    return torch.from_numpy(session.run(None, {value.name: x.numpy() for value, x in named})[0])


@pytest.mark.parametrize("options", NETWORKS, ids=str)
def test_one_program_for_all_lengths(options: dict[str, Any], tmp_path: Path) -> None:
    net, path = ShuffleExchange(4, **options).eval(), tmp_path / "net.onnx"
    export_onnx(net, (cells(2, 5, 4), torch.tensor([5, 3])), path)
    for length in (1, 2, 7, 64, 65, 300):
        for lengths in ([length] * 2, [length, 0, length // 2, 1]):
            x_BND = cells(len(lengths), length, 4)
            torch.testing.assert_close(run(path, x_BND, torch.tensor(lengths)), net(x_BND, lengths), rtol=0, atol=1e-5)
    for lengths in ([8], [-1]):
        with pytest.raises(Exception, match="out of data bounds"):
            run(path, cells(1, 7, 4), torch.tensor(lengths))
    with pytest.raises(Exception, match="Reshape"):
        run(path, cells(2, 7, 4), torch.tensor([7]))


def test_a_model_with_a_mask(tmp_path: Path) -> None:
    model, path = Encoder(4, inputs=3, outputs=2, pool="attention").eval(), tmp_path / "model.onnx"
    x_BNF, mask_BN = cells(3, 33, 3), torch.arange(33) >= torch.tensor([[33], [2], [17]])
    export_onnx(model, (x_BNF, None, mask_BN), path, input_names=["inputs", "mask"])
    for batch, length in ((3, 33), (1, 1), (2, 20)):
        inputs = x_BNF[:batch, :length], mask_BN[:batch, :length]
        torch.testing.assert_close(run(path, *inputs), model(inputs[0], None, inputs[1]), rtol=0, atol=1e-5)
    with pytest.raises(Exception, match="out of data bounds"):
        run(path, x_BNF, mask_BN.flip(1))


def test_a_model_of_another_kind(tmp_path: Path) -> None:
    kind, path = "universal-transformer", tmp_path / "model.onnx"
    model = build(MODELS[kind].config(kind=kind, features=8), get_task("sort")).eval()
    assert write_program(model, "onnx", 8, path) == (2, None)
    for length in (3, 20):
        symbols_BN = torch.randint(12, (2, length))
        torch.testing.assert_close(run(path, symbols_BN), model(symbols_BN), rtol=0, atol=1e-5)


@pytest.mark.parametrize("rows", ["alike", "masked"])
def test_programs_of_one_power_of_two_check_their_input(rows: str, tmp_path: Path) -> None:
    net, path = ShuffleExchange(4).eval(), tmp_path / "net.onnx"
    x_BND, mask_BN = cells(3, 3, 4), torch.arange(3) >= torch.tensor([[3], [0], [2]])
    inputs: tuple[Tensor, ...] = (x_BND,) if rows == "alike" else (x_BND, mask_BN)
    names, free = ["x_BND", "key_padding_mask"][: len(inputs)], {0: Dim("batch"), 1: Dim("length", min=3, max=4)}
    given = dict(zip(names, inputs, strict=True))
    program = torch.export.export(net, (), given, dynamic_shapes=dict.fromkeys(names, free))
    torch.testing.assert_close(program.module()(**given), net(**given))
    torch.onnx.export(program, f=path, dynamo=True, verbose=False)
    torch.testing.assert_close(run(path, *inputs), net(**given), rtol=0, atol=1e-5)
    for length in (2, 5):
        wrong = x_BND[:, :1].expand(3, length, 4), mask_BN[:, :1].expand(3, length)
        with pytest.raises(Exception, match="out of data bounds"):
            run(path, *wrong[: len(inputs)])
        with pytest.raises((AssertionError, RuntimeError), match=r"Guard failed|length"):
            program.module()(**dict(zip(names, wrong, strict=False)))
    if rows == "masked":
        with pytest.raises(Exception, match="out of data bounds"):
            run(path, x_BND, mask_BN.flip(1))
        with pytest.raises((IndexError, RuntimeError), match="out of range"):
            program.module()(x_BND=x_BND, key_padding_mask=mask_BN.flip(1))
