"""Networks padded to an even length beside networks padded to a power of two: what they cost and what they learn.

    python benchmarks/even.py time RESULT.json
    python benchmarks/even.py accuracy RESULT.json RUN... [--longest 1024] [--examples 128]

``accuracy`` scores every run with both paddings, whichever it was trained with: the weights are the same.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from research.bench.measure import relative_error
from research.bench.timing import time_call
from research.ship.trials import SEED, score
from riffle import ShuffleExchange
from riffle.environment import environment
from riffle.files import write_json
from riffle.shuffle import PADS, Pad
from riffle.tasks import get_task
from riffle.train.run import Run

SHAPES = ((1, 1, 1030), (1, 32, 1030), (1, 256, 1030), (2, 32, 1030), (1, 32, 2048))
"""Blocks, sequences and cells of each."""
ROWS = 64
"""Rows of different lengths in one batch, drawn from 512 to 2,048 cells."""
FEATURES = 192
TOLERANCE = 0.04
"""The largest relative error, in the Euclidean norm, of what is computed in bfloat16."""
LENGTHS = {
    "powers": (16, 32, 64, 128, 256, 512, 1024),
    "even": (18, 26, 36, 50, 82, 100, 154, 200, 282, 410, 614, 974),
    "odd": (19, 27, 37, 51, 83, 101, 155, 205, 283, 411, 615, 973),
}


def time_networks(device: torch.device) -> list[dict[str, Any]]:
    """Milliseconds of the forward pass, and of both passes, in bfloat16."""
    rows = torch.randint(512, 2049, (ROWS,), generator=torch.Generator().manual_seed(SEED)).tolist()
    work: list[tuple[int, int, int, list[int] | None]] = [(*shape, None) for shape in SHAPES]
    work.append((1, ROWS, max(rows), rows))
    return [
        entry
        for blocks, batch, length, lengths in work
        for pad in PADS
        for entry in time_network(device, blocks, pad, batch, length, lengths)
    ]


def time_network(
    device: torch.device, blocks: int, pad: Pad, batch: int, length: int, lengths: list[int] | None
) -> Iterator[dict[str, Any]]:
    """Both passes of one network on one shape."""
    net = ShuffleExchange(FEATURES, blocks, pad=pad, device=device, dtype=torch.bfloat16)
    x_BND = (torch.rand(batch, length, FEATURES, device=device) * 2 - 1).bfloat16()

    @torch.inference_mode()
    def forward() -> None:
        net(x_BND, lengths)

    def both() -> None:
        net(x_BND, lengths).backward(x_BND)

    check(net, x_BND[:2], None if lengths is None else lengths[:2])
    for name, call in (("forward", forward), ("forward and backward", both)):
        for _ in range(5):  # compiled, and captured as a graph where it is small
            call()
        timing, _ = time_call(call, device, at_least=100.0)
        entry: dict[str, Any] = {
            "features": FEATURES,
            "blocks": blocks,
            "batch": batch,
            "length": length,
            "pad": pad,
            "pass": name,
        }
        entry |= {"lengths": "512 to 2048" if lengths else None, **timing.entry()}
        print(json.dumps(entry), flush=True)
        yield entry


def check(net: ShuffleExchange, x_BND: torch.Tensor, lengths: list[int] | None) -> None:
    """Refuse to time wrong results: output and gradient of the input beside the definition in float32."""
    exact = ShuffleExchange(FEATURES, net.blocks, pad=net.pad, backend="reference", device=x_BND.device)
    exact.load_state_dict(net.state_dict())
    results = []
    for each, cells_BND in ((net, x_BND), (exact, x_BND.float())):
        cells_BND = cells_BND.clone().requires_grad_()
        y_BND = each(cells_BND, lengths)
        results.append((y_BND, *torch.autograd.grad(y_BND, cells_BND, x_BND.to(y_BND.dtype))))
    errors = [relative_error(*pair) for pair in zip(*results, strict=True)]
    if not max(errors) < TOLERANCE:
        raise ValueError(f"output and gradient are {errors} from the definition, {TOLERANCE} allowed")


def score_run(folder: Path, device: torch.device, longest: int, examples: int) -> dict[str, Any]:
    """Shares of symbols and of whole sequences that are right, at lengths of every kind."""
    run = Run(folder)
    model, task = run.model(device), get_task(run.config.task)
    data = run.config.data
    result: dict[str, Any] = {"run": folder.name, "task": task.name, "trained": run.config.model.pad}
    result |= {"bins": list(data.bins), "longest": data.longest_input, "batch": data.batch}
    result |= {"step": run.weights_step(), "scores": {}}
    for pad in PADS:
        model.network.pad = pad
        for kind, lengths in LENGTHS.items():
            scores = [score(model, task, length, "uniform", examples) for length in lengths if length <= longest]
            rounded = {each["length"]: [round(each[key], 5) for key in ("symbols", "sequences")] for each in scores}
            result["scores"].setdefault(pad, {})[kind] = rounded
    print(json.dumps(result), flush=True)
    return result


def main() -> None:
    """Time networks or score runs, and write the results beside what they were measured on."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", choices=("time", "accuracy"))
    parser.add_argument("result", type=Path, metavar="RESULT.json")
    parser.add_argument("runs", type=Path, nargs="*", metavar="RUN")
    parser.add_argument("--longest", type=int, default=1024)
    parser.add_argument("--examples", type=int, default=128)
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if arguments.what == "time":
        measured = time_networks(device)
    else:
        measured = [score_run(folder, device, arguments.longest, arguments.examples) for folder in arguments.runs]
    write_json(arguments.result, {**environment(device), arguments.what: measured})


if __name__ == "__main__":
    main()
