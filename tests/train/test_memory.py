"""A step that does not fit into memory ends in a sentence that says what would."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from riffle.nn import execute as memory
from riffle.nn.switch import SwitchUnit
from riffle.train import loop

from .tiny import train


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda device: 20_000)
    monkeypatch.setattr(loop, "free_bytes", lambda device: 20_000)


def fail(*arguments: object) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3.00 GiB.\nOf the allocated memory ...")


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_a_step_that_does_not_fit(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if where == "forward":
        monkeypatch.setattr(SwitchUnit, "pairs", fail)
    else:
        monkeypatch.setattr(torch.Tensor, "backward", fail)
    with pytest.raises(torch.OutOfMemoryError) as error:
        train(tmp_path / "run")
    message = str(error.value)
    assert message.startswith("out of GPU memory: 4 sequences of 4 cells and 4 sequences of 16 cells with 8 features")
    assert "to train" in message
    assert "cells would fit" in message
    assert message.endswith("; a step takes data.batch=4 examples of each of data.bins=[4, 16]")
    assert "\n" not in message
