"""The network computes what the authors' released code computed, in outputs, memory and every gradient."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from riffle import ShuffleExchange, SwitchUnit
from riffle.kernels.reference import swap_half
from riffle.nn.official import read_variables
from riffle.shuffle import SHARINGS

from . import official_numpy
from .golden import (
    NETS,
    PRECISIONS,
    RESIDUAL_NETS,
    SWITCHES,
    TOLERANCE,
    Golden,
    assert_near,
    load,
    load_json,
    write_variables,
)

WITH_GRADIENTS = [name for name in NETS if "loss_weight" in load(name)]


def tensors(arrays: dict[str, np.ndarray], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(array).to(dtype) for name, array in arrays.items()}


def network(golden: Golden, dtype: torch.dtype) -> ShuffleExchange:
    variables = tensors(golden.under("var/"), dtype)
    return ShuffleExchange.from_official(variables, blocks=blocks_to_pass(golden))


def blocks_to_pass(golden: Golden) -> int | None:
    """The number of blocks, where the names of the variables do not tell it."""
    return golden.meta["blocks"] if golden.sharing == "full" else None


def exchange_halves(x: torch.Tensor) -> torch.Tensor:
    return torch.cat(x.chunk(2, dim=-1)[::-1], dim=-1)


def test_gradients_are_among_the_golden_files() -> None:
    assert len(WITH_GRADIENTS) >= 3
    assert {load(name).sharing for name in NETS} == set(SHARINGS)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", [*NETS, *RESIDUAL_NETS])
def test_output_and_memory(name: str, precision: str) -> None:
    golden, gated = load(name), name in NETS
    net = network(golden, PRECISIONS[precision])
    assert (net.unit, net.order) == (("gated", "official") if gated else ("residual", "paper"))
    assert net.sharing == golden.sharing or golden.meta["length"] == 2
    memory: list[torch.Tensor] = []
    for unit in net.units.values():
        kept = exchange_halves if gated else torch.Tensor.clone
        unit.register_forward_hook(lambda unit, inputs, output, kept=kept: memory.append(kept(output)))
    x = torch.from_numpy(golden["input"]).to(PRECISIONS[precision])

    output = net(x)
    assert_near("output", output, golden[f"output_{precision}"], TOLERANCE[precision])

    if golden.minimal:
        permutations = load_json("shuffle_permutations")[str(golden.meta["length"])]
        layers = net.layers(golden.meta["length"].bit_length() - 1)
        order = {1: permutations["rol"], -1: permutations["ror"], 0: list(range(golden.meta["length"]))}
        memory = [mem[:, order[layer.shuffle]] for mem, layer in zip(memory, layers, strict=True)]
    assert_near("memory", torch.stack(memory), golden[f"mem_{precision}"], TOLERANCE[precision])

    with torch.no_grad():
        assert_near("output in place", net(x), golden[f"output_{precision}"], TOLERANCE[precision])


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", WITH_GRADIENTS)
def test_gradients(name: str, precision: str) -> None:
    golden, dtype = load(name), PRECISIONS[precision]
    net = network(golden, dtype)
    x = torch.from_numpy(golden["input"]).to(dtype).requires_grad_()
    (net(x) * torch.from_numpy(golden["loss_weight"]).to(dtype)).sum().backward()
    assert x.grad is not None
    assert_near("input", x.grad, golden[f"grad_input_{precision}"], TOLERANCE[precision])

    gradients = {name: parameter.grad for name, parameter in net.named_parameters()}
    written = write_variables(gradients, golden.scope, gradients=True)
    expected = golden.under(f"grad_{precision}/")
    assert written.keys() == expected.keys()
    for variable, gradient in written.items():
        assert_near(variable, gradient, expected[variable], TOLERANCE[precision])


@pytest.mark.parametrize("name", NETS)
def test_variables_survive_the_round_trip(name: str) -> None:
    golden = load(name)
    variables = tensors(golden.under("var/"), torch.float64)
    _, state = read_variables(variables, blocks_to_pass(golden))
    written = write_variables(state, golden.scope)
    assert written.keys() == variables.keys()
    for variable, tensor in written.items():
        # The constant 0.5 that is added to a gate's bias and taken off again may cost a rounding.
        torch.testing.assert_close(tensor, variables[variable], rtol=0, atol=1e-15)


@pytest.mark.parametrize("name", SWITCHES)
def test_switch_layer(name: str) -> None:
    golden = load(name)
    with_skip, swap = name.endswith("residual"), not name.endswith("noswap")
    renamed = {f"steps_shuffle_exchange/last/{key}": array for key, array in golden.under("var/sw/").items()}
    _, state = read_variables(tensors(renamed, torch.float64))
    unit = SwitchUnit(6, skip=with_skip, swap=swap, dtype=torch.float64)
    unit.load_state_dict({key.removeprefix("units.last."): tensor for key, tensor in state.items()})

    x, skip = (exchange_halves(torch.from_numpy(golden[key]).double()) for key in ("input", "residual_input"))
    output = unit(x, skip if with_skip else None)
    read = x + skip * unit.skip_scale if with_skip else x
    reset1, _, update = unit.gates(read.view(2, 4, 12)).sigmoid().chunk(3, dim=-1)
    copied = swap_half(x.view(2, 4, 12)) if swap else x.view(2, 4, 12)
    candidate = (output.view(2, 4, 12) - update * copied) / (1 - update)
    for what, actual in {"output": output, "gate": update, "candidate": candidate, "reset1": reset1}.items():
        assert_near(what, exchange_halves(actual.reshape(2, 8, 6)), golden[f"{what}_f64"], 1e-10)


@pytest.mark.parametrize("name", NETS)
def test_numpy_restatement_is_the_released_network(name: str) -> None:
    golden = load(name)
    variables = {key: array.astype(np.float64) for key, array in golden.under("var/").items()}
    x = golden["input"].astype(np.float64)
    output, memory = official_numpy.network(variables, x, golden.meta["blocks"], golden.sharing)
    assert_near("output", output, golden["output_f64"], 1e-10)
    assert_near("memory", memory, golden["mem_f64"], 1e-10)


@pytest.mark.parametrize("k", [2, 3, 4])
@pytest.mark.parametrize("blocks", [1, 2, 3])
@pytest.mark.parametrize("sharing", SHARINGS)
def test_every_sharing_and_one_to_three_blocks(sharing: str, blocks: int, k: int) -> None:
    rng = np.random.default_rng([blocks, k])
    variables = official_numpy.random_variables(k, blocks, sharing, 6, rng)
    x = rng.uniform(-1, 1, (2, 2**k, 6))
    expected, _ = official_numpy.network(variables, x, blocks, sharing)
    net = ShuffleExchange.from_official(variables, blocks=blocks if sharing == "full" else None)
    assert (net.features, net.blocks, net.sharing) == (6, blocks, sharing)
    assert_near("output", net(torch.from_numpy(x)), expected, 1e-10)


@pytest.mark.parametrize("sharing", SHARINGS)
def test_gradients_of_three_blocks_against_finite_differences(sharing: str) -> None:
    rng = np.random.default_rng(3)
    variables = official_numpy.random_variables(3, 3, sharing, 4, rng)
    x, weight = rng.uniform(-1, 1, (2, 8, 4)), rng.normal(size=(2, 8, 4))
    net = ShuffleExchange.from_official(variables, blocks=3)
    x_BND = torch.from_numpy(x).requires_grad_()
    (net(x_BND) * torch.from_numpy(weight)).sum().backward()
    gradients = write_variables(
        {name: parameter.grad for name, parameter in net.named_parameters()},
        official_numpy.scope(sharing),
        gradients=True,
    )
    assert gradients.keys() == variables.keys()

    def loss(inputs: np.ndarray, **changed: np.ndarray) -> float:
        return (official_numpy.network({**variables, **changed}, inputs, 3, sharing)[0] * weight).sum()

    step = 1e-5
    for name, array in {**variables, "input": x}.items():
        gradient = (x_BND.grad if name == "input" else gradients[name]).numpy()
        direction = rng.normal(size=array.shape)
        direction /= np.linalg.norm(direction)
        if name == "input":
            ahead, behind = loss(x + step * direction), loss(x - step * direction)
        else:
            ahead = loss(x, **{name: array + step * direction})
            behind = loss(x, **{name: array - step * direction})
        slope = (ahead - behind) / (2 * step)
        assert abs((gradient * direction).sum() - slope) <= 1e-7 * max(1.0, np.linalg.norm(gradient)), name
