"""The kernel that forms the candidates on the chip, against the passes around the library's product."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton has no build for this platform")

from riffle.kernels import fused, layer_plan
from riffle.kernels.reference import SwitchWeights
from riffle.kernels.tuning import Blocks, switch_blocks

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize(
    ("shuffle", "sequences", "cells", "features"),
    # Every two of these together: in all combinations they would take three times as long.
    [
        (1, 3, 8, 16), (1, 1, 64, 48), (1, 21, 2, 32),
        (-1, 3, 8, 48), (-1, 1, 64, 32), (-1, 21, 2, 16),
        (0, 3, 8, 32), (0, 1, 64, 16), (0, 21, 2, 48),
    ],
)  # fmt: skip
def test_it_equals_the_passes(
    shuffle: int, sequences: int, cells: int, features: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def draw(*shape: int, scale: float = 1.0) -> Tensor:
        return (scale * torch.randn(*shape, device=DEVICE)).requires_grad_()

    pair = 2 * features
    x_CD, grad_CD = draw(sequences * cells, features), torch.randn(sequences * cells, features, device=DEVICE)
    leaves = [draw(3 * pair, pair, scale=pair**-0.5), draw(3 * pair), draw(2, features, pair, scale=pair**-0.5)]
    leaves += [draw(2, features)]
    monkeypatch.setattr(fused, "plan_layer", layer_plan.plan_layer.__wrapped__)  # the cache would hold other blocks
    on_chip = Blocks(16, 16, {"BLOCK_K": 16, "num_warps": 4, "num_stages": 2})
    for rate, swap in ((0.0, True), (0.3, False)):
        results = []
        for blocks in (None, on_chip):
            monkeypatch.setattr(layer_plan, "switch_blocks", lambda *shape, blocks=blocks: blocks)
            unit = fused.pack(SwitchWeights(*leaves), None, torch.float32)
            torch.manual_seed(5)
            y_CD = fused.switch_and_shuffle(
                x_CD, unit, sequences=[sequences], cells=[cells], shuffle=shuffle, swap=swap, dropout=[rate]
            )
            results.append([y_CD.detach(), *torch.autograd.grad(y_CD, [x_CD, *leaves], grad_CD)])
        for expected, actual in zip(*results, strict=True):
            torch.testing.assert_close(actual, expected, rtol=1e-3 if DEVICE == "cuda" else 1e-5, atol=5e-3)


@pytest.mark.parametrize("features", [16, 32, 48, 64, 96, 128, 192, 256, 384])
def test_widths_of_the_paper_have_blocks_that_divide_them(features: int) -> None:
    blocks = switch_blocks(2**14, features, torch.bfloat16)
    assert blocks is not None
    assert features % blocks.columns == 2 * features % blocks.options["BLOCK_K"] == 0


def test_other_widths_few_pairs_and_float32_take_the_library() -> None:
    for cells, features, dtype in ((2**14, 250, torch.bfloat16), (64, 96, torch.float16), (2**14, 96, torch.float32)):
        assert switch_blocks(cells, features, dtype) is None
