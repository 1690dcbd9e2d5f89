"""Train many variants of a recipe, a few at once on one GPU, and score each on examples that no test uses.

    python -m research.ship.trials TRIALS.json FOLDER [--at-once 7] [--stop-after SECONDS] [--ship FOLDER]

An entry of TRIALS.json names a run and gives its options of ``train``: ``{"name": ["add", "--set", "..."]}``. Its
scores go to FOLDER/NAME/selection.json: of uniform and structured examples, at powers of two and between them. They
serve to choose recipes, seeds and steps, so none of their inputs is one of the tests'. ``--stop-after`` ends all
training in time and scores every run with the weights it has by then. ``--ship`` writes the best run of each task as a
small folder.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from research.files import write_result
from research.registry import register
from research.ship.ship import ship_run
from riffle.files import read_json
from riffle.tasks import get_task
from riffle.train.evaluate import evaluate
from riffle.train.run import Run

LENGTHS = {
    64: 2048, 51: 1024, 128: 512, 256: 512, 282: 512, 410: 512, 512: 512, 614: 256, 973: 256, 1024: 256, 4096: 64
}  # fmt: skip
"""Lengths that are scored, and how many examples of each."""
TRAINED = 64
FAR = {"duplicate": 65536, "reverse": 65536}
"""A further length for tasks that generalise so far, scored on a few uniform examples."""
FAR_EXAMPLES = 4
SEED = 7


def measure(folder: Path, device: str) -> None:
    """Score a run on examples for selection and write selection.json, again after every length."""
    run = Run(folder)
    task, model = get_task(run.config.task), run.model(device)
    tests = [(length, examples, ["uniform", "structured"]) for length, examples in LENGTHS.items()]
    if task.name in FAR:
        tests.append((FAR[task.name], FAR_EXAMPLES, ["uniform"]))
    scores: list[dict[str, Any]] = []
    for length, examples, splits in tests:
        options: dict[str, Any] = {"trained_length": TRAINED, "seed": SEED, "part": "selection"}
        scores += map(asdict, evaluate(model, task, [length], splits=splits, examples=examples, **options))
        write_result(folder / "selection.json", {"run": folder.name, "step": run.weights_step(), "scores": scores})


def train_and_measure(name: str, options: list[str], folder: Path, stop_at: float) -> None:
    """Train one run in a process of its own, at most until a time, and measure it in another."""
    since = time.perf_counter()
    log = (folder / f"{name}.log").open("w")
    python = [sys.executable, "-m"]
    run = [*python, "research", "train", *options, "--out", str(folder / name)]
    process = subprocess.Popen(run, stdout=log, stderr=log)
    try:
        process.wait(max(0.0, stop_at - since))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)  # saves its state and ends
        process.wait()
    trained = time.perf_counter()
    code = subprocess.run(
        [*python, "research.ship.trials", "--measure", str(folder / name)], stdout=log, stderr=log, check=False
    ).returncode
    print(
        f"{name}: trained {trained - since:.0f} s, exit {process.returncode}; "
        f"measured {time.perf_counter() - trained:.0f} s, exit {code}",
        flush=True,
    )


def mean_score(folder: Path) -> float:
    """The mean share of symbols and of sequences right in all scores of a run."""
    scores = read_json(folder / "selection.json")["scores"]
    return sum(each["symbol_accuracy"] + each["sequence_accuracy"] for each in scores) / (2 * len(scores))


def ship_best(runs: Path, folder: Path, bits: int) -> None:
    """Write the best run of each task below ``folder``, its matrices rounded to so many bits."""
    best: dict[str, Path] = {}
    for measured in sorted(runs.glob("*/selection.json")):
        task = Run(measured.parent).config.task
        if task not in best or mean_score(measured.parent) > mean_score(best[task]):
            best[task] = measured.parent
    for task, run in best.items():
        print(f"{task}: {run.name}, {mean_score(run):.4f}")
        ship_run(Run(run), folder / task, bits)


def main() -> None:
    """Train all runs of a list, or measure one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("trials", type=Path, metavar="TRIALS.json")
    parser.add_argument("folder", type=Path, nargs="?", metavar="FOLDER")
    parser.add_argument("--at-once", type=int, default=7)
    parser.add_argument("--stop-after", type=float, default=float("inf"), help="Seconds after which all training ends.")
    parser.add_argument("--ship", type=Path, metavar="FOLDER", help="Where to write the best run of each task.")
    parser.add_argument("--bits", type=int, default=8, help="Bits of their rounded weights.")
    parser.add_argument("--measure", action="store_true", help="Measure the run in the folder TRIALS.json.")
    arguments = parser.parse_args()
    register()
    if arguments.measure:
        return measure(arguments.trials, "cuda" if torch.cuda.is_available() else "cpu")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    stop_at = time.perf_counter() + arguments.stop_after
    with ThreadPoolExecutor(arguments.at_once) as pool:
        for name, options in json.loads(arguments.trials.read_text()).items():
            pool.submit(train_and_measure, name, options, arguments.folder, stop_at)
    if arguments.ship:
        ship_best(arguments.folder, arguments.ship, arguments.bits)


if __name__ == "__main__":
    main()
