"""The kernel that forms the candidates on the chip, against the passes around the library's product."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton has no build for this platform")

from riffle.kernels import launch
from riffle.kernels.launch import LayerLayout
from riffle.kernels.tuning import Blocks, switch_blocks

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("features", [16, 48, 32])
@pytest.mark.parametrize(("sequences", "cells"), [(3, 8), (1, 64), (21, 2)])
@pytest.mark.parametrize("turn", [1, -1, 0])
def test_it_equals_the_passes(features: int, sequences: int, cells: int, shuffle: int) -> None:
    torch.manual_seed(0)
    pairs, pair = sequences * cells // 2, 2 * features

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, device=DEVICE)

    gates, read_PE, state_PE = draw(pairs, 3 * pair), draw(pairs, pair), draw(pairs, pair)
    weight, bias = draw(2, features, pair) / pair**0.5, draw(2, features)
    seed = torch.tensor([5], device=DEVICE)
    for route in (
        LayerLayout((0,), (cells,), (0.0,), None, shuffle, True),
        LayerLayout((0,), (cells,), (0.3,), seed, shuffle, False),
    ):
        sum_2PD = torch.bmm(launch.reset(gates, read_PE), weight.mT)
        expected = launch.update(gates, sum_2PD, state_PE, bias, route)
        blocks = Blocks(16, 16, {"BLOCK_K": 16, "num_warps": 4, "num_stages": 2})
        for kept in (torch.full_like(sum_2PD, float("nan")), sum_2PD.new_empty(0)):
            actual = launch.switch(gates, read_PE, state_PE, weight, bias, route, blocks, kept)
            torch.testing.assert_close(actual, expected, rtol=1e-3 if DEVICE == "cuda" else 1e-5, atol=2e-3)
            if kept.numel():
                torch.testing.assert_close(kept, sum_2PD, rtol=1e-3, atol=5e-3)


@pytest.mark.parametrize("features", [16, 32, 48, 64, 96, 128, 192, 256, 384])
def test_widths_of_the_paper_have_blocks_that_divide_them(features: int) -> None:
    blocks = switch_blocks(torch.empty(2**14, features, dtype=torch.bfloat16))
    assert blocks is not None
    assert features % blocks.columns == 2 * features % blocks.options["BLOCK_K"] == 0


def test_other_widths_few_pairs_and_float32_take_the_library() -> None:
    for cells, features, dtype in ((2**14, 250, torch.bfloat16), (64, 96, torch.float16), (2**14, 96, torch.float32)):
        assert switch_blocks(torch.empty(cells, features, dtype=dtype)) is None
