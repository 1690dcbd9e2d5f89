"""Train reversal by networks between the preprint's and the paper's, all with the preprint's settings and 96 maps.

    python benchmarks/preprint_parts.py [--steps 2000] [--seeds 5] [--at-once 2] [--device cpu] [--out FILE]

FILE has a row for each network and seed: the symbols right at the end, on the selection examples of an evaluation in
training. Rows that it has are not run again.
"""

from __future__ import annotations

import argparse
import tempfile
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import torch

from research.baselines import PreprintNetwork
from riffle.environment import environment
from riffle.files import read_json, write_json
from riffle.models import build
from riffle.recipes import preprint, with_model
from riffle.train.loop import train
from riffle.train.run import Run, read_metrics

LENGTHS = (512, 1024, 4096)
NETWORKS = {
    "preprint": "the preprint's network",
    "swap": "the middle layer exchanges halves",
    "no-skip": "no skip connection from the first layer to the last",
    "swap-no-skip": "both of these",
    "paper": "the paper's network: these, and one set of weights for each half",
}
"""Names of networks in FILE, and what sets each apart from the first."""
Row = dict[str, Any]


def between(network: str, *arguments: Any, **options: Any) -> PreprintNetwork:
    """The preprint's network with some of the paper's parts; networks of one seed begin with the same weights."""
    model = PreprintNetwork(*arguments, **options)
    units: Any = model.units.values()
    for unit in units:
        unit.swap = unit.swap or "swap" in network
        if "no-skip" in network and unit.skip_scale is not None:  # the wiring stays and adds nothing
            torch.nn.init.zeros_(unit.skip_scale).requires_grad_(False)
    return model


def measure(network: str, seed: int, steps: int, device: str) -> Row:
    """Train one network."""
    torch.set_num_threads(1)
    config = with_model(preprint("reverse"), "preprint")
    if network == "paper":
        config = replace(config, model=replace(preprint("reverse").model, features=config.model.features))
    entry = build.MODELS["preprint"]
    build.MODELS["preprint"] = replace(entry, model=lambda *args, **options: between(network, *args, **options))
    settings = replace(config.train, seed=seed, steps=steps, evaluate_every=steps, evaluate_lengths=LENGTHS)
    with tempfile.TemporaryDirectory() as folder:
        run = Run.create(Path(folder) / "run", replace(config, train=settings))
        train(run, device=device)
        last = read_metrics(run.folder)[-1]
    symbols = {str(length): last[f"accuracy/{length}"] for length in LENGTHS}
    return {"network": network, "seed": seed, "steps": steps, "symbols": symbols}


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
    result: dict[str, Any] = {"environment": environment(torch.device(arguments.device)), "rows": []}
    if out.exists():
        result = read_json(out)
    rows: list[Row] = result["rows"]
    names, done = list(NETWORKS), {(row["seed"], row["network"]) for row in rows}
    # a process for each run, since it changes how the network is built
    with ProcessPoolExecutor(arguments.at_once, max_tasks_per_child=1) as pool:
        wanted = [each for each in product(range(arguments.seeds), NETWORKS) if each not in done]
        jobs = [pool.submit(measure, network, seed, steps, arguments.device) for seed, network in wanted]
        for job in as_completed(jobs):
            rows.append(job.result())
            rows.sort(key=lambda row: (row["seed"], names.index(row["network"])))
            write_json(out, result)
            print(f"{len(rows)} of {len(NETWORKS) * arguments.seeds}: {job.result()}", flush=True)


if __name__ == "__main__":
    main()
