"""The residual unit: what the authors' released code computed, and what its normalisations depend on."""

from __future__ import annotations

import math

import pytest
import torch

from riffle import ShuffleExchange
from riffle.kernels.reference import CANDIDATE_SCALE, NORMS, residual_candidate
from riffle.nn.official import RESIDUAL
from riffle.nn.switch import ResidualUnit
from riffle.parallel import stream

from .golden import PRECISIONS, RESIDUAL_NETS, TOLERANCE, Golden, assert_near, load

WITH_GRADIENTS = [name for name in RESIDUAL_NETS if "loss_weight" in load(name)]


def network(golden: Golden, dtype: torch.dtype) -> ShuffleExchange:
    variables = {name: torch.from_numpy(array).to(dtype) for name, array in golden.under("var/").items()}
    return ShuffleExchange.from_official(variables)


def random_network(norm: str, features: int = 4, blocks: int = 2, **arguments) -> ShuffleExchange:
    """A network in which no bias has its initial value."""
    net = ShuffleExchange(features, blocks, unit="residual", norm=norm, dtype=torch.float64, **arguments)
    for name, parameter in net.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.4)
    return net


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", WITH_GRADIENTS)
def test_gradients(name: str, precision: str) -> None:
    golden, dtype = load(name), PRECISIONS[precision]
    net = network(golden, dtype)
    x = torch.from_numpy(golden["input"]).to(dtype).requires_grad_()
    (net(x) * torch.from_numpy(golden["loss_weight"]).to(dtype)).sum().backward()
    assert_near("input", x.grad, golden[f"grad_input_{precision}"], TOLERANCE[precision])
    expected = golden.under(f"grad_{precision}/steps_recursive/")
    assert len(expected) == len(list(net.parameters()))
    for variable, gradient in expected.items():
        layer, name = variable.split("/", 1)
        actual = net[layer].get_parameter(RESIDUAL[name]).grad
        actual = actual.T if name.endswith("CvK") else actual.view(gradient.shape)
        assert_near(variable, actual, gradient, TOLERANCE[precision])


def test_switch_layer() -> None:
    golden = load("rse_switch_layer")
    unit = ResidualUnit(6, norm="sequence", dtype=torch.float64)
    for name, array in golden.under("var/sw/").items():
        parameter, value = unit.get_parameter(RESIDUAL[name]), torch.from_numpy(array)
        parameter.data.copy_(value.T if name.endswith("CvK") else value.view(parameter.shape))
    x = torch.from_numpy(golden["input"]).double()
    candidate = residual_candidate(x.view(2, 4, 12), unit.weights(), norm="sequence").view(2, 8, 6)
    assert_near("candidate", candidate, golden["candidate_f64"], 1e-10)
    assert_near("output", unit(x), golden["output_f64"], 1e-10)


def test_the_unit_starts_as_the_released_one() -> None:
    unit = ResidualUnit(48)
    assert torch.sigmoid(2 * unit.residual).allclose(torch.tensor(0.9))
    assert (unit.hidden_bias == 0).all()
    assert 0 <= unit.candidate_bias.min() < unit.candidate_bias.max() <= 0.01
    limit = math.sqrt(6 / (2 * 48 + 4 * 48))
    for matrix in (unit.hidden_weight, unit.candidate_weight):
        assert 0.99 * limit < matrix.abs().max() <= limit
    assert pytest.approx(0.109, abs=1e-4) == CANDIDATE_SCALE


def test_over_the_features_a_pair_depends_on_itself_alone() -> None:
    unit = ResidualUnit(4, dtype=torch.float64)
    x_BND = torch.randn(2, 16, 4, dtype=torch.float64)
    torch.testing.assert_close(unit(x_BND)[:, 6:8], unit(x_BND[:, 6:8]), rtol=0, atol=1e-14)


def test_over_the_sequence_a_pair_depends_on_the_others_of_its_row_alone() -> None:
    unit = random_network("sequence")["last"]
    x_BND = torch.randn(2, 16, 4, dtype=torch.float64)
    changed = x_BND.clone()
    changed[0, 12] += 1
    difference = (unit(changed) - unit(x_BND)).abs().amax(-1)
    assert (difference[0] > 1e-6).all()
    assert (difference[1] == 0).all()


@pytest.mark.parametrize("norm", NORMS)
def test_rows_of_different_lengths_do_not_depend_on_their_batch_mates(norm: str) -> None:
    net, x_BND = random_network(norm), torch.randn(3, 20, 4, dtype=torch.float64)
    lengths = [20, 3, 11]
    y_BND = net(x_BND, lengths=lengths)
    for row, length in enumerate(lengths):
        alone = net(x_BND[row : row + 1, :length])[0]
        torch.testing.assert_close(y_BND[row, :length], alone, rtol=0, atol=1e-12)


def test_over_the_sequence_padding_counts() -> None:
    net, x_BND = random_network("sequence"), torch.randn(1, 12, 4, dtype=torch.float64)
    padded = torch.cat([x_BND, x_BND.new_zeros(1, 4, 4)], dim=1)
    torch.testing.assert_close(net(x_BND), net(padded)[:, :12], rtol=0, atol=1e-12)


@pytest.mark.parametrize("norm", NORMS)
def test_a_single_pair_has_finite_gradients(norm: str) -> None:
    net = ShuffleExchange(4, unit="residual", norm=norm)
    for x_BND in (torch.rand(2, 1, 4), torch.zeros(2, 8, 4)):
        x_BND.requires_grad_()
        net(x_BND).sum().backward()
        assert all(tensor.grad is None or tensor.grad.isfinite().all() for tensor in (x_BND, *net.parameters()))


def test_over_the_sequence_what_takes_it_apart_is_refused() -> None:
    net, x_BND = random_network("sequence"), torch.rand(1, 16, 4, dtype=torch.float64)
    for call in (net.overwrite, lambda cells: stream(net, cells, part=8)):
        with pytest.raises(ValueError, match="normalises over all of it: build the network with norm='features'"):
            call(x_BND)


def test_over_the_sequence_a_sharding_is_refused() -> None:
    sharding = type("TwoRanks", (), {"ranks": 2})()
    with pytest.raises(ValueError, match="cannot be spread over ranks"):
        random_network("sequence", sharding=sharding)
