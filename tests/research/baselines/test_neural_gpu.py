"""The Neural GPU is the authors': outputs, states, saturation and every gradient; what is ours beside it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from nn.golden import Golden, assert_near, load
from torch import Tensor

from research.baselines.neural_gpu import PERIOD, NeuralGPU
from riffle.train.evaluate import symbol_loss

FILES = ("dngpu_L8_m6_B4", "dngpu_L8_m8_B3_not_div3")
TOLERANCE = 1e-5
GATES = {"r": 0.5, "g": 0.7}


def filter_to_matrix(kernel: np.ndarray) -> Tensor:
    """A convolution's kernel [width, in, out] as the matrix that reads the cells side by side."""
    return torch.from_numpy(kernel.reshape(-1, kernel.shape[-1]).T.copy())


def official_state(variables: dict[str, np.ndarray], constants: bool = True) -> dict[str, Tensor]:
    """TensorFlow variables, or their gradients without the constants, under our names."""

    def get(name: str) -> tuple[Tensor, Tensor]:
        bias = torch.from_numpy(variables[f"var_lengths/{name}/CvB"])
        constant = GATES.get(name[-1], 0.0) if constants and "dcgru" in name else 0.0
        return filter_to_matrix(variables[f"var_lengths/{name}/CvK"]), bias + constant

    reset, update = get("steps/dcgru/r"), get("steps/dcgru/g")
    layers = {
        "input": get("input"),
        "unit.gates": (torch.cat([reset[0], update[0]]), torch.cat([reset[1], update[1]])),
        "unit.candidate": get("steps/dcgru/c"),
        "output": get("output"),
    }
    weights = {f"{name}.weight": weight for name, (weight, _) in layers.items()}
    return weights | {f"{name}.bias": bias for name, (_, bias) in layers.items()}


def model_of(golden: Golden) -> NeuralGPU:
    """The authors' model, with their mask of active cells, which reads the targets."""
    meta = golden.meta
    model = NeuralGPU(meta["n_input"], meta["n_output"], meta["maps"])
    missing, unexpected = model.load_state_dict(official_state(golden.under("var/")), strict=False)
    assert set(missing) == {"saturation.weight", "saturation.period"}
    assert not unexpected
    model.active_cells = lambda symbols_BN: torch.from_numpy((golden["x"] != 0) | (golden["y"] != 0))
    return model


@pytest.mark.parametrize("name", FILES)
def test_every_state(name: str) -> None:
    golden = load(name)
    model, states = model_of(golden), []
    model.unit.register_forward_pre_hook(lambda module, inputs: states.append(inputs[0]))
    model(torch.from_numpy(golden["x"]).long())
    states_TBND = torch.stack(states).unflatten(1, (len(golden["x"]), -1))[:, :, :-1]
    assert_near("states", states_TBND, golden["mem"][:-1], TOLERANCE)


@pytest.mark.parametrize("name", FILES)
def test_scores_losses_and_every_gradient(name: str) -> None:
    golden = load(name)
    model = model_of(golden)
    scores_BNC = model(torch.from_numpy(golden["x"]).long())
    assert_near("scores", scores_BNC, golden["prediction"], TOLERANCE)
    loss_B = symbol_loss(scores_BNC, torch.from_numpy(golden["y"])).mean(dim=1)
    assert_near("loss per item", loss_B, golden["per_item_cost"], TOLERANCE)
    assert_near("saturation", model.saturation.cost(), golden["saturation_cost"], TOLERANCE)
    (loss_B.mean() + model.extra_loss()).backward()
    expected = official_state(golden.under("grad/"), constants=False)
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert gradients.keys() == expected.keys()
    for parameter, gradient in gradients.items():
        assert_near(parameter, gradient, expected[parameter].numpy(), TOLERANCE)


@pytest.mark.parametrize("length", [1, 2, 3, 8, 17])
def test_cells_past_the_extent_do_not_matter(length: int) -> None:
    model = NeuralGPU(12, 12, 9).double()
    x_BN = torch.randint(1, 12, (3, length))
    wide_BN = torch.nn.functional.pad(x_BN, (0, 4))
    assert model.active_cells(wide_BN).sum(1).tolist() == [length] * 3
    scores_BNC = model(wide_BN)
    torch.testing.assert_close(scores_BNC[:, length:], model.output.bias.expand(3, 4, 12))


def test_reach_opens_cells_for_a_longer_output() -> None:
    model = NeuralGPU(12, 12, 9, reach=2)
    x_BN = torch.tensor([[3, 0, 4, 0, 0, 0, 0, 0], [0] * 8, [1] * 8])
    assert model.active_cells(x_BN).sum(1).tolist() == [6, 0, 8]
    assert model(x_BN).isfinite().all()


def test_many_widths_at_once_are_what_each_is_alone() -> None:
    model = NeuralGPU(12, 5, 10).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)  # so that something saturates
    batches = [torch.randint(0, 12, (rows, width)) for rows, width in ((2, 8), (3, 3), (1, 1), (4, 8))]
    apart, costs = [], []
    for batch in batches:
        apart.append(model(batch))
        costs.append(model.saturation.cost())
    together = model.forward_batches(batches)
    for one, other in zip(together, apart, strict=True):
        torch.testing.assert_close(one, other)
    torch.testing.assert_close(model.saturation.cost(), torch.stack(costs).mean())
    assert model.saturation.cost() > 0


def test_the_weight_of_saturation_follows_the_loss() -> None:
    model = NeuralGPU(12, 12, 9)
    with torch.no_grad():
        model.output.bias.fill_(1)
        model.input.weight.mul_(20)
    rate, x_BN = torch.tensor(1e-4), torch.randint(1, 12, (4, 7))
    for step in range(PERIOD):
        assert float(model.saturation.weight) == pytest.approx(1e-3)
        model(x_BN)
        cost = float(model.saturation.cost().detach())
        model.after_step(torch.tensor(0.5 if step % 2 else 1.5), rate)
    assert cost > 0
    assert float(model.saturation.weight) == pytest.approx(min(1e-3, 1e-4 * 1.0 / cost), rel=1e-4)
    assert (model.saturation.period == 0).all()
    assert float(model.extra_loss()) == 0.0, "a step's graph is let go"
