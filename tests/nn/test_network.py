"""The network as a layer: any length, rows of different length, bounds, dependence, training noise, PyTorch's tools."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from riffle import CausalShuffleExchange, Encoder, ShuffleExchange
from riffle.inspect.trace import trace
from riffle.models.causal import CausalModel
from riffle.nn import UNITS
from riffle.nn.causal import CAUSAL_UNITS
from riffle.nn.switch import GateValues, PairUnit
from riffle.shuffle import SHARINGS

from .golden import load_json, write_variables

STATS = load_json("init_and_trainmode_stats")
LENGTHS = [1, 2, 3, 5, 7, 8, 100]
BOUNDED = [unit for unit in UNITS if unit not in ("two-fc", "residual")]


def cells(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.rand(shape, dtype=dtype) * 2 - 1


def network(features: int = 4, blocks: int = 2, *, dtype: torch.dtype = torch.float64, **arguments) -> ShuffleExchange:
    return ShuffleExchange(features, blocks, dtype=dtype, **arguments)


# Any length


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("unit", UNITS)
def test_any_length(unit: str, length: int) -> None:
    net, x_BND = network(unit=unit), cells(2, length, 4)
    y_BND = net(x_BND)
    assert y_BND.shape == x_BND.shape
    assert y_BND.isfinite().all()
    with torch.no_grad():
        torch.testing.assert_close(net(x_BND), y_BND, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("length", "width"), [(1, 2), (3, 4), (5, 8), (7, 8), (100, 128)])
def test_other_lengths_are_padded_with_zeros_and_cropped(length: int, width: int) -> None:
    net, x_BND = network(), cells(2, length, 4)
    padded = torch.zeros(2, width, 4, dtype=torch.float64)
    padded[:, :length] = x_BND
    assert torch.equal(net(x_BND), net(padded)[:, :length])


def test_without_sharing_the_length_fixes_the_size() -> None:
    net = network(sharing="none", length=13)
    assert len(net.units) == len(net.layers(4))
    for length in (9, 13, 16):
        assert net(cells(1, length, 4)).shape == (1, length, 4)


# Rows of different length


@pytest.mark.parametrize("sharing", ["block", "minimal", "full"])
def test_a_row_with_a_length_is_the_row_alone(sharing: str) -> None:
    net, lengths = network(sharing=sharing), [1, 2, 3, 5, 8, 13, 16, 20, 7, 1]
    x_BND = cells(len(lengths), 20, 4).requires_grad_()
    weight = cells(len(lengths), 20, 4)
    y_BND = net(x_BND, lengths=lengths)
    (gradient,) = torch.autograd.grad((y_BND * weight).sum(), x_BND)
    for row, length in enumerate(lengths):
        alone = x_BND[row : row + 1, :length].detach().requires_grad_()
        y_alone = net(alone)
        (gradient_alone,) = torch.autograd.grad((y_alone * weight[row, :length]).sum(), alone)
        torch.testing.assert_close(y_BND[row : row + 1, :length], y_alone, rtol=0, atol=1e-12)
        torch.testing.assert_close(gradient[row : row + 1, :length], gradient_alone, rtol=0, atol=1e-12)
        assert not y_BND[row, length:].any()
        assert not gradient[row, length:].any()
    with torch.no_grad():
        torch.testing.assert_close(net(x_BND, lengths=torch.tensor(lengths)), y_BND, rtol=0, atol=1e-12)


def test_weights_learn_from_every_row_as_if_it_were_alone() -> None:
    net, lengths = network(), [3, 8, 1]
    x_BND, weight = cells(3, 8, 4), cells(3, 8, 4)
    parameters = list(net.parameters())
    together = torch.autograd.grad((net(x_BND, lengths=lengths) * weight).sum(), parameters)
    rows = [
        torch.autograd.grad(
            (net(x_BND[row : row + 1, :length]) * weight[row, :length]).sum(), parameters, materialize_grads=True
        )
        for row, length in enumerate(lengths)
    ]
    for gradient, alone in zip(together, zip(*rows, strict=True), strict=True):
        torch.testing.assert_close(gradient, sum(alone), rtol=0, atol=1e-11)


@pytest.mark.parametrize("garbage", [0.0, 1e30, float("inf"), float("nan")])
def test_garbage_past_a_row_is_never_read(garbage: float) -> None:
    net, lengths = network(), [3, 8, 5]
    x_BND = cells(3, 8, 4)
    spoilt = x_BND.clone()
    spoilt[0, 3:] = spoilt[2, 5:] = garbage
    spoilt.requires_grad_()
    y_BND = net(spoilt, lengths=lengths)
    assert torch.equal(y_BND, net(x_BND, lengths=lengths))
    y_BND.sum().backward()
    assert spoilt.grad is not None
    assert spoilt.grad.isfinite().all()
    assert not spoilt.grad[0, 3:].any()
    with torch.no_grad():
        assert torch.equal(net(spoilt, lengths=lengths), net(x_BND, lengths=lengths))


# Bounds and dependence


@given(
    seed=st.integers(0, 2**31),
    scale=st.floats(0.1, 20),
    skip=st.floats(-3, 3),
    unit=st.sampled_from(BOUNDED),
    sharing=st.sampled_from(["block", "minimal", "full"]),
    length=st.integers(1, 40),
)
def test_outputs_stay_between_minus_one_and_one(
    seed: int, scale: float, skip: float, unit: str, sharing: str, length: int
) -> None:
    torch.manual_seed(seed)
    net = network(blocks=3, unit=unit, sharing=sharing, dtype=torch.float32)
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if name.endswith("skip_scale"):
                parameter.fill_(skip)
            else:
                parameter.mul_(scale)
        x_BND = cells(2, length, 4, dtype=torch.float32)
        x_BND[0] = x_BND[0].sign()
        assert net(x_BND).abs().max() <= 1
    assert net(x_BND).abs().max() <= 1


@pytest.mark.parametrize("unit", UNITS)
def test_every_output_cell_depends_on_every_input_cell(unit: str) -> None:
    net = network(blocks=1, unit=unit)
    jacobian = torch.func.jacrev(lambda x_ND: net(x_ND[None])[0])(cells(16, 4))
    assert jacobian.shape == (16, 4, 16, 4)
    assert (jacobian.abs().amax(dim=(1, 3)) > 0).all()
    # Feature by feature, too, except where a ReLU cuts some of the ways.
    assert (jacobian != 0).all() or unit == "two-fc"


# Training: dropout, noise


@pytest.mark.parametrize("keep", ["0.9", "0.5", "1"])
@pytest.mark.parametrize("length", [8, 64])
@pytest.mark.parametrize("gradients", [True, False])
def test_training_perturbs_as_the_released_code_does(length: int, keep: str, gradients: bool) -> None:
    facts = STATS[f"trainmode_keep{keep}_L{length}"]
    arguments = {"noise": 0.001} if keep == "1" else {"dropout": 1 - float(keep)}
    net = ShuffleExchange(96, 1, **arguments)
    undisturbed: list[Tensor] = []
    net["last"].register_forward_hook(lambda unit, inputs, output: undisturbed.append(output))
    with torch.set_grad_enabled(gradients):
        y = net(torch.rand(8, length, 96) * 2 - 1).detach()
    before = torch.cat([output.detach().view(-1, 96) for output in undisturbed]).view_as(y)
    kept = y != 0
    rate, count = facts["expected_rate"], y.numel()
    spread = (rate * (1 - rate) / count) ** 0.5
    assert abs((~kept).double().mean().item() - rate) <= 5 * spread
    ratio = (y / before)[kept & (before.abs() > 1e-3)].double()
    assert ratio.mean().item() == pytest.approx(facts["ratio_mean"], abs=1e-4)
    assert ratio.std().item() == pytest.approx(facts["ratio_std"], rel=0.05, abs=1e-5)


@pytest.mark.parametrize("perturbation", [{"dropout": 0.5}, {"noise": 0.1}])
def test_evaluation_is_deterministic_and_training_is_not(perturbation: dict[str, float]) -> None:
    net, x_BND = network(**perturbation), cells(2, 8, 4)
    assert not torch.equal(net(x_BND), net(x_BND))
    net.eval()
    plain = network()
    plain.load_state_dict(net.state_dict())
    assert torch.equal(net(x_BND), net(x_BND))
    assert torch.equal(net(x_BND), plain(x_BND))


# Parameters


def test_initialisation_is_that_of_the_released_code() -> None:
    net = ShuffleExchange(96, blocks=2)
    scope = "var_lengths/steps_shuffle_exchange"
    variables = write_variables(net.state_dict(), scope)
    facts = {name: fact for name, fact in STATS["init_m96_b2"].items() if name.startswith(scope)}
    assert variables.keys() == facts.keys()
    for name, variable in variables.items():
        fact = facts[name]
        assert list(variable.shape) == fact["shape"]
        limit = fact.get("sqrt(6/(fan_in+fan_out))")
        if limit is None:
            assert variable.min().item() == variable.max().item() == fact["mean"]
        else:
            assert 0.99 * limit < variable.abs().max().item() <= limit
            assert variable.std().item() == pytest.approx(fact["std"], rel=0.02)
            assert variable.mean().item() == pytest.approx(0, abs=0.02 * limit)


# Gradients


@pytest.mark.parametrize(
    "options", [*({"unit": unit} for unit in UNITS), {"unit": "residual", "norm": "sequence"}, {"pad": "even"}], ids=str
)
def test_gradcheck(options: dict[str, Any]) -> None:
    net = network(2, sharing="minimal", **options)
    names = [name for name, _ in net.named_parameters()]

    def run(x_BND: Tensor, *parameters: Tensor) -> Tensor:
        return torch.func.functional_call(net, dict(zip(names, parameters, strict=True)), (x_BND,))

    x_BND = cells(2, 6 if net.pad == "even" else 8, 2).requires_grad_()
    assert torch.autograd.gradcheck(run, (x_BND, *net.parameters()), fast_mode=True)
    assert torch.autograd.gradcheck(net, (x_BND,))


@pytest.mark.parametrize("unit", UNITS)
def test_transforms_without_gradients(unit: str) -> None:
    """vmap, over cells and over weights, and forward-mode differentiation, where layers may not overwrite anything."""
    net, x_KBND = network(unit=unit), cells(3, 2, 8, 4)
    weights = {name: torch.stack([parameter, 2 * parameter]) for name, parameter in net.named_parameters()}
    with torch.no_grad():
        alone_KBND = torch.stack([net(x_BND) for x_BND in x_KBND])
        torch.testing.assert_close(torch.vmap(net)(x_KBND), alone_KBND, rtol=0, atol=1e-12)
        ensemble = torch.vmap(lambda parameters: torch.func.functional_call(net, parameters, (x_KBND[0],)))(weights)
        torch.testing.assert_close(ensemble[0], alone_KBND[0], rtol=0, atol=1e-12)
        y_BND, moved_BND = torch.func.jvp(net, (x_KBND[0],), (x_KBND[1],))
    step_BND = (net(x_KBND[0] + 1e-6 * x_KBND[1]) - net(x_KBND[0] - 1e-6 * x_KBND[1])) / 2e-6
    torch.testing.assert_close(y_BND, alone_KBND[0], rtol=0, atol=1e-12)
    torch.testing.assert_close(moved_BND, step_BND, rtol=0, atol=1e-6)


# PyTorch's tools


def compiled(net: nn.Module, x_BND: Tensor, backend: str) -> Tensor:
    torch.compiler.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations inside the compiler
        return torch.compile(net, fullgraph=True, backend=backend)(x_BND)


@pytest.mark.parametrize("unit", ["gated", "residual"])
def test_compiled_in_one_graph_with_gradients(unit: str) -> None:
    net, x_BND = network(unit=unit, backend="reference"), cells(2, 6, 4)
    expected = torch.autograd.grad(net(x_BND).sum(), list(net.parameters()))
    y_BND = compiled(net, x_BND, "aot_eager")
    torch.testing.assert_close(y_BND, net(x_BND), rtol=0, atol=1e-12)
    actual = torch.autograd.grad(y_BND.sum(), list(net.parameters()))
    for gradient, reference in zip(actual, expected, strict=True):
        torch.testing.assert_close(gradient, reference, rtol=0, atol=1e-12)


def test_compiled_by_inductor() -> None:
    net, x_BND = network(blocks=1, dtype=torch.float32, backend="reference"), cells(1, 4, 4, dtype=torch.float32)
    net.requires_grad_(False)
    torch.testing.assert_close(compiled(net, x_BND, "inductor"), net(x_BND), rtol=0, atol=1e-6)


def test_on_the_meta_device() -> None:
    net = ShuffleExchange(4, 2, device="meta")
    assert {parameter.device.type for parameter in net.parameters()} == {"meta"}
    assert net(torch.empty(3, 10, 4, device="meta")).shape == (3, 10, 4)
    real = net.to_empty(device="cpu")
    real.load_state_dict(ShuffleExchange(4, 2).state_dict())
    assert real(torch.zeros(1, 10, 4)).isfinite().all()


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *((ShuffleExchange, {"features": 64, "blocks": 2, "unit": unit}) for unit in UNITS),
        *((CausalShuffleExchange, {"features": 64, "blocks": 2, "unit": unit}) for unit in CAUSAL_UNITS),
        (Encoder, {"features": 64, "symbols": 30, "outputs": 30}),
        (Encoder, {"features": 64, "inputs": 30, "pool": "attention"}),
        (CausalModel, {"features": 64, "symbols": 30, "classes": 30}),
    ],
)
def test_reset_parameters_after_the_meta_device(kind: type[nn.Module], options: dict[str, Any]) -> None:
    new, reset = kind(**options), kind(**options, device="meta").to_empty(device="cpu")
    for tensor in reset.state_dict().values():
        tensor.fill_(math.nan)
    reset.reset_parameters()  # type: ignore[operator]
    for name, expected in new.state_dict().items():
        drawn = reset.state_dict()[name]
        assert drawn.isfinite().all(), name
        if expected.numel() > 1:
            spread = expected.std().item()
            error = 6 * spread / expected.numel() ** 0.5
            assert drawn.mean().item() == pytest.approx(expected.mean().item(), abs=error), name
            assert drawn.std().item() == pytest.approx(spread, rel=0.3), name


def test_one_sequence_without_a_batch() -> None:
    net, x_ND = network(), cells(13, 4)
    assert torch.equal(net(x_ND), net(x_ND[None])[0])
    assert torch.equal(net(x_ND, lengths=[5]), net(x_ND[None], lengths=[5])[0])
    mask_N = torch.arange(13) >= 5
    assert torch.equal(net(x_ND, key_padding_mask=mask_N), net(x_ND, lengths=[5]))


@pytest.mark.parametrize("sharing", SHARINGS)
def test_state_dict_moves_between_dtypes(sharing: str) -> None:
    length = 8 if sharing == "none" else None
    wide, x_BND = network(sharing=sharing, length=length), cells(2, 8, 4)
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 0.1)):
        narrow = network(sharing=sharing, length=length, dtype=dtype)
        narrow.load_state_dict(wide.state_dict())
        y_BND = narrow(x_BND.to(dtype))
        assert y_BND.dtype == dtype
        torch.testing.assert_close(y_BND.double(), wide(x_BND), rtol=0, atol=tolerance)
        back = network(sharing=sharing, length=length)
        back.load_state_dict(narrow.state_dict())
        for name, parameter in back.state_dict().items():
            assert torch.equal(parameter, wide.state_dict()[name].to(dtype).double())


@pytest.mark.parametrize("unit", UNITS)
def test_autocast_keeps_the_dtype_of_the_cells(unit: str) -> None:
    net, x_BND = network(8, unit=unit, dtype=torch.float32), cells(2, 20, 8, dtype=torch.float32)
    expected = net(x_BND)
    with torch.autocast("cpu", torch.bfloat16):
        trained = net(x_BND)
        with torch.no_grad():
            evaluated = net(x_BND)
    assert trained.dtype == evaluated.dtype == torch.float32
    scale = expected.abs().max().item()
    torch.testing.assert_close(trained, expected, rtol=0, atol=0.02 * scale)
    torch.testing.assert_close(evaluated, expected, rtol=0, atol=0.02 * scale)
    assert not torch.equal(trained, expected)


def test_a_unit_of_ones_own_is_a_class_and_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class Linear(PairUnit):
        skips = False

        def __init__(self, features: int, **factory: Any) -> None:
            super().__init__(features, **factory)
            self.linear = nn.Linear(2 * features, 2 * features, **factory)

        def pairs(self, s_PE: Tensor, skip_PE: Tensor | None) -> Tensor:
            return self.linear(s_PE)

        def gate_values(self, read_PE: Tensor) -> GateValues:
            return GateValues(self.linear(read_PE))

    monkeypatch.setitem(UNITS, "linear", Linear)
    net, x_BND = network(unit="linear"), cells(2, 8, 4)
    for run in (net.overwrite, lambda x_BND: trace(net, x_BND).output):
        torch.testing.assert_close(run(x_BND.clone()), net(x_BND), rtol=0, atol=1e-12)
    assert net.flops(8) == len(net.layers(3)) * 4 * 2 * 8 * 8
