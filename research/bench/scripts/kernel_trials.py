"""Choose among kernels on a GPU of compute capability 9.0: check each form, then time layers and whole networks.

    python benchmarks/kernel_trials.py RESULT.json --seconds 95
    python benchmarks/kernel_trials.py RESULT.json --rows step-1k call-4k --settings before library
    python benchmarks/kernel_trials.py RESULT.json --rows residual --checks residual --seconds 60 --check-seconds 20

Settings are those of ``kernel_checks.py``, whose checks run first: a form that is less exact than twice eager PyTorch,
or that hangs, is timed nowhere. Then layers and networks are timed in one process, the important rows first, each
setting after the other. A row that fails does not stop the others, what was measured is written when time is up, and a
table is printed at the end.
"""

from __future__ import annotations

import argparse
import cProfile
import io
import json
import os
import pstats
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch

from research.bench.jobs import JOBS, Job
from research.bench.measure import relative_error
from research.bench.own_loop import OWN_LOOP_JOBS
from research.bench.scripts.kernel_checks import (
    DEVICE,
    DTYPE,
    RESIDUAL_PAIRS,
    WIDE_TRIALS,
    Layer,
    check_all,
    use,
)
from research.bench.scripts.residual_layer import ResidualLayer
from research.bench.timing import free_memory, repeat, time_call, time_loop
from research.bench.workloads import Form, Workload
from riffle.environment import environment
from riffle.files import write_json
from riffle.kernels import tuning
from riffle.kernels.reference import NORMS, Norm


def microseconds(call: Callable[[], object]) -> float:
    """Of one call among many in a CUDA graph, the median of five replays."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(2):
        call()
    begin.record()
    call()
    end.record()
    torch.cuda.synchronize()
    calls = max(2, min(100, int(8 / max(begin.elapsed_time(end), 1e-3))))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    times = []
    for _ in range(6):
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(1000 * begin.elapsed_time(end) / calls)
    return round(statistics.median(times[1:]), 2)


def time_layer(features: int, pairs: int, keep: bool, skip: bool, back: bool, setting: str) -> dict[str, Any]:
    """One layer forward, or on its way back as one of those that share products."""
    use(setting)
    layer = Layer(features, pairs, skip=skip, device=DEVICE)
    plan = layer.plan(keep=keep, shuffle=1)
    layer.forward(plan)
    layers = max(1, min(4, tuning.GRADIENT_PAIRS // pairs))
    if not back:
        return {"microseconds": microseconds(lambda: layer.forward(plan))}
    return {"microseconds": round(microseconds(lambda: layer.backward(plan, layers=layers)) / layers, 2)}


def time_residual_layer(features: int, pairs: int, norm: Norm, back: bool, setting: str) -> dict[str, Any]:
    """The same for the residual unit."""
    use(setting)
    layer = ResidualLayer(features, pairs, norm=norm, dtype=DTYPE, device=DEVICE)
    plan = layer.plan(shuffle=1)
    layer.forward(plan)
    if not back:
        return {"microseconds": microseconds(lambda: layer.forward(plan))}
    return {"microseconds": round(microseconds(lambda: layer.backward(plan, layers=4)) / 4, 2)}


def time_network(workload: Workload, form: Form, setting: str, state: dict[str, Any]) -> dict[str, Any]:
    """A whole network; results are compared with those of the setting before."""
    use(setting)
    kind = (JOBS | OWN_LOOP_JOBS)[workload.kind]
    job: Job = kind.build(workload, form, DEVICE)
    repeat(job.call, job.first_calls)
    entry: dict[str, Any] = {}
    results = job.results() if workload.kind != "training step" else None
    if results is not None:
        if "results" in state:
            pairs = [(name, results[name], state["results"][name]) for name in results]
            entry["differences"] = {name: float(f"{relative_error(ours, theirs):.3g}") for name, ours, theirs in pairs}
        else:
            state["results"] = {name: result.clone() for name, result in results.items()}
        del results
    timing, peak = (time_loop if job.loop else time_call)(job.call, DEVICE, quick=True)
    entry |= {"milliseconds": round(timing.median, 4), "fastest": round(timing.fastest, 4)}
    return entry | {"gigabytes": None if peak is None else round(peak / 1e9, 2)}


def profile_step(workload: Workload, form: Form, setting: str) -> dict[str, Any]:
    """A loop of the host: its time, and the functions in which it spends most, microseconds a call."""
    use(setting)
    job = OWN_LOOP_JOBS[workload.kind].build(workload, form, DEVICE)
    repeat(job.call, job.first_calls + 5)
    timing, _ = time_loop(job.call, DEVICE, quick=True)
    torch.cuda.synchronize()
    profile, calls = cProfile.Profile(), 10
    profile.enable()
    repeat(job.call, calls)
    profile.disable()
    torch.cuda.synchronize()
    text = io.StringIO()
    pstats.Stats(profile, stream=text).sort_stats("tottime").print_stats(40)
    return {"milliseconds": round(timing.median, 3), "fastest": round(timing.fastest, 3), "profile": text.getvalue()}


class Row(NamedTuple):
    """Something to time by several settings."""

    name: str
    settings: tuple[str, ...]
    measure: Callable[..., dict[str, Any]]
    arguments: tuple[Any, ...]
    cost: float = 1.5
    """Seconds that a setting takes, about."""


K, M = 2**10, 2**20
GRAPHS: Form = "riffle-graphs"


def rows() -> Iterator[Row]:
    """Important ones first; the first setting once more at the end says how far times of one run differ."""
    settings: tuple[str, ...]
    own_1k = Workload("own-step-1k", "plain training step", 192, 2, (K,), batch=32)
    own_256 = Workload("own-step-256", "plain training step", 192, 1, (256,), batch=64)
    own_4k = Workload("own-step-4k", "plain training step", 192, 2, (4 * K,), batch=8)
    settings = ("before", "library", "library+waiting", "library+gradients17", "library+gradients15", "before")
    yield Row("step-1k", settings, time_network, (own_1k, GRAPHS))
    yield Row("step-4k", ("before", "library", "library+gradients17"), time_network, (own_4k, GRAPHS))
    yield Row("step-256", ("before", "library", "library+gradients17", "before"), time_network, (own_256, GRAPHS), 1.0)
    calls = {
        cells: Workload(f"own-call-{cells}", "plain forward", 192, 2, (cells,)) for cells in (4 * K, K, 2 * K, 8 * K)
    }
    for cells, call in calls.items():
        settings = ("before", "library+single", "library") if cells <= 4 * K else ("before", "library", "library+ways4")
        yield Row(f"call-{cells}", settings, time_network, (call, GRAPHS), 1.0)
    for pairs, skip in ((2**13, False), (2**13, True), (2**15, False), (2**16, False), (2**16, True)):
        name = f"layer 192, {pairs} pairs, kept{', skip' * skip}"
        yield Row(name, ("before", "library", "library+loop"), time_layer, (192, pairs, True, skip, False), 0.5)
    backward_1m = Workload("backward-1m", "forward and backward", 192, 1, (M,))
    yield Row("backward-1m-kept", ("before", "library"), time_network, (backward_1m, "fused-keep"), 3.0)
    bins = Workload("step", "training step", 192, 1, (8, 16, 32, 64), batch=64, graph=True)
    yield Row("step-bins", ("before", "library"), time_network, (bins, "fused-keep"), 3.0)
    backward_2m = Workload("backward-2m", "forward and backward", 96, 1, (2 * M,))
    yield Row("backward-2m-kept", ("before", "library"), time_network, (backward_2m, "fused-keep"), 3.0)
    for name, workload in (("host-256", own_256), ("host-1k", own_1k), ("host-call-4096", calls[4 * K])):
        settings = ("library+single", "library") if "call" in name else ("library",)
        yield Row(name, settings, profile_step, (workload, "riffle"), 2.0)
    own_256k = Workload("own-backward-256k", "plain forward and backward", 192, 2, (256 * K,))
    yield Row("backward-256k", ("before", "library"), time_network, (own_256k, "riffle"), 3.0)
    settings = ("library+loads", "library", "library+loads")
    for pairs in (2**20, 2**12, 2**14):
        yield Row(f"layer 96, {pairs} pairs", settings, time_layer, (96, pairs, False, False, False), 0.5)
    infer_2m = Workload("infer-2m", "inference", 96, 1, (2 * M,))
    yield Row("infer-2m", settings, time_network, (infer_2m, "fused"), 2.0)
    settings = ("library+apart", "library", *(f"library+{name}" for name in WIDE_TRIALS), "library+apart")
    for pairs in (2**16, 2**12, 2**14):
        yield Row(f"layer 384, {pairs} pairs", settings, time_layer, (384, pairs, False, False, False), 0.5)
    for name, lengths, batch in (("384-128k", (128 * K,), 1), ("384-128x64", (128,), 64)):
        wide = Workload(name, "inference", 384, 2, lengths, batch=batch, graph=batch > 1)
        yield Row(name, settings, time_network, (wide, "fused"), 2.0)
    yield from residual_rows()
    for features, pairs, keep, back, settings in (
        (64, 2**20, True, False, ("other", "library")),
        (128, 2**14, True, True, ("library", "library+products")),
        (64, 2**14, True, True, ("library", "library+products")),
    ):
        name = f"layer {features}, {pairs} pairs{', kept' * keep}{', back' * back}"
        yield Row(name, settings, time_layer, (features, pairs, keep, False, back), 0.5)


def residual_rows() -> Iterator[Row]:
    """Of the residual unit: a training step of small bins, whose layers have few pairs, and such layers."""
    settings = ("library+waiting+shared", "library+waiting", "library")
    step = Workload("residual-step", "training step", 192, 1, (8, 16, 32, 64), batch=64, graph=True, unit="residual")
    yield Row("residual-step", (*settings, settings[0]), time_network, (step, "fused-keep"), 3.0)
    gated = Workload("step", "training step", 192, 1, (8, 16, 32, 64), batch=64, graph=True)
    yield Row("gated beside residual-step", ("library",), time_network, (gated, "fused-keep"), 3.0)
    for norm, back in product(NORMS, (False, True)):
        name = f"residual layer 192, {RESIDUAL_PAIRS} pairs, {norm}{', back' * back}"
        yield Row(name, settings, time_residual_layer, (192, RESIDUAL_PAIRS, norm, back), 0.5)


def measure(row: Row, settings: tuple[str, ...], bad: set[str], deadline: float) -> Iterator[dict[str, Any]]:
    """A row by one setting after the other, as long as there is time."""
    state: dict[str, Any] = {}
    for setting in settings:
        entry: dict[str, Any] = {"row": row.name, "setting": setting}
        start = time.monotonic()
        if bad & set(setting.split("+")):
            yield entry | {"failed": "not as exact as eager, or no result: see the checks"}
        elif start + row.cost > deadline:
            yield entry | {"failed": "no time"}
        else:
            try:
                more = {"state": state} if row.measure is time_network else {}
                entry |= row.measure(*row.arguments, setting, **more)
            except Exception as error:
                entry |= {"failed": f"{type(error).__name__}: {error}"[:400]}
            free_memory(compiled=row.name.endswith("compiled"))
            yield entry | {"seconds": round(time.monotonic() - start, 1)}


def table(entries: list[dict[str, Any]]) -> str:
    """A line for each row: every setting with its time, and in brackets how it compares with the first."""
    lines, names = [], list(dict.fromkeys(entry["row"] for entry in entries))
    for name in names:
        parts, first = [], None
        for entry in (entry for entry in entries if entry["row"] == name):
            value = entry.get("milliseconds", entry.get("microseconds"))
            if value is None:
                parts.append(f"{entry['setting']} -")
                continue
            first = first or value
            parts.append(f"{entry['setting']} {value:g}" + (f" ({value / first - 1:+.1%})" if value != first else ""))
        unit = "us" if any("microseconds" in entry for entry in entries if entry["row"] == name) else "ms"
        lines.append(f"{name} [{unit}]: {'; '.join(parts)}")
    return "\n".join(lines)


def main() -> None:
    """Check, time, write and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("result", metavar="RESULT.json")
    parser.add_argument("--seconds", type=float, default=95.0, help="all of it, with the checks")
    parser.add_argument("--check-seconds", type=float, default=45.0, help="at most, for the checks; 0 leaves them out")
    parser.add_argument("--checks", default="", help="only checks with this text in their names, such as '384 maps'")
    parser.add_argument("--processes", type=int, default=max(1, min(14, (os.cpu_count() or 4) - 2)))
    parser.add_argument("--rows", nargs="*", help="rows with one of these texts in their names, all unless given")
    parser.add_argument("--settings", nargs="*", help="by which to time them, each row's own unless given")
    arguments = parser.parse_args()
    begin = time.monotonic()
    record: dict[str, Any] = {"checks": [], "rows": []}

    def save() -> None:
        write_json(Path(arguments.result), record)

    def give_up() -> None:
        # A kernel that hangs cannot be interrupted.
        save()
        print(table(record["rows"]) + "\ntime is up: a row hangs, or took far longer than it should", flush=True)
        os._exit(3)

    watch = threading.Timer(arguments.seconds + 8, give_up)
    watch.daemon = True
    watch.start()
    bad: set[str] = set()
    if arguments.check_seconds:
        record["checks"], bad = check_all(arguments.check_seconds, arguments.processes, arguments.checks)
        passed = [check["passed"] for check in record["checks"]]
        print(f"checks: {passed.count(True)} passed, {passed.count(False)} failed, {passed.count(None)} not reached")
        for check in record["checks"]:
            if check["passed"] is False:
                print("  failed:", json.dumps(check)[:300])
        print(f"{time.monotonic() - begin:.0f} s", flush=True)
    record |= environment(DEVICE)
    save()
    for row in rows():
        if arguments.rows and not any(name in row.name for name in arguments.rows):
            continue
        for entry in measure(row, tuple(arguments.settings or row.settings), bad, begin + arguments.seconds):
            record["rows"].append(entry)
            print(json.dumps({name: value for name, value in entry.items() if name != "profile"}), flush=True)
        save()
    print(table(record["rows"]))
    print(f"{time.monotonic() - begin:.0f} s")
    watch.cancel()


if __name__ == "__main__":
    main()
