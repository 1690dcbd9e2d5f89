"""benchmarks/fp8.py: that it rounds what it says and nothing else, and counts right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmark_scripts import load_script

from riffle import ShuffleExchange

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def fp8() -> Any:
    return load_script("fp8")


@pytest.fixture(params=["gated", "swap-gate", "no-swap", "residual"])
def network(request: pytest.FixtureRequest) -> ShuffleExchange:
    torch.manual_seed(0)
    return ShuffleExchange(8, blocks=2, unit=request.param).eval()


@torch.no_grad()
def test_without_rounding_it_is_the_definition(fp8: Any, network: ShuffleExchange) -> None:
    x_BND = torch.rand(3, 32, 8, dtype=torch.float64) * 2 - 1
    expected = network.double()(x_BND)
    assert torch.allclose(fp8.rounded_model(network, fp8.VARIANTS["float32"])(x_BND), expected, atol=1e-12)


@torch.no_grad()
def test_every_variant_rounds_more(fp8: Any, network: ShuffleExchange) -> None:
    x_BND = torch.rand(3, 32, 8) * 2 - 1
    expected, before = network(x_BND), {name: value.clone() for name, value in network.state_dict().items()}
    errors = {
        name: (fp8.rounded_model(network, variant)(x_BND) - expected).norm().item()
        for name, variant in fp8.VARIANTS.items()
    }
    assert errors["float32"] < 0.01 * errors["bfloat16"]
    assert errors["bfloat16"] < min(error for name, error in errors.items() if name.startswith("e4m3"))
    assert errors["bfloat16"] < 0.125 * errors["e4m3"], "it has 16 times as many steps"
    assert max(errors["e4m3, gates only"], errors["e4m3, weights only"]) < errors["e4m3"]
    assert errors["e4m3, gates only"] != errors["e4m3, weights only"]
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items()), "the original changed"


def test_rounded_to_three_bits_after_the_first(fp8: Any) -> None:
    x = torch.randn(64, 256, generator=torch.Generator().manual_seed(0))
    for fine in (False, True):
        y = fp8.rounded(x, fp8.E4M3, fine=fine)
        largest = x.abs().amax(dim=-1, keepdim=True) if fine else x.abs().max()
        normal = x.abs() > largest * 2**-6 / 448
        assert ((y - x).abs() <= x.abs() / 16 * (1 + 1e-6))[normal].all()
        assert ((y - x).abs() <= largest * 2**-10 / 448 * (1 + 1e-6))[~normal].all()
    assert torch.equal(fp8.rounded(torch.zeros(2, 3), fp8.E4M3, fine=True), torch.zeros(2, 3))


def test_what_is_lost_and_how_exactly(fp8: Any) -> None:
    base = fp8.Counts(torch.tensor([4, 4, 4, 4]), torch.tensor([4, 4, 4, 4]))
    found = fp8.Counts(torch.tensor([4, 3, 4, 3]), torch.tensor([4, 4, 4, 4]))
    assert fp8.compare(base, base) == {"percent": 100.0, "lost": 0.0, "error": 0.0}
    # Of four rows two lose a quarter: 12.5 points, with a standard deviation of 12.5 among rows.
    assert fp8.compare(found, base) == {"percent": 87.5, "lost": 12.5, "error": 6.25}


def test_symbols_are_counted_where_target_or_output_is_one(fp8: Any) -> None:
    symbols, sequences = fp8.count_rows(torch.tensor([[1, 2, 0, 0], [1, 2, 3, 0]]), torch.tensor([[1, 1, 0, 0]] * 2))
    assert symbols.right.tolist() == [1, 1]
    assert symbols.of.tolist() == [2, 3]
    assert sequences.right.tolist() == [0, 0]


def test_the_page_has_the_table_of_the_results(fp8: Any) -> None:
    record = json.loads((ROOT / "research" / "bench" / "results" / "fp8-accuracy.json").read_text())
    page = (ROOT / "docs" / "kernels.md").read_text(encoding="utf-8")
    assert fp8.table(record) in page
    # What the page says of the rest: nothing at 64 and nothing in sums.
    for name, part in record.items():
        for score in part["scores"]:
            if name == "add" or (score.get("length") == 64 and name in ("sort", "rotate")):
                assert score["symbols"]["percent"] == score["sequences"]["percent"] == 100
