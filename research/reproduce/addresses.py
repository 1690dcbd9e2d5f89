"""Whether cells can learn their addresses from one marked cell, and after how many layers a linear probe reads them.

    python -m research.reproduce.addresses

A network of one block says at every cell how far it is from the marked one. That reaches cells that differ from it in
address bit 0 in the first layer, in bit 1 in the second, and all in the first log2(n): the paper's binary tree of
paths. So the probe reads the bits in which a cell's address differs from the marked cell's.
"""

# B = batch, N = cells, D = features per cell
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from research.files import write_result
from riffle.environment import environment
from riffle.models.sequence import SequenceModel
from riffle.shuffle import SHUFFLES, bits

CELLS, FEATURES, SYMBOLS, SEEDS = 64, 48, 11, 3
STEPS, BATCH, RATE = 500, 32, 0.004
PATH = Path("research/results/addresses.json")


def sample(batch: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Random symbols with a marked cell each, the place of that cell, and how far each is from it, around the end."""
    x_BN = torch.randint(1, SYMBOLS + 1, (batch, CELLS), generator=generator)
    marked_B1 = torch.randint(CELLS, (batch, 1), generator=generator)
    return x_BN.scatter(1, marked_B1, SYMBOLS + 1), marked_B1, (torch.arange(CELLS) - marked_B1) % CELLS


def train(model: SequenceModel, seed: int, steps: int) -> None:
    """Train a network to say the distances."""
    generator, optimizer = torch.Generator().manual_seed(seed), torch.optim.AdamW(model.parameters(), RATE)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
    for _ in range(steps):
        x_BN, _, distances_BN = sample(BATCH, generator)
        optimizer.zero_grad()
        F.cross_entropy(model(x_BN).flatten(0, 1), distances_BN.flatten()).backward()
        optimizer.step()
        schedule.step()


def states(model: SequenceModel, x_BN: Tensor) -> Iterator[Tensor]:
    """The cells before the first layer and after each, at the addresses where they started."""
    x_BND, home_N = F.embedding(x_BN, model.cells()), torch.arange(CELLS)
    yield x_BND
    for layer in model.network.layers(bits(CELLS)):
        x_BND = SHUFFLES[layer.shuffle](model.network[layer.unit](x_BND))
        home_N = SHUFFLES[layer.shuffle](home_N[None, :, None])[0, :, 0]
        yield x_BND[:, home_N.argsort()]


@torch.no_grad()
def probe(model: SequenceModel, sequences: int = 256) -> list[float]:
    """By layer, the share of bits in which addresses differ from the marked cell's that least squares reads."""
    x_BN, marked_B1, _ = sample(2 * sequences, torch.Generator().manual_seed(1_000_003))
    different = ((torch.arange(CELLS) ^ marked_B1)[..., None] >> torch.arange(bits(CELLS))) & 1
    fitted, tested = (2 * different.double() - 1).chunk(2)
    shares = []
    for state_BND in states(model, x_BN):
        rows, others = F.pad(state_BND, (0, 1), value=1.0).double().chunk(2)
        weights = torch.linalg.lstsq(rows.flatten(0, 1), fitted.flatten(0, 1), driver="gelsd").solution
        shares.append(round((others @ weights * tested > 0).double().mean().item(), 4))
    return shares


def measure(seed: int, steps: int = STEPS) -> dict[str, Any]:
    """The probe before and after training, and the share of cells at which the network says the distance."""
    torch.manual_seed(seed)
    model = SequenceModel(SYMBOLS + 2, CELLS, FEATURES)
    untrained = probe(model)
    train(model, seed, steps)
    x_BN, _, distances_BN = sample(256, torch.Generator().manual_seed(1_000_003))
    with torch.no_grad():
        said = (model(x_BN).argmax(-1) == distances_BN).double().mean().item()
    return {"seed": seed, "said": round(said, 4), "by_layer": probe(model), "untrained": untrained}


if __name__ == "__main__":
    facts = environment(torch.device("cpu"))
    setup = {"cells": CELLS, "features": FEATURES, "steps": STEPS, "batch": BATCH}
    origin = {
        "command": "python -m research.reproduce.addresses",
        "commit": facts["commit"],
        "versions": facts["versions"],
    }
    write_result(PATH, {**origin, **setup, "runs": [measure(seed) for seed in range(SEEDS)]})
