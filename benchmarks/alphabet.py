"""Train sorting with an alphabet of another size: how fast it is learned, and how far it generalises.

    python benchmarks/alphabet.py SYMBOLS [--seed 0] [--steps 8000] [--device cuda] [--out results/alphabet]

The paper says that training becomes slower with a larger alphabet. The network and its training are those of the recipe
``paper``, with fewer steps. benchmarks/readme.py makes a table of the result files.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

import torch

from riffle.environment import environment
from riffle.files import write_json
from riffle.recipes import paper
from riffle.tasks import TASKS
from riffle.tasks.sequences import Sort
from riffle.train.evaluate import evaluate
from riffle.train.loop import train
from riffle.train.run import Run, read_metrics

LENGTHS = (64, 512)


def main() -> None:
    """Train one network and write its result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("symbols", type=int, help="Symbols of the alphabet.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=8000)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, default=Path("results/alphabet"))
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    task = Sort(symbols=arguments.symbols + 1, classes=arguments.symbols + 1)
    TASKS["sort"] = task
    config = paper("sort")
    changed = replace(config.train, steps=arguments.steps, seed=arguments.seed, evaluate_every=250, precision="bf16")
    config = replace(config, train=replace(changed, evaluate_lengths=LENGTHS))
    with tempfile.TemporaryDirectory() as folder:
        run = Run.create(Path(folder) / "run", config)
        train(run, device=device)
        scores = evaluate(run.model(device), task, list(LENGTHS), examples=512, trained_length=64)
        curve = [line for line in read_metrics(run.folder) if "loss" not in line]
    result = {
        "symbols": arguments.symbols,
        "environment": environment(device),
        "config": asdict(config),
        "curve": curve,
        "scores": [asdict(score) for score in scores],
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    write_json(arguments.out / f"sort-{arguments.symbols}-seed{arguments.seed}.json", result)


if __name__ == "__main__":
    main()
