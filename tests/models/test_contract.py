"""What every model must do that a run can train, and how models are saved and loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from riffle import SequenceModel
from riffle.config import MODELS, ModelConfig
from riffle.models.base import SymbolModel
from riffle.models.build import build, symbol_models
from riffle.tasks import get_task

TASK = get_task("multiply")
OWN: dict[str, dict[str, Any]] = {
    "shuffle-exchange": {"blocks": 2},
    "causal": {"blocks": 2},
    "universal-transformer": {"halting": True},
}
LENGTHS = (1, 2, 3, 4, 5, 8, 13, 16, 17, 33)


def make(kind: str) -> SymbolModel:
    return build(MODELS[kind].config(kind=kind, features=8, **OWN.get(kind, {})), TASK)


def symbols(batch: int, length: int) -> Tensor:
    return torch.randint(0, TASK.symbols, (batch, length))


@pytest.fixture(params=symbol_models())
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize("length", LENGTHS)
def test_any_length(kind: str, length: int) -> None:
    model = make(kind)
    for mode in (True, False):
        scores_BNC = model.train(mode)(symbols(3, length))
        assert scores_BNC.shape == (3, length, TASK.classes)
        assert scores_BNC.dtype == torch.float32
        assert scores_BNC.isfinite().all()


def test_what_is_no_batch_of_symbols_is_an_error(kind: str) -> None:
    model = make(kind)
    with pytest.raises(ValueError, match=r"\[batch, length\] symbols, got shape \(3,\)"):
        model(torch.tensor([1, 2, 3]))
    with pytest.raises(ValueError, match=r"\[batch, length\] symbols, got shape \(3,\)"):
        model.forward_batches([symbols(2, 4), torch.tensor([1, 2, 3])])
    with pytest.raises(ValueError, match="at least 1"):
        model(symbols(2, 0))


def test_a_row_of_length_zero_has_scores_of_zero(kind: str) -> None:
    model, symbols_BN = make(kind).eval(), symbols(3, 4)
    scores_BNC = model(symbols_BN, lengths=[0, 4, 0])
    torch.testing.assert_close(scores_BNC[1:2], model(symbols_BN[1:2]))
    assert not scores_BNC[::2].any()


def test_one_set_of_weights_tells_lengths_apart(kind: str) -> None:
    model = make(kind).eval()
    long_BN = symbols(2, 16)
    same = torch.allclose(model(long_BN)[:, :8], model(long_BN[:, :8]), atol=1e-6)
    assert same == MODELS[kind].causal, "the second half must matter, but to no cell before it"


@pytest.mark.parametrize("grad", [True, False])
def test_a_row_is_independent_of_its_batch_mates(kind: str, grad: bool) -> None:
    model = make(kind).eval()
    sizes = [1, 5, 16, 2, 11, 5]
    rows_BN = symbols(len(sizes), 20)  # what follows a row's end is noise, which must not matter either
    with torch.set_grad_enabled(grad):
        together = model(rows_BN, lengths=sizes)
        assert together.shape == (len(sizes), 20, TASK.classes)
        for row, size in enumerate(sizes):
            alone = model(rows_BN[[row], :size])
            torch.testing.assert_close(together[[row], :size], alone, rtol=1e-5, atol=1e-6)
            assert (together[row, size:] == 0).all()
        reordered = model(rows_BN.flip(0), lengths=torch.tensor(sizes[::-1]))
        torch.testing.assert_close(reordered.flip(0), together, rtol=1e-5, atol=1e-6)


def test_gradients_reach_every_parameter(kind: str) -> None:
    model = make(kind).train()
    scores_BNC = model(torch.arange(TASK.symbols).repeat(4, 2))
    (scores_BNC * torch.randn_like(scores_BNC)).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert (parameter.grad != 0).any(), name


def test_evaluation_is_deterministic_and_dropout_is_not(kind: str) -> None:
    model, inputs_BN = make(kind), symbols(2, 16)
    assert torch.equal(model.eval()(inputs_BN), model(inputs_BN))
    assert not torch.equal(model.train()(inputs_BN), model(inputs_BN))


def test_hub_folder_round_trip(kind: str, tmp_path: Path) -> None:
    model = make(kind)
    model.save_pretrained(tmp_path)
    loading = next(line for line in (tmp_path / "README.md").read_text().splitlines() if "import" in line)
    names: dict[str, Any] = {}
    exec(loading.strip(), names)
    assert names[type(model).__name__] is type(model), "the card's way to load it"
    files = {path.name for path in tmp_path.iterdir()}
    assert {"config.json", "model.safetensors"} <= files <= {"config.json", "model.safetensors", "README.md"}
    loaded = type(model).from_pretrained(tmp_path)
    assert not loaded.training
    inputs_BN = symbols(2, 16)
    assert torch.equal(loaded(inputs_BN), model.eval()(inputs_BN))


def test_a_kind_has_a_configuration_of_its_own() -> None:
    with pytest.raises(ValueError, match="unknown model 'transfomer'; did you mean 'transformer'"):
        build(ModelConfig(kind="transfomer"), TASK)
    with pytest.raises(ValueError, match="'dngpu' is configured by NeuralGPUConfig, not by ModelConfig"):
        build(ModelConfig(kind="dngpu"), TASK)


def test_initial_embedding_and_output() -> None:
    model = SequenceModel(500, 40, 64)
    assert isinstance(model.output, nn.Linear)
    assert 0.0099 < model.embedding.weight.abs().max() <= 0.01
    assert model.output.weight.abs().max() <= (6 / (64 + 40)) ** 0.5
    assert (model.output.bias == 0).all()
