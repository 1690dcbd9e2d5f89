"""Train reversal by the preprint's network with and without each of two things that set it apart from the paper's.

    python benchmarks/preprint_parts.py [--steps 2000] [--seeds 5] [--at-once 2] [--device cpu] [--out FILE]

They are its skip connection, from the first layer to the last, and its middle layer, which does not exchange halves.
The third, own weights for the first and the middle layer, all of the networks have. Those of one seed begin with the
same weights. FILE has a row for each network and seed; rows that it has are not run again.
"""

from __future__ import annotations

import argparse
import tempfile
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import torch

from riffle.environment import environment
from riffle.files import read_json, write_json
from riffle.models import build
from riffle.models.baselines import PreprintNetwork
from riffle.models.baselines import preprint as network
from riffle.recipes import preprint, with_model
from riffle.train.loop import train
from riffle.train.run import Run, read_metrics

LENGTHS = (512, 1024, 4096)
FEATURES = 96
Row = dict[str, Any]


def measure(skip: bool, swap_middle: bool, seed: int, steps: int, device: str) -> Row:
    """Train one network; the symbols right at the end, on the selection examples of an evaluation in training."""
    torch.set_num_threads(1)
    schedule = network.preprint_schedule

    @lru_cache
    def without_skips(k: int, blocks: int = 1) -> tuple[network.Layer, ...]:
        return tuple(replace(layer, skip=None) for layer in schedule(k, blocks))

    def built(*arguments: Any, **options: Any) -> PreprintNetwork:
        model = PreprintNetwork(*arguments, **options)
        units: Any = model.units.values()
        for unit in units:
            unit.swap = unit.swap or swap_middle
        return model

    if not skip:
        network.preprint_schedule = without_skips
    build.MODELS["preprint"] = replace(build.MODELS["preprint"], model=built)
    config = with_model(preprint("reverse"), "preprint")
    settings = replace(config.train, seed=seed, steps=steps, evaluate_every=steps, evaluate_lengths=LENGTHS)
    config = replace(config, train=settings)
    assert config.model.features == FEATURES
    with tempfile.TemporaryDirectory() as folder:
        run = Run.create(Path(folder) / "run", config)
        train(run, device=device)
        last = read_metrics(run.folder)[-1]
    symbols = {str(length): last[f"accuracy/{length}"] for length in LENGTHS}
    return {"skip": skip, "swap_middle": swap_middle, "seed": seed, "steps": steps, "symbols": symbols}


def main() -> None:
    """Train every network that has no row."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--at-once", type=int, default=2, help="Runs at once, each on one thread.")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("results/trials/reverse-parts.json"))
    arguments = parser.parse_args()
    out, steps = arguments.out, arguments.steps
    about = environment(torch.device(arguments.device))
    result: dict[str, Any] = read_json(out) if out.exists() else {"environment": about, "rows": []}
    rows: list[Row] = result["rows"]

    def key(row: Row) -> tuple[int, bool, bool]:
        return row["seed"], row["skip"], row["swap_middle"]

    wanted = product(range(arguments.seeds), (True, False), (False, True))
    missing = [each for each in wanted if each not in map(key, rows)]
    # a process for each run, since it changes how the network is built
    with ProcessPoolExecutor(arguments.at_once, max_tasks_per_child=1) as pool:
        jobs = [pool.submit(measure, skip, swap, seed, steps, arguments.device) for seed, skip, swap in missing]
        for job in as_completed(jobs):
            row = job.result()
            rows.append(row)
            rows.sort(key=key)
            write_json(out, result)
            print(row, flush=True)


if __name__ == "__main__":
    main()
