"""Several batches at once: the scores of each are those it has by itself."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from riffle import SequenceModel
from riffle.tasks import get_task

TASK = get_task("reverse")


def symbols(batch: int, length: int) -> Tensor:
    return torch.randint(0, TASK.symbols, (batch, length))


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("sharing", ["block", "minimal"])
def test_batches_at_once_and_one_by_one(sharing: str, grad: bool) -> None:
    model = SequenceModel(TASK.symbols, TASK.classes, 8, 2, sharing=sharing).eval()
    batches = [symbols(3, 5), symbols(2, 16), symbols(1, 1), symbols(4, 16)]
    with torch.set_grad_enabled(grad):
        together = model.forward_batches(batches)
        assert [tuple(scores.shape) for scores in together] == [(*each.shape, TASK.classes) for each in batches]
        for scores_BNC, symbols_BN in zip(together, batches, strict=True):
            torch.testing.assert_close(scores_BNC, model(symbols_BN), rtol=1e-5, atol=1e-6)
    assert model.forward_batches([]) == []


def test_one_lookup_and_one_product_for_all() -> None:
    model = SequenceModel(12, 12, 8)
    rows: list[int] = []
    model.output.register_forward_hook(lambda layer, inputs, output: rows.append(len(inputs[0])))
    model.forward_batches([symbols(2, 4), symbols(3, 16)])
    assert rows == [2 * 4 + 3 * 16]


def test_hooks_see_a_batch_pass_the_network() -> None:
    model = SequenceModel(12, 12, 8)
    seen: list[tuple[int, ...]] = []
    model.network.register_forward_hook(lambda net, inputs, output: seen.append(tuple(output.shape)))
    model(symbols(2, 3))
    assert seen == [(2, 4, 8)]
