"""What is refused, and that the message names the value and the remedy."""

from __future__ import annotations

import pytest
import torch

from riffle import ShuffleExchange
from riffle.kernels import BACKENDS
from riffle.nn import UNITS
from riffle.shuffle import SHARINGS

from . import official_numpy
from .golden import load


@pytest.mark.parametrize("features", [0, 1, 7, -2])
def test_odd_features(features: int) -> None:
    with pytest.raises(ValueError, match=f"features must be even.* got {features}"):
        ShuffleExchange(features)


@pytest.mark.parametrize("blocks", [0, -1])
def test_no_blocks(blocks: int) -> None:
    with pytest.raises(ValueError, match=f"blocks must be at least 1, got {blocks}"):
        ShuffleExchange(4, blocks)


@pytest.mark.parametrize(
    ("what", "choices"),
    [("sharing", SHARINGS), ("unit", UNITS), ("backend", BACKENDS), ("order", ("paper", "official"))],
)
def test_an_unknown_choice_lists_the_choices(what: str, choices: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=f"unknown {what} 'other'.*{', '.join(choices)}"):
        ShuffleExchange(4, **{what: "other"})


@pytest.mark.parametrize("arguments", [{"dropout": 1.0}, {"dropout": -0.1}, {"noise": -1.0}])
def test_rates_out_of_range(arguments: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"dropout must lie in \[0, 1\) and noise be at least 0"):
        ShuffleExchange(4, **arguments)


def test_dropout_and_noise() -> None:
    with pytest.raises(ValueError, match="noise replaces dropout"):
        ShuffleExchange(4, dropout=0.1, noise=0.001)


def test_no_sharing_needs_a_length() -> None:
    with pytest.raises(ValueError, match=r'sharing="none" .* needs length='):
        ShuffleExchange(4, sharing="none")


def test_a_length_needs_no_sharing() -> None:
    with pytest.raises(ValueError, match="every other sharing runs any length"):
        ShuffleExchange(4, length=16)


@pytest.mark.parametrize(("length", "size"), [(8, 8), (3, 4), (17, 32)])
def test_no_sharing_at_another_length(length: int, size: int) -> None:
    with pytest.raises(ValueError, match=f'sharing="none" runs at one size, 16 cells, not at {size}'):
        ShuffleExchange(4, sharing="none", length=16)(torch.zeros(1, length, 4))


@pytest.mark.parametrize("shape", [(4,), (8, 4), (1, 2, 8, 4)])
def test_wrong_rank(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"must be \[batch, length, features\], got shape " + rf"\({shape[0]},"):
        ShuffleExchange(4)(torch.zeros(shape))


def test_wrong_features() -> None:
    with pytest.raises(ValueError, match="4 features per cell, the input has 6"):
        ShuffleExchange(4)(torch.zeros(1, 8, 6))


def test_no_cells() -> None:
    with pytest.raises(ValueError, match="no cells"):
        ShuffleExchange(4)(torch.zeros(1, 0, 4))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64])
def test_another_dtype(dtype: torch.dtype) -> None:
    with pytest.raises(ValueError, match=rf"the input is {dtype}, the network torch.float32: convert one"):
        ShuffleExchange(4)(torch.zeros(1, 8, 4, dtype=dtype))


def test_another_device() -> None:
    with pytest.raises(ValueError, match="the input is on meta, the network on cpu: move one"):
        ShuffleExchange(4)(torch.zeros(1, 8, 4, device="meta"))


@pytest.mark.parametrize("lengths", [[0, 8], [8, 9], [-1, 3]])
def test_lengths_out_of_range(lengths: list[int]) -> None:
    wrong = next(length for length in lengths if not 1 <= length <= 8)
    with pytest.raises(ValueError, match=rf"lengths must lie in 1\.\.8, the length of the input, got {wrong}"):
        ShuffleExchange(4)(torch.zeros(2, 8, 4), lengths=lengths)


@pytest.mark.parametrize("lengths", [[8], [8, 8, 8], [[8, 8]], 8])
def test_wrong_number_of_lengths(lengths: object) -> None:
    with pytest.raises(ValueError, match="one length per row, 2 of them, got shape"):
        ShuffleExchange(4)(torch.zeros(2, 8, 4), lengths=lengths)


@pytest.mark.parametrize("lengths", [[8.0, 3.0], torch.tensor([True, True])])
def test_lengths_that_are_no_integers(lengths: object) -> None:
    with pytest.raises(ValueError, match=r"lengths must be integers, got torch\.(float32|bool)"):
        ShuffleExchange(4)(torch.zeros(2, 8, 4), lengths=lengths)


def test_no_sharing_with_a_row_of_another_size() -> None:
    net = ShuffleExchange(4, sharing="none", length=8)
    with pytest.raises(ValueError, match="one size, 8 cells, not at 4"):
        net(torch.zeros(2, 8, 4), lengths=[8, 3])


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


@pytest.mark.parametrize("blocks", [1, 3])
def test_official_with_another_number_of_blocks(blocks: int) -> None:
    with pytest.raises(ValueError, match=f"network of {blocks} blocks"):
        ShuffleExchange.from_official(variables(), blocks=blocks)


def test_official_with_full_sharing_needs_the_blocks() -> None:
    with pytest.raises(ValueError, match="pass blocks="):
        ShuffleExchange.from_official(variables("full"))
