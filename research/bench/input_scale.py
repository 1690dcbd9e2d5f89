"""Training over the scale of a network's inputs: small networks, all replicas in one vmapped step, LSTMs beside them.

    python -m research.bench.input_scale --out research/bench/results/input-scale.json

A replica has weights and data of its own; there is one for each of :data:`SCALES` and seed.
"""

# R = replicas, B = batch, N = cells, C = input channels (one-hot for symbols), D = features per cell
from __future__ import annotations

import argparse
import copy
import sys
import time
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn import functional as F

from research.files import write_result
from riffle import ShuffleExchange
from riffle.environment import environment
from riffle.kernels.graphs import capture
from riffle.models.sequence import EMBEDDING_SCALE

BATCH, FEATURES, BLOCKS, TESTED, CHECKS, NOISE, NOT_ASKED = 16, 32, 2, 128, 5, 1.5, -100
SCALES = {"0.3": 0.3, "1": 1.0, "3": 3.0, "10": 10.0, "tanh(0.3)": 0.3, "tanh(1)": 1.0}
"""Standard deviations of the cells' features before training, and of e where they are the tanh of 30 e."""
LSTMS = {"lstm": {"hidden_size": 128}, "bilstm": {"hidden_size": 86, "bidirectional": True}}
"""With as many weights as the networks."""


def reverse(rows: int, cells: int) -> tuple[Tensor, Tensor]:
    """Reverse symbols of 11, from more than half as many as there are cells; blanks follow."""
    x_BN, cell_N = torch.randint(1, 12, (rows, cells)), torch.arange(cells)
    length_B1 = torch.randint(cells // 2 + 1, cells + 1, (rows, 1))
    inside_BN = cell_N < length_B1
    targets_BN = x_BN.gather(1, (length_B1 - 1 - cell_N).clamp(0)).where(inside_BN, NOT_ASKED)
    return F.one_hot(x_BN * inside_BN, 12).float(), targets_BN


def events(rows: int, cells: int) -> tuple[Tensor, Tensor]:
    """Label events of four shapes, eight cells long, in four channels of noise; 0 is no event."""
    shapes = torch.randn(5, 8, 4, generator=torch.Generator(torch.get_default_device()).manual_seed(0))
    kind_BN, start_BN = (torch.randint(most, (rows, cells // 16)).repeat_interleave(16, 1) for most in (5, 9))
    at_BN = torch.arange(cells) % 16 - start_BN
    kind_BN = torch.where((at_BN >= 0) & (at_BN < 8), kind_BN, 0)
    signal_BNC = torch.where((kind_BN > 0)[..., None], shapes[kind_BN, at_BN.clamp(0, 7)], 0.0)
    return (signal_BNC / NOISE + torch.randn(rows, cells, 4)) / 4**0.5, kind_BN


def match(rows: int, cells: int) -> tuple[Tensor, Tensor]:
    """Mark the cells that hold the symbol of the first, one of eight."""
    x_BN = torch.randint(8, (rows, cells))
    return F.one_hot(x_BN, 8).float(), (x_BN == x_BN[:, :1]).long()


TASKS: dict[str, Callable[[int, int], tuple[Tensor, Tensor]]] = {"reverse": reverse, "events": events, "match": match}


class Labeller(nn.Module):
    """Cells of a scale, a network, a class for every cell."""

    def __init__(self, unit: str, scale: str, channels: int, classes: int) -> None:
        super().__init__()
        factor = EMBEDDING_SCALE if scale.startswith("tanh") else 1.0
        self.first = nn.Parameter(torch.randn(channels, FEATURES) * SCALES[scale] / factor)
        self.tanh = nn.Buffer(torch.tensor(scale.startswith("tanh")))
        width = FEATURES
        if unit in LSTMS:
            self.network: nn.Module = nn.LSTM(FEATURES, batch_first=True, **LSTMS[unit])
            width = LSTMS[unit]["hidden_size"] * (1 + ("bidirectional" in LSTMS[unit]))
        else:
            self.network = ShuffleExchange(FEATURES, BLOCKS, unit=unit, backend="reference")
        self.output = nn.Linear(width, classes)

    def forward(self, inputs_BNC: Tensor) -> Tensor:
        cells_BND = inputs_BNC @ self.first
        y = self.network(torch.where(self.tanh, torch.tanh(EMBEDDING_SCALE * cells_BND), cells_BND))
        return self.output(y[0] if isinstance(y, tuple) else y)


def train(
    unit: str, task: str, cells: int, rate: float, steps: int, scales: Sequence[str], seeds: int
) -> dict[str, Any]:
    """Train replicas of every scale and seed; the accuracy of each, and the means after each part of the training."""
    inputs_BNC, targets_BN = TASKS[task](1024, cells)
    models = []
    for scale, seed in product(scales, range(seeds)):
        torch.manual_seed(seed)
        models.append(Labeller(unit, scale, inputs_BNC.shape[-1], int(targets_BN.max()) + 1))
    if unit in LSTMS:
        parameters = [parameter for model in models for parameter in model.parameters()]

        def forward(inputs_RBNC: Tensor) -> Tensor:
            return torch.stack([model(x_BNC) for model, x_BNC in zip(models, inputs_RBNC, strict=True)])

    else:
        stacked, buffers = stack_module_state(models)
        parameters, shape = list(stacked.values()), copy.deepcopy(models[0]).to("meta")

        def forward(inputs_RBNC: Tensor) -> Tensor:
            return vmap(lambda *state_x: functional_call(shape, state_x[:2], state_x[2]))(stacked, buffers, inputs_RBNC)

    def draw() -> list[Tensor]:
        return [
            part.contiguous().unflatten(0, (len(models), BATCH)) for part in TASKS[task](len(models) * BATCH, cells)
        ]

    inputs_RBNC, targets_RBN = draw()
    optimizer = torch.optim.AdamW(parameters, lr=rate, fused=True, capturable=inputs_RBNC.is_cuda)

    def step() -> None:
        optimizer.zero_grad()
        scores_RBNK = forward(inputs_RBNC)
        losses = F.cross_entropy(scores_RBNK.flatten(0, 2), targets_RBN.flatten(), reduction="none")
        (losses.view(len(models), -1).sum(1) / (targets_RBN != NOT_ASKED).sum((1, 2))).sum().backward()
        optimizer.step()

    start = time.monotonic()
    run = capture(step)[0].replay if inputs_RBNC.is_cuda and unit not in LSTMS else step
    accuracy: list[list[float]] = []
    for done in range(1, steps + 1):
        for static, new in zip((inputs_RBNC, targets_RBN), draw(), strict=True):
            static.copy_(new)
        run()
        if done % (steps // CHECKS) == 0:
            counts = torch.zeros(2, len(models))
            for _ in range(TESTED // BATCH):
                test_RBNC, right_RBN = draw()
                hits_RBN = forward(test_RBNC).argmax(-1) == right_RBN
                counts += torch.stack((hits_RBN.sum((1, 2)), (right_RBN != NOT_ASKED).sum((1, 2))))
            accuracy.append((counts[0] / counts[1]).tolist())
    at = {scale: slice(number * seeds, (number + 1) * seeds) for number, scale in enumerate(scales)}
    return {
        "task": task,
        "unit": unit,
        "cells": cells,
        "rate": rate,
        "steps": steps,
        "weights": sum(parameter.numel() for parameter in models[0].network.parameters()),
        "seconds": round(time.monotonic() - start, 1),
        "accuracy": {scale: [round(share, 4) for share in accuracy[-1][at[scale]]] for scale in scales},
        "means on the way": {scale: [round(mean(part[at[scale]]), 3) for part in accuracy] for scale in scales},
    }


def main() -> None:
    """Train every combination, and write the result after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="where to write the JSON")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--units", nargs="+", default=["gated", "residual"], help="or lstm, bilstm")
    parser.add_argument("--rates", nargs="+", type=float, default=[3e-3])
    parser.add_argument("--scales", nargs="+", choices=SCALES, default=list(SCALES))
    for name, default in (("cells", 16), ("seeds", 5), ("steps", 300)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_default_device(device)
    torch.backends.cuda.matmul.allow_tf32 = True
    result: dict[str, Any] = {"environment": environment(device), "runs": []}
    for rate, task, unit in product(given.rates, given.tasks, given.units):
        result["runs"].append(train(unit, task, given.cells, rate, given.steps, given.scales, given.seeds))
        print(result["runs"][-1], file=sys.stderr)
        write_result(given.out, result)


if __name__ == "__main__":
    main()
