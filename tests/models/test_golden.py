"""The whole model, its loss and its accuracy are those of the authors' released code."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from nn.golden import Golden, assert_near, load, write_variables

from riffle import SequenceModel
from riffle.train.evaluate import count_correct, symbol_loss

DEFAULT, LAMBADA = "model_default_L16_m12_b1_B4", "model_lambada_L16_m12_b2_B4"
SCOPE = "var_lengths/steps_shuffle_exchange"
TOLERANCE = 1e-5
SMOOTHING = (0.0, 0.1)


def model_of(golden: Golden) -> SequenceModel:
    return SequenceModel.from_official(golden.under("var/")).eval()


def official_gradients(model: SequenceModel) -> dict[str, torch.Tensor]:
    """The gradients of all parameters under the names and in the feature order of the released code."""
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert all(gradient is not None for gradient in gradients.values())
    network = {n.removeprefix("network."): g for n, g in gradients.items() if n.startswith("network.")}
    half = model.network.features // 2
    return {
        **write_variables(network, SCOPE, gradients=True),
        "var_lengths/embedding": gradients["embedding.weight"].roll(half, 1),
        "var_lengths/output/CvK": gradients["output.weight"].roll(half, 1).T,
        "var_lengths/output/CvB": gradients["output.bias"],
    }


def per_item_accuracy(logits_BNC: torch.Tensor, targets_BN: torch.Tensor) -> np.ndarray:
    """The accuracy of every item by itself, NaN where target and output are all blank."""
    counts = [count_correct(logits_BNC[[row]].argmax(dim=-1), targets_BN[[row]]) for row in range(len(targets_BN))]
    with np.errstate(invalid="ignore"):
        return np.array([c.right for c in counts]) / np.array([c.symbols for c in counts])


@pytest.mark.parametrize("name", [DEFAULT, LAMBADA])
def test_arguments_are_read_off_the_variables(name: str) -> None:
    golden = load(name)
    model, meta = model_of(golden), golden.meta
    assert (model.embedding.num_embeddings, model.output.out_features) == (meta["n_input"], meta["n_output"])
    assert (model.network.features, model.network.blocks) == (meta["maps"], meta["blocks"])
    assert (model.network.sharing, model.network.unit) == ("block", "gated")


@pytest.mark.parametrize("grad", [True, False], ids=["shuffled", "in place"])
@pytest.mark.parametrize("name", [DEFAULT, LAMBADA])
def test_scores(name: str, grad: bool) -> None:
    golden = load(name)
    with torch.set_grad_enabled(grad):
        scores_BNC = model_of(golden)(torch.from_numpy(golden["x"]))
    assert_near("scores", scores_BNC, golden["prediction"], TOLERANCE)
    if name == DEFAULT:
        assert (scores_BNC.argmax(dim=-1).numpy() == golden["result"]).all()
    else:  # this model points: its result is the position with the highest score of class 2
        assert (scores_BNC[:, :, 2].argmax(dim=-1).numpy() == golden["result"]).all()


@pytest.mark.parametrize("smoothing", SMOOTHING)
def test_loss_and_every_gradient(smoothing: float) -> None:
    golden = load(DEFAULT)
    model = model_of(golden)
    loss_B = symbol_loss(model(torch.from_numpy(golden["x"])), torch.from_numpy(golden["y"]), smoothing).mean(dim=1)
    assert_near("loss per item", loss_B, golden[f"per_item_cost_ls{smoothing:g}"], TOLERANCE)
    assert_near("loss", loss_B.mean(), golden[f"cost_ls{smoothing:g}"], TOLERANCE)

    loss_B.mean().backward()
    expected, actual = golden.under(f"grad_ls{smoothing:g}/"), official_gradients(model)
    assert actual.keys() == expected.keys()
    for variable, gradient in actual.items():
        assert_near(variable, gradient, expected[variable], TOLERANCE)


def test_accuracy() -> None:
    golden = load(DEFAULT)
    targets_BN = torch.from_numpy(golden["y"])
    accuracy_B = per_item_accuracy(model_of(golden)(torch.from_numpy(golden["x"])), targets_BN)
    assert_near("accuracy", accuracy_B.mean(), golden["accuracy"], TOLERANCE)


@pytest.mark.parametrize("smoothing", SMOOTHING)
def test_cost_of_given_scores(smoothing: float) -> None:
    golden = load("cost_default")
    logits_BNC = torch.from_numpy(golden["logits"]).requires_grad_()
    loss_B = symbol_loss(logits_BNC, torch.from_numpy(golden["y"]), smoothing).mean(dim=1)
    loss_B.mean().backward()
    assert_near("loss per item", loss_B, golden[f"per_item_cost_ls{smoothing:g}"], TOLERANCE)
    assert_near("loss", loss_B.mean(), golden[f"cost_ls{smoothing:g}"], TOLERANCE)
    assert logits_BNC.grad is not None
    assert_near("gradient", logits_BNC.grad, golden[f"cost_grad_logits_ls{smoothing:g}"], TOLERANCE)


def test_accuracy_of_given_scores() -> None:
    golden = load("cost_default")
    logits_BNC, targets_BN = torch.from_numpy(golden["logits"]), torch.from_numpy(golden["y"])
    assert (logits_BNC.argmax(dim=-1).numpy() == golden["result"]).all()
    accuracy_B, expected_B = per_item_accuracy(logits_BNC, targets_BN), golden["per_item_accuracy"]
    blank_B = np.isnan(expected_B)
    assert blank_B.tolist() == [False] * 4 + [True, False], "the fifth item is blank in target and output"
    assert (np.isnan(accuracy_B) == blank_B).all()
    assert_near("accuracy per item", accuracy_B[~blank_B], expected_B[~blank_B], TOLERANCE)
    assert_near("accuracy", accuracy_B[~blank_B].mean(), golden["accuracy_without_item4"], TOLERANCE)


def test_pooled_counts_of_given_scores() -> None:
    golden = load("cost_default")
    counts = count_correct(torch.from_numpy(golden["logits"]).argmax(dim=-1), torch.from_numpy(golden["y"]))
    right, symbols, right_sequences, sequences = (int(number) for number in counts)
    errors, total, wrong_sequences = golden["data_utils_accuracy_errors_total_seqerrors"]
    assert (symbols - right, symbols, sequences - right_sequences) == (errors, total, wrong_sequences)
    assert sequences == len(golden["y"])
