"""The encoder: symbols or numbers in, an answer of each cell or of each row out, on padded rows as on rows alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from riffle import Encoder, SequenceModel, collate

INPUTS: list[dict[str, Any]] = [{"symbols": 7}, {"symbols": 7, "blank": 0}, {"inputs": 3}]
POOLS = [None, "first", "mean", "attention"]


def batch(options: dict[str, Any], *shape: int) -> Tensor:
    return torch.randint(7, shape) if "symbols" in options else 50 + 1000 * torch.randn(*shape, 3)


@pytest.mark.parametrize("pool", POOLS, ids=str)
@pytest.mark.parametrize("options", INPUTS, ids=str)
def test_an_answer_depends_on_its_row_alone(options: dict[str, Any], pool: Any) -> None:
    model = Encoder(8, 2, outputs=2, pool=pool, **options).double()
    x_BN, sizes = batch(options, 5, 9), [9, 1, 4, 0, 6]
    x_BN = x_BN if "symbols" in options else x_BN.double()
    model(x_BN, sizes).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())
    model.eval()
    together = model(x_BN, lengths=sizes)
    assert together.shape == ((5, 2) if pool else (5, 9, 2))
    for row, size in enumerate(sizes):
        if size:
            answer = together[row] if pool else together[row, :size]
            torch.testing.assert_close(answer, model(x_BN[[row], :size])[0], rtol=0, atol=1e-12)
        assert pool or not together[row, size:].any()
    assert torch.equal(together, model(x_BN, key_padding_mask=torch.arange(9) >= torch.tensor(sizes)[:, None]))


def test_a_model_of_a_task_is_an_encoder() -> None:
    model, encoder = SequenceModel(7, 5, 8, 2).eval(), Encoder(8, 2, symbols=7, outputs=5, blank=0).eval()
    assert encoder.state_dict().keys() == model.state_dict().keys()
    assert model.cells().abs().max() < 0.3 < encoder.cells().std()
    for each in (model, encoder):
        x_BN = batch(INPUTS[0], 2, 5)
        padded_BN = torch.nn.functional.pad(x_BN, (0, 3))
        torch.testing.assert_close(each(x_BN), each(padded_BN)[:, :5], msg="rows are filled up with blanks")


@pytest.mark.parametrize(("scale", "offset"), [(1e-6, 0.0), (1e3, -2e4)])
def test_inputs_of_any_scale(scale: float, offset: float) -> None:
    """In training and in use the same cells enter the network; what pads rows is not seen."""
    x_BNF, sizes, cells = torch.randn(4, 50, 3), torch.tensor([50, 20, 1, 30]), []
    padded_BN1 = (torch.arange(50) >= sizes[:, None]).unsqueeze(-1)
    for factor, summand in ((1.0, 0.0), (scale, offset)):
        torch.manual_seed(1)
        model = Encoder(8, inputs=3)
        inputs_BNF = (factor * x_BNF + summand).masked_fill(padded_BN1, 1e9)
        for rows in (slice(2), slice(2, 4)):
            model(inputs_BNF[rows], sizes[rows])
        cells.append(model.eval().embed(inputs_BNF).masked_fill(padded_BN1, 0))
    torch.testing.assert_close(*cells, rtol=0, atol=1e-3)
    standardised_RF = model.standardise(inputs_BNF)[~padded_BN1[..., 0]]
    torch.testing.assert_close(standardised_RF.mean(0), torch.zeros(3), rtol=0, atol=1e-3)
    torch.testing.assert_close(standardised_RF.std(0, correction=0), torch.ones(3), rtol=0, atol=1e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "give one of symbols=, the size of the alphabet, and inputs="),
        ({"symbols": 7, "inputs": 3}, "give one of symbols="),
        ({"inputs": 3, "blank": 0}, "blank= names one of the symbols"),
        *(({"symbols": 7, "blank": blank}, f"blank must be a symbol below 7, got {blank}") for blank in (7, -1)),
        *(({what: size}, f"{what} must be .*got {size}") for what in ("symbols", "inputs") for size in (0, 2.5)),
        ({"symbols": 7, "outputs": -1}, "outputs must be at least 1, got -1"),
        ({"inputs": 3, "pool": "max"}, "unknown pool 'max'; choose one of first, mean, attention, or None"),
    ],
)
def test_what_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Encoder(8, **arguments)


def test_wrong_inputs() -> None:
    with pytest.raises(ValueError, match=r"\[batch, length, 3\], got shape \(2, 5\)"):
        Encoder(8, inputs=3)(torch.zeros(2, 5))
    with pytest.raises(ValueError, match=r"lengths must lie in 0\.\.5"):
        Encoder(8, inputs=3)(torch.zeros(2, 5, 3), [6, 1])
    with pytest.raises(ValueError, match=r"the input is torch\.float64, the model torch\.float32"):
        Encoder(8, inputs=3)(torch.zeros(2, 5, 3, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"symbols must be integers, got torch\.float32"):
        Encoder(8, symbols=3)(torch.zeros(2, 5))
    wrong: list[list[Any]] = [[], [torch.zeros(3, 8), torch.zeros(4, 8)], [(torch.zeros(3), 1), (torch.zeros(3),)]]
    for rows in wrong:
        with pytest.raises(ValueError, match="each row must be a tuple, alike in number"):
            collate(rows)
    with pytest.raises(ValueError, match="give one of them"):
        Encoder(8, inputs=3)(torch.zeros(1, 5, 3), [5], torch.zeros(1, 5, dtype=torch.bool))


def test_collate() -> None:
    rows = [(torch.randn(size, 3), torch.arange(size), torch.randn(size), size % 2) for size in (4, 2)]
    inputs_BNF, tags_BN, values_BN, classes_B, lengths = collate(rows)
    assert lengths == [4, 2]
    assert torch.equal(inputs_BNF[1, :2], rows[1][0])
    assert not inputs_BNF[1, 2:].any()
    assert tags_BN.tolist() == [[0, 1, 2, 3], [0, 1, -100, -100]]
    assert values_BN[1, 2:].tolist() == [0, 0]
    assert classes_B.tolist() == [0, 0]
