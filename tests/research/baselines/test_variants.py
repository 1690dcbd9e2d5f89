"""The variants of the paper's network are what their names say."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from research.baselines.configs import VariantConfig
from research.baselines.variants import Mirrored
from riffle.models.build import build
from riffle.shuffle import SHUFFLES
from riffle.tasks import TASKS


@pytest.mark.parametrize("blocks", [1, 2])
def test_a_mirrored_network_shuffles_the_other_way(blocks: int) -> None:
    network, state_BND, inputs = Mirrored(8, blocks), torch.randn(2, 16, 8), []
    expected = network(state_BND)
    for layer in network.layers(4):
        inputs.append(state_BND)
        switched_BND = network[layer.unit](state_BND, None if layer.skip is None else inputs[layer.skip])
        state_BND = SHUFFLES[-layer.shuffle](switched_BND)
    assert torch.equal(state_BND, expected)


def test_every_variant_has_the_parameters_of_its_sentence() -> None:
    def parameters(**options: Any) -> int:
        model = build(VariantConfig(features=8, dropout=0.0, **options), TASKS["sort"])
        assert model(torch.ones(2, 16, dtype=torch.long)).shape == (2, 16, 12)
        return sum(parameter.numel() for parameter in model.network.parameters())

    gated = parameters(variant="mirrored")
    assert parameters(variant="one-reset") == gated - 3 * (16 * 16 + 16), "three units, each without a reset gate"
    assert parameters(variant="unshared", length=16) == gated // 3 * 7, "a unit for every layer"
    assert parameters(variant="two-relu") == 3 * (16 * 32 + 32 + 32 * 16 + 16)
