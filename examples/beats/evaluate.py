"""How well a run of train.py finds beats: one line of JSON.

    python examples/beats/evaluate.py --data FILE --run RUN [--fold 0]

Note F1 is that of all notes together, time F the mean of mir_eval's f_measure (70 ms, nothing trimmed) of performances.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import typer
from data import Performance, read_arrays, split
from decode import pick, track
from mir_eval.beat import f_measure
from train import DEVICE, Given, probabilities

import riffle

KINDS = "beat", "downbeat"


def evaluate(performances: Sequence[Performance], p_N2s: Sequence[np.ndarray]) -> dict[str, Any]:
    """All figures of some performances, given the probabilities of their notes."""
    found_N2, label_N = np.concatenate(p_N2s) > 0.5, np.concatenate([p.labels() for p in performances])
    true_N2 = label_N[:, None] > [0, 1]
    f1_2 = 2 * (found_N2 & true_N2).sum(0) / (found_N2.sum(0) + true_N2.sum(0))
    figures = {"performances": len(performances), "notes": len(label_N), "note F1": dict(zip(KINDS, f1_2, strict=True))}
    for how, decode in (("network", pick), ("post-processed", track)):
        f_R2 = []
        for p, p_N2 in zip(performances, p_N2s, strict=True):
            f_R2.append([*map(f_measure, (p.beats, p.downbeats), decode(p.notes[:, 0], p_N2))])
        figures[f"time F, {how}"] = dict(zip(KINDS, np.mean(f_R2, axis=0), strict=True))
    return figures


def main(data: Given, run: Given, fold: int | None = None, device: str = DEVICE) -> None:
    """Print the figures of a run on all performances of a file, or on those of a fold."""
    performances = read_arrays(data) if fold is None else split(read_arrays(data), fold)[1]
    p_N2s = probabilities(riffle.Encoder.from_pretrained(run, device=device), performances)
    print(json.dumps(evaluate(performances, p_N2s)))


if __name__ == "__main__":
    typer.run(main)
