"""Calls as CUDA graphs: whole ones, and the Neural GPU's n steps as one graph replayed n / 64 times."""

# B = batch, N = length, L = cells in one line, D = features per cell
from __future__ import annotations

import torch
from torch import Tensor

from riffle.baselines import NeuralGPU
from riffle.bench.replay import replayed
from riffle.bench.timing import Call
from riffle.tasks.base import BLANK

STEPS = 64
"""Steps of the Neural GPU in one graph; lengths are a multiple of it."""


@torch.no_grad()
def stepwise(model: NeuralGPU, symbols_BN: Tensor) -> Call:
    """Evaluation by a graph of 64 steps, replayed until all are made: a graph of all would have millions of nodes."""
    batch, length = symbols_BN.shape
    assert length % STEPS == 0, f"{length} is no multiple of {STEPS}"
    s_LD, live_L1 = model.begin([model.embed(symbols_BN)], [model.live(symbols_BN != BLANK)])
    state_LD = s_LD.clone()

    @torch.no_grad()
    def some_steps() -> None:
        s_LD = state_LD
        for _ in range(STEPS):
            s_LD = model.unit(s_LD) * live_L1
        state_LD.copy_(s_LD)

    replay = replayed(some_steps)

    @torch.no_grad()
    def call() -> Tensor:
        state_LD.copy_(model.begin([model.embed(symbols_BN)], [model.live(symbols_BN != BLANK)])[0])
        for _ in range(length // STEPS):
            replay()
        return model.end(state_LD, batch, length)

    return call
