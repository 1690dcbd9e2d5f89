"""The causal model writes: steps score what the whole pass does, and draws follow the scores."""

from __future__ import annotations

import pytest
import torch

from riffle.models.causal import CausalModel, choose

PROMPTS, LENGTHS = torch.randint(1, 9, (3, 6), generator=torch.Generator().manual_seed(0)), [6, 1, 4]


@pytest.fixture(params=["gated", "residual"])
def model(request: pytest.FixtureRequest) -> CausalModel:
    torch.manual_seed(0)
    model = CausalModel(9, 9, 8, 2, unit=request.param, dtype=torch.float64).eval()
    for parameter in model.network.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return model


def test_the_most_likely_symbols_are_those_of_whole_passes(model: CausalModel) -> None:
    written_BN = model.generate(PROMPTS, 12, LENGTHS, temperature=0)
    for row, (size, written) in enumerate(zip(LENGTHS, written_BN.tolist(), strict=True)):
        text = PROMPTS[row, :size].tolist()
        for symbol in written:
            assert symbol == 1 + int(model(torch.tensor([text]))[0, -1, 1:].argmax())
            text.append(symbol)


def test_a_seed_decides(model: CausalModel) -> None:
    first, again, other = (
        model.generate(PROMPTS, 20, top_p=0.9, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.min() >= 1


def test_draws_have_the_probabilities_of_the_scores() -> None:
    probability = torch.tensor([0.3, 0.4, 0.2, 0.1])  # the first is the blank's
    scores_BC, generator = probability.log().expand(20_000, -1), torch.Generator().manual_seed(0)
    for temperature, top_p, expected in ((1, 1, [0, 4, 2, 1]), (0.5, 1, [0, 16, 4, 1]), (1, 0.6, [0, 4, 2, 0])):
        counts = choose(scores_BC, temperature, top_p, generator).bincount(minlength=4) / 20_000
        torch.testing.assert_close(counts, torch.tensor(expected) / sum(expected), rtol=0, atol=0.02)


def test_mistakes(model: CausalModel) -> None:
    for options, message in (
        ({"temperature": -1.0}, "temperature must be"),
        ({"top_p": 0.0}, "top_p in"),
        ({"lengths": [1, 0, 2]}, "at least one symbol"),
    ):
        with pytest.raises(ValueError, match=message):
            model.generate(PROMPTS, 2, **options)
    with pytest.raises(ValueError, match="count must be at least 1"):
        model.generate(PROMPTS, 0)
    with pytest.raises(ValueError, match="only a model whose outputs are its inputs"):
        CausalModel(9, 5, 8).generate(PROMPTS, 2)
