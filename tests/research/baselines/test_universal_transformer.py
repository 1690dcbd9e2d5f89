"""The Universal Transformer has the published size, steps and halting."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from research.baselines.universal_transformer import Halting, UniversalReader, UniversalStack, UniversalTransformer

WORDS = 60_001


def size(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_the_base_configuration_has_the_published_number_of_parameters() -> None:
    model = UniversalReader(WORDS, 1024, heads=16, steps=6, device="meta")
    assert size(model) == pytest.approx(152.4e6, rel=0.001)
    assert size(model) - size(model.decoder) == pytest.approx(135.6e6, rel=0.001)
    assert size(model.encoder) == pytest.approx(12.6e6, rel=0.01)


def test_a_reader_uses_all_of_its_parameters() -> None:
    model = UniversalReader(50, 16, steps=2, halting=True)
    scores = model(torch.randint(1, 50, (3, 9)))
    assert scores.shape == (3, 50)
    (scores.square().sum() + model.extra_loss()).backward()
    assert not [name for name, parameter in model.named_parameters() if parameter.grad is None]


@pytest.mark.parametrize("halting", [False, True])
def test_states_keep_the_precision_of_the_weights_under_autocast(halting: bool) -> None:
    stack = UniversalStack(16, steps=2, halting=halting)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert stack(torch.randn(2, 5, 16, dtype=torch.bfloat16)).dtype == torch.float32


def halting_by_hand(p: list[float], states: list[float]) -> tuple[float, float, float]:
    """Result, steps and remainder of one position, step by step."""
    spent = result = 0.0
    for step, (each, state) in enumerate(zip(p, states, strict=True), start=1):
        if spent + each > 0.99:
            rest = 1 - spent
            return rest * state + (1 - rest) * result, step, rest
        result = each * state + (1 - each) * result
        spent += each
    return result, len(p), 0.0


@pytest.mark.parametrize("p", [[0.5, 0.3, 0.1, 0.95], [0.995, 0.2, 0.2, 0.2], [0.1] * 4, [0.4, 0.7, 0.5, 0.5]])
def test_halting_is_that_of_one_position_by_hand(p: list[float]) -> None:
    halting = Halting(1).double()
    nn.init.ones_(halting.probability.weight)
    nn.init.zeros_(halting.probability.bias)
    states = [1.0, -2.0, 3.0, 5.0]
    halting.start(torch.zeros(1, 1, 1).double())
    for each, state in zip(p, states, strict=True):
        halting.weigh(torch.logit(torch.tensor([[[each]]]).double()))
        halting.mix(torch.full((1, 1, 1), state).double())
    result, steps, remainder = halting_by_hand(p, states)
    assert float(halting.result_BND.detach()) == pytest.approx(result)
    assert float(halting.steps_BN.detach()) == steps
    assert float(halting.ponder.detach()) == pytest.approx(steps + remainder)


def test_halting_saves_steps_only_where_it_may() -> None:
    model = UniversalTransformer(12, 12, 16, steps=12, halting=True)
    model(torch.randint(0, 12, (4, 9)))
    halting = model.encoder.halting
    assert halting is not None
    assert float(halting.steps_BN.min()) >= 1
    assert float(halting.steps_BN.max()) <= 12
    assert float(model.extra_loss().detach()) == pytest.approx(0.01 * float(halting.ponder.detach()))
    assert float(UniversalTransformer(12, 12, 16).extra_loss()) == 0.0


def test_positions_matter() -> None:
    stack = UniversalStack(16, heads=2, steps=2)
    x_BND = torch.randn(1, 1, 16).expand(1, 5, 16)
    y_BND = stack.eval()(x_BND)
    assert not torch.allclose(y_BND[:, 0], y_BND[:, 4])
