"""Train an encoder of riffle to find beats and downbeats among the notes of piano performances.

    python examples/beats/train.py --data FILE --out RUN [--fold 0]

FILE has performances as data.py reads them. A fold is a fifth of the pieces, which is held out.
"""

# B = batch, N = notes, F = features
from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from data import Change, Performance, augment, by_length, read_arrays, split
from rich.progress import track
from torch import Tensor, nn
from torch.nn import functional as F

import riffle

Given = Annotated[Path, typer.Option()]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NEIGHBOURS, PERIODS = (-4, -3, -2, -1, 1, 2, 3, 4), (0.25, 0.5, 1, 2, 4, 8, 16, 32)  # notes; of clocks, in seconds
INPUTS = 15 + 3 * len(NEIGHBOURS) + 2 * len(PERIODS)


def network(features: int = 192, blocks: int = 2, unit: str = "residual", **options: Any) -> riffle.Encoder:
    """The model: scores for no beat, a beat and a downbeat at each note."""
    return riffle.Encoder(features, blocks, inputs=INPUTS, outputs=3, unit=unit, **options)


def features(notes_BN4: Tensor) -> Tensor:
    """What the network is told of each note: what it is, how far its neighbours are, and the time by some clocks."""
    onset_BN, duration_BN, pitch_BN, velocity_BN = notes_BN4.unbind(-1)
    columns = [torch.log(duration_BN.clamp(0.01, 8)), pitch_BN / 12, velocity_BN / 32]
    columns += [(pitch_BN % 12 == name).float() for name in range(12)]
    for step in NEIGHBOURS:
        other_BN4 = F.pad(notes_BN4, (0, 0, -step, step))  # zeros beyond the ends, as riffle.collate pads rows
        away_BN, _, higher_BN, louder_BN = (other_BN4 - notes_BN4).unbind(-1)
        columns += [torch.log(away_BN.abs().clamp(0.005, 8)), higher_BN / 12, louder_BN / 32]
    angles = [2 * math.pi / period * onset_BN for period in PERIODS]
    columns += [*map(torch.sin, angles), *map(torch.cos, angles)]
    return torch.stack(columns, dim=-1)


def scores(model: nn.Module, notes_BN4: Tensor, lengths: list[int]) -> Tensor:
    """What the model says of a batch, ``[B, N, 3]``."""
    device = next(model.parameters()).device
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        scores_BN3: Tensor = model(features(notes_BN4.to(device, non_blocking=True)), lengths)
    return scores_BN3.float()


@torch.no_grad()
def probabilities(model: nn.Module, performances: Sequence[Performance], notes: int = 2**16) -> list[np.ndarray]:
    """For each note the probabilities of a beat, downbeats among them, and of a downbeat, ``[N, 2]``."""
    model.eval()
    found: dict[int, np.ndarray] = {}
    for batch in by_length(performances, notes):
        notes_BN4, lengths = riffle.collate([(performances[row].notes,) for row in batch])
        p_BN3 = scores(model, notes_BN4, lengths).softmax(-1).cpu().numpy()
        found |= {row: p_N3[:length] for row, p_N3, length in zip(batch, p_BN3, lengths, strict=True)}
    return [np.stack([1 - found[row][:, 0], found[row][:, 2]], axis=1) for row in range(len(performances))]


def train(
    model: nn.Module,
    performances: Sequence[Performance],
    *,
    epochs: int = 60,
    seconds: float = math.inf,
    rate: float = 2e-3,
    notes: int = 2**16,
    change: Change = augment,
    seed: int = 0,
) -> None:
    """Train for some epochs, or seconds if these end first, with a learning rate that falls as a cosine."""
    rows, random = [(p.notes, p.labels()) for p in performances], np.random.default_rng(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    batches, began = by_length(performances, notes), time.perf_counter()
    model.train()
    for step in track(range(epochs * len(batches)), "training"):
        done = max(step / (epochs * len(batches)), (time.perf_counter() - began) / seconds)
        if done >= 1:
            break
        if step % len(batches) == 0:
            random.shuffle(batches)
        batch = batches[step % len(batches)]
        notes_BN4, labels_BN, lengths = riffle.collate([change(*rows[row], random) for row in batch])
        if torch.cuda.is_available():  # copies from pinned memory do not wait for the device
            notes_BN4, labels_BN = notes_BN4.pin_memory(), labels_BN.pin_memory()
        scores_BN3 = scores(model, notes_BN4, lengths)
        loss = F.cross_entropy(scores_BN3.mT, labels_BN.to(scores_BN3.device, non_blocking=True))
        optimizer.param_groups[0]["lr"] = rate * min(1, done / 0.03) * (1 + math.cos(math.pi * done)) / 2
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def main(data: Given, out: Given, fold: int | None = None, epochs: int = 60, device: str = DEVICE) -> None:
    """Train on the performances of a file, and save the model to a folder."""
    performances, model = read_arrays(data), network(dropout=0.1).to(device)
    train(model, performances if fold is None else split(performances, fold)[0], epochs=epochs)
    model.save_pretrained(out)


if __name__ == "__main__":
    typer.run(main)
