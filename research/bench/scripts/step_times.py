"""The training step of small bins by the gated and the residual unit, by the streams of its way back, in one process.

    python benchmarks/step_times.py RESULT.json
    python benchmarks/step_times.py RESULT.json --forms library streams1 --rounds 9 --check
    python benchmarks/step_times.py RESULT.json --forms library --profile

Every form of every unit is captured as a graph first. Then all of them are replayed in turn, round by round, so that a
drift of the clock concerns all alike. The cache is not emptied between replays, as ``riffle bench`` does, and examples
are not drawn. ``--check`` compares every gradient with float64, ``--profile`` prints the kernels of a step.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from research.bench.jobs import CHECKED_STEPS, JOBS, _train_step
from research.bench.measure import relative_error
from research.bench.workloads import Workload
from riffle.environment import environment
from riffle.files import write_json
from riffle.kernels import tuning
from riffle.train.step import TrainStep

DEVICE = torch.device("cuda")
WORKLOADS = {
    unit: Workload(f"{unit}-step", "training step", 192, 1, (8, 16, 32, 64), batch=64, graph=True, unit=unit)
    for unit in ("gated", "residual")
}
FORMS = {"library": tuning.SIDE_STREAMS, "streams1": 1, "streams2": 2}
"""Each form's :data:`tuning.SIDE_STREAMS`."""


def captured(unit: str, form: str) -> torch.cuda.CUDAGraph:
    """The graph of a step; the job that made it lives as long as the graph does."""
    tuning.SIDE_STREAMS = FORMS[form]
    job = JOBS["training step"].build(WORKLOADS[unit], "fused-keep", DEVICE)
    for _ in range(job.first_calls):
        job.call()
    assert isinstance(job.call, TrainStep)
    graph = job.call.graph
    assert graph is not None
    _alive.append(job)
    return graph


_alive: list[Any] = []
"""What graphs read and write."""


def last_gradients(unit: str, *, double: bool = False) -> dict[str, Tensor]:
    """The gradients of all parameters in a step that is the same in every form, or in float64."""
    step = _train_step(WORKLOADS[unit], "eager" if double else "fused-keep", DEVICE, checked=True, double=double)
    for _ in range(CHECKED_STEPS):
        step()
    parameters = step.model.named_parameters()
    # Copied, since a graph's memory goes with the step.
    return {name: parameter.grad.double().clone() for name, parameter in parameters if parameter.grad is not None}


def check(unit: str, form: str, exact: dict[str, Tensor]) -> dict[str, float]:
    """How far the gradients of a form are from those in float64, by parameter."""
    tuning.SIDE_STREAMS = FORMS[form]
    actual = last_gradients(unit)
    assert actual.keys() == exact.keys()
    return {name: float(f"{relative_error(actual[name], exact[name]):.3g}") for name in exact}


def milliseconds(graph: torch.cuda.CUDAGraph, replays: int) -> float:
    """Of one replay among many."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(10):
        graph.replay()
    begin.record()
    for _ in range(replays):
        graph.replay()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / replays


def profile(graph: torch.cuda.CUDAGraph) -> list[dict[str, Any]]:
    """The kernels of one replay in their order: name, stream, start and duration in microseconds."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as recorded:
        for _ in range(3):
            graph.replay()
        torch.cuda.synchronize()
    results: Any = recorded.profiler
    events = [
        event
        for event in results.kineto_results.events()
        if event.device_type() == torch.autograd.DeviceType.CUDA and event.duration_ns()
    ]
    events = sorted(events, key=lambda event: event.start_ns())
    last = events[-(len(events) // 3) :]
    first = last[0].start_ns()
    return [
        {
            "name": event.name(),
            "stream": event.device_resource_id(),
            "start": (event.start_ns() - first) / 1000,
            "microseconds": event.duration_ns() / 1000,
        }
        for event in last
    ]


def kernel_table(kernels: list[dict[str, Any]]) -> str:
    """How often each kernel ran and how long it took in all, the longest first."""
    times: dict[str, list[float]] = defaultdict(list)
    for kernel in kernels:
        times[kernel["name"]].append(kernel["microseconds"])
    busy, until = 0.0, 0.0
    for kernel in kernels:
        end = kernel["start"] + kernel["microseconds"]
        busy += max(0.0, end - max(until, kernel["start"]))
        until = max(until, end)
    total = sum(map(sum, times.values()))
    lines = [f"{len(kernels)} kernels, {total:.0f} us in all, {busy:.0f} us with one at least, {until:.0f} us a step"]
    lines += [
        f"{len(each):5d} {sum(each):8.1f} us  {name[:110]}"
        for name, each in sorted(times.items(), key=lambda item: -sum(item[1]))
    ]
    return "\n".join(lines)


def main() -> None:
    """Capture, time, write and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("result", metavar="RESULT.json")
    parser.add_argument("--forms", nargs="*", choices=FORMS, default=list(FORMS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--replays", type=int, default=200, help="of each in a round")
    parser.add_argument("--seconds", type=float, default=55.0, help="after which no further round begins")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    begin = time.monotonic()
    record: dict[str, Any] = {"rows": [], **environment(DEVICE)}
    graphs = {(unit, form): captured(unit, form) for unit in WORKLOADS for form in options.forms}
    print(f"{len(graphs)} graphs after {time.monotonic() - begin:.0f} s", flush=True)
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    for index in range(options.rounds):
        if index and time.monotonic() - begin > options.seconds:
            break
        for row, graph in graphs.items():
            times[row].append(milliseconds(graph, options.replays))
    for (unit, form), each in times.items():
        median = statistics.median(each)
        entry = {"milliseconds": round(median, 4), "fastest": round(min(each), 4), "slowest": round(max(each), 4)}
        record["rows"].append({"unit": unit, "form": form, **entry, "rounds": len(each)})
        ratio = median / statistics.median(times["gated", options.forms[0]])
        spread = f"{min(each):.4f} to {max(each):.4f}"
        print(f"{unit:9} {form:9} {median:.4f} ms ({spread}), {ratio - 1:+.1%} of gated", flush=True)
    write_json(Path(options.result), record)
    if options.check:
        record["errors"] = {}
        exact = {unit: last_gradients(unit, double=True) for unit in WORKLOADS}
        for unit, form in graphs:
            record["errors"][f"{unit} {form}"] = errors = check(unit, form, exact[unit])
            print(unit, form, errors, flush=True)
    if options.profile:
        record["kernels"] = {}
        for (unit, form), graph in graphs.items():
            record["kernels"][f"{unit} {form}"] = kernels = profile(graph)
            print(f"\n{unit} {form}: {kernel_table(kernels)}", flush=True)
    write_json(Path(options.result), record)
    print(f"{time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main()
