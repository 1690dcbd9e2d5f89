"""What is refused, and that the message names the value and the remedy."""

from __future__ import annotations

import math

import pytest
import torch

from riffle import SequenceModel, ShuffleExchange, SwitchUnit
from riffle.nn.network import CHOICES

from . import official_numpy
from .golden import load

RATES = r"dropout must lie in \[0, 1\) and noise be at least 0"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        *(({"features": features}, f"features must be even.* got {features}") for features in (0, 1, 7, -2)),
        *(({"blocks": blocks}, f"blocks must be at least 1, got {blocks}") for blocks in (0, -1)),
        *(({what: "other"}, f"unknown {what} 'other'.*{', '.join(choices)}") for what, choices in CHOICES.items()),
        *((rates, RATES) for rates in ({"dropout": 1.0}, {"dropout": -0.1}, {"noise": -1.0})),
        *((rates, RATES) for rates in ({"dropout": math.nan}, {"noise": math.nan}, {"noise": math.inf})),
        ({"dropout": 0.1, "noise": 0.001}, "noise replaces dropout"),
        ({"sharing": "none"}, r'sharing="none" .* needs length='),
        ({"length": 16}, "every other sharing runs any length"),
        *(({"sharing": "none", "length": length}, f"length must be .*got '?{length}") for length in (-5, 0, 2.5, "8")),
        *(({what: 2.5}, f"{what} must be a whole number, got 2.5") for what in ("features", "blocks")),
        ({"dropout": "0.1"}, RATES),
        *(({"dtype": dtype}, "one of real numbers, such as") for dtype in (torch.complex64, torch.int32, "float32")),
        ({"norm": "sequence"}, "norm='sequence' is for unit='residual', a unit 'gated' does not normalise"),
    ],
    ids=str,
)
def test_arguments(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ShuffleExchange(**{"features": 4} | arguments)


def test_a_unit_by_itself_needs_even_features() -> None:
    with pytest.raises(ValueError, match="features must be even, since swapHalf exchanges half of them, got 1"):
        SwitchUnit(1)


@pytest.mark.parametrize(
    ("x_BND", "message"),
    [
        *(
            (torch.zeros(shape), rf"must be \[batch, length, features\], got shape \({shape[0]},")
            for shape in ((4,), (1, 2, 8, 4))
        ),
        (torch.zeros(1, 8, 6), "4 features per cell, the input has 6"),
        (torch.zeros(1, 0, 4), "no cells"),
        *(
            (torch.zeros(1, 8, 4, dtype=dtype), rf"the input is {dtype}, the network torch.float32: convert one")
            for dtype in (torch.float64, torch.bfloat16, torch.int64)
        ),
        (torch.zeros(1, 8, 4, device="meta"), "the input is on meta, the network on cpu: move one"),
    ],
    ids=lambda value: f"{tuple(value.shape)}, {value.dtype}" if isinstance(value, torch.Tensor) else "",
)
def test_inputs(x_BND: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ShuffleExchange(4)(x_BND)


def test_a_network_made_complex() -> None:
    net = ShuffleExchange(4)
    with pytest.warns(UserWarning, match="Complex modules are a new feature"):
        net.to(torch.complex64)
    with pytest.raises(ValueError, match=r"the network is torch\.complex64, and its layers are of real numbers"):
        net(torch.zeros(1, 8, 4, dtype=torch.complex64))


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        *(
            (lengths, rf"lengths must lie in 0\.\.8, the length of the input, got {wrong}")
            for lengths, wrong in (([8, 9], 9), ([-1, 3], -1))
        ),
        *((lengths, "one length per row, 2 of them, got shape") for lengths in ([8], [8, 8, 8], [[8, 8]], 8)),
        ([8.0, 3.0], r"lengths must be integers, got torch\.float32"),
        ([8j, 3], r"lengths must be integers, got torch\.complex64"),
        (torch.tensor([True, True]), r"lengths must be integers, got torch\.bool"),
    ],
    ids=str,
)
def test_lengths(lengths: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ShuffleExchange(4)(torch.zeros(2, 8, 4), lengths=lengths)


@pytest.mark.parametrize(("length", "size"), [(8, 8), (3, 4), (17, 32)])
def test_no_sharing_at_another_length(length: int, size: int) -> None:
    net = ShuffleExchange(4, sharing="none", length=16)
    with pytest.raises(ValueError, match=f'sharing="none" runs at one size, 16 cells, not at {size}'):
        net(torch.zeros(1, length, 4))
    with pytest.raises(ValueError, match=f"one size, 16 cells, not at {min(size, 16) // 2}"):
        net(torch.zeros(2, 16, 4), lengths=[16, min(size, 16) // 2])


# Weights of the released code


def variables(sharing: str = "block", blocks: int = 2) -> dict:
    return official_numpy.random_variables(3, blocks, sharing, 4, official_numpy.np.random.default_rng(0))


@pytest.mark.parametrize("foreign", [{}, {"encoder/layer_0/kernel": [1.0]}, {"var_lengths/embedding": [1.0]}])
def test_official_with_foreign_names(foreign: dict) -> None:
    with pytest.raises(ValueError, match="no variable of a shuffle-exchange network"):
        ShuffleExchange.from_official(foreign)


def test_official_passes_over_what_is_not_the_network() -> None:
    golden = load("net_std_L8_m8_b1_B2").under("var/")
    scoped = {f"var_lengths/{name}:0": array for name, array in golden.items()}
    others = {"var_lengths/embedding": golden["steps_shuffle_exchange/last/g/CvK"], "Variable_1": 3}
    slots = {f"{name.removesuffix(':0')}/RAdam": 0 * array for name, array in scoped.items()}
    expected = ShuffleExchange.from_official(golden).state_dict()
    for name, tensor in ShuffleExchange.from_official({**others, **scoped, **slots}).state_dict().items():
        assert torch.equal(tensor, expected[name])


@pytest.mark.parametrize("name", ["cand1/c/CvB", "cand2/c/CvK", "g/CvK", "reset2/c/CvB"])
def test_official_without_a_variable(name: str) -> None:
    some = variables()
    del some[f"steps_shuffle_exchange/1_reverse/{name}"]
    with pytest.raises(ValueError, match=f"layer '1_reverse' lacks the variable '{name}'"):
        ShuffleExchange.from_official(some)


def test_official_without_a_skip_scale() -> None:
    some = variables()
    del some["steps_shuffle_exchange/1_reverse/residual_scale"]
    with pytest.raises(ValueError, match=r"network of 2 blocks, see units\.1_reverse\.skip_scale"):
        ShuffleExchange.from_official(some)


@pytest.mark.parametrize(
    ("sharing", "layer", "unit"),
    [
        ("block", "0_reverse", "0_reverse"),
        ("block", "last", "last"),
        ("minimal", "1_middle_layer", "1_middle"),
        ("minimal", "0_forward", "0_forward"),
        ("none", "0_reverse_1", "0_reverse_1"),
        ("full", "reverse", "all_reverse"),
    ],
)
def test_official_without_a_layer(sharing: str, layer: str, unit: str) -> None:
    some = {name: array for name, array in variables(sharing).items() if f"/{layer}/" not in name}
    with pytest.raises(ValueError, match=rf"network of 2 blocks, see .*units\.{unit}\."):
        ShuffleExchange.from_official(some, blocks=2)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"b/steps_shuffle_exchange/last/g/CvB": 4}, "of several networks, see 'b/steps_.*: give those of one scope"),
        ({"steps_shuffle_exchange/last/g/CvB:0": 4}, "of several networks, see 'steps_shuffle_exchange/last/g/CvB:0'"),
        ({"steps_shuffle_exchange/last/g/CvB": 6}, r"layer 'last' has 'g/CvB' of shape \[6\], not \[8\]"),
        ({"steps_shuffle_exchange/0_forward/cand1/c/CvB": 6}, r"of shape \[.*of one network all have 6 features"),
        *(
            ({"steps_shuffle_exchange/last/g/CvB": official_numpy.np.full(8, value)}, "must hold finite real numbers")
            for value in (float("nan"), float("inf"), 1j, 1)
        ),
        ({"steps_shuffle_exchange/last/g/CvB": "x"}, "last/g/CvB' is no array but str"),
    ],
)
def test_official_with_odd_arrays(other: dict, message: str) -> None:
    arrays = {name: official_numpy.np.zeros(array) if type(array) is int else array for name, array in other.items()}
    with pytest.raises(ValueError, match=message):
        ShuffleExchange.from_official(variables() | arrays)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({}, "these variables lack 'embedding'"),
        ({"embedding": (5, 6)}, r"have shapes .*\[5, 6\]\], which do not fit 4 features"),
        ({"embedding": (5, 4), "b/output/CvB": (3,)}, "of several models, see 'b/output/CvB'"),
    ],
)
def test_official_model_with_odd_arrays(other: dict, message: str) -> None:
    outside = {"output/CvK": (4, 3), "output/CvB": (3,)} | other
    with pytest.raises(ValueError, match=message):
        SequenceModel.from_official(variables() | {key: official_numpy.np.zeros(sh) for key, sh in outside.items()})


@pytest.mark.parametrize("blocks", [0, 1, 3])
def test_official_with_another_number_of_blocks(blocks: int) -> None:
    with pytest.raises(
        ValueError, match=f"network of {blocks} blocks" if blocks else "blocks must be at least 1, got 0"
    ):
        ShuffleExchange.from_official(variables(), blocks=blocks)


def test_official_with_full_sharing_needs_the_blocks() -> None:
    with pytest.raises(ValueError, match="pass blocks="):
        ShuffleExchange.from_official(variables("full"))
