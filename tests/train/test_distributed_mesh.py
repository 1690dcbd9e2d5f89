"""Batches and sequences spread at once, as the documentation shows it, give the gradients of one device."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import torch

from riffle import ShuffleExchange
from riffle.train.distributed import RankGroup

from .processes import together

PAGE = Path(__file__).parents[2] / "docs" / "scaling.md"


def recipe(ranks: RankGroup) -> dict[str, np.ndarray]:
    """The gradients that the documentation's example leaves on this rank."""
    (text,) = re.findall(r"^## Both at once$.*?^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(text, PAGE, "exec"), names)
    assert (names["data"].size, names["sequence"].size) == (2, 2)
    return {name: parameter.grad.numpy() for name, parameter in names["net"].named_parameters()}


def test_the_documented_recipe_gives_the_gradients_of_one_device() -> None:
    torch.manual_seed(0)
    net = ShuffleExchange(16, blocks=2)
    x_BND = torch.rand(8, 64, 16, generator=torch.Generator().manual_seed(2))
    net(x_BND).square().mean().backward()
    for answer in together(4, recipe):
        for name, parameter in net.named_parameters():
            assert parameter.grad is not None
            expected = parameter.grad.numpy()
            assert np.abs(answer[name] - expected).max() <= 1e-6 * np.abs(expected).max(), name
