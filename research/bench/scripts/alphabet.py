"""Train sorting with alphabets of several sizes: how fast it is learned, and how far it generalises.

    python benchmarks/alphabet.py SYMBOLS... [--recipe small] [--seeds 3] [--device cpu] [--out results/alphabet]

The paper says that training becomes slower with a larger alphabet. The network and its training are those of a recipe,
followed at the trained length and at eight times that. Every run leaves a result file, and those that have one are
skipped; benchmarks/readme.py makes a table of the files.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

import torch

from riffle.environment import environment
from riffle.files import write_json
from riffle.recipes import RECIPES
from riffle.tasks import TASKS
from riffle.tasks.sequences import Sort
from riffle.train.evaluate import evaluate
from riffle.train.loop import train
from riffle.train.run import Run, read_metrics

EVALUATIONS = 4
"""Evaluations of a run, evenly spread over its steps."""
EXAMPLES = 512


def measure(symbols: int, recipe: str, seed: int, device: torch.device, path: Path) -> None:
    """Train one network and write its result."""
    task = Sort(symbols=symbols + 1, classes=symbols + 1)
    TASKS["sort"] = task
    config = RECIPES[recipe]("sort")
    trained = config.data.longest_input
    lengths = (trained, 8 * trained)
    every = config.train.steps // EVALUATIONS
    changed = replace(config.train, seed=seed, evaluate_every=every, evaluate_lengths=lengths)
    config = replace(config, train=changed)
    with tempfile.TemporaryDirectory() as folder:
        run = Run.create(Path(folder) / "run", config)
        train(run, device=device)
        scores = evaluate(run.model(device), task, lengths, examples=EXAMPLES, trained_length=trained)
        curve = [line for line in read_metrics(run.folder) if "loss" not in line]
    result = {
        "symbols": symbols,
        "recipe": recipe,
        "seed": seed,
        "environment": environment(device),
        "config": asdict(config),
        "curve": curve,
        "scores": [asdict(score) for score in scores],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, result)


def main() -> None:
    """Train every network that has no result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("symbols", type=int, nargs="+", help="Symbols of the alphabet, one size or several.")
    parser.add_argument("--recipe", choices=RECIPES, default="small")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("results/alphabet"))
    arguments = parser.parse_args()
    for seed in range(arguments.seeds):
        for symbols in arguments.symbols:
            path = arguments.out / f"sort-{symbols}-{arguments.recipe}-seed{seed}.json"
            if not path.exists():
                measure(symbols, arguments.recipe, seed, torch.device(arguments.device), path)


if __name__ == "__main__":
    main()
