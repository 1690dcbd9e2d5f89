"""Hardware counters of single launches by Nsight Compute, on a GPU of compute capability 9.0.

    python benchmarks/kernel_counters.py RESULT.json
    python benchmarks/kernel_counters.py RESULT.json --cases "layer_forward 96" --ncu /usr/local/cuda/bin/ncu

Layers run forward and back as the library launches them; one launch of each case is profiled, after a call that
compiled it. Clocks are left alone (``--clock-control none``), and caches are not emptied. Nsight Compute is asked for
whole sections, and for single counters only where it knows their names. Of what it prints the useful columns go to the
result, and a line for each launch is printed.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from research.bench.scripts.kernel_checks import DEVICE, Layer, use
from riffle.environment import environment
from riffle.files import write_json
from riffle.kernels.launches import Launch

NCU = shutil.which("ncu") or "/usr/local/cuda/bin/ncu"
SECTIONS = (
    "SpeedOfLight", "MemoryWorkloadAnalysis", "ComputeWorkloadAnalysis", "Occupancy", "WarpStateStats",
    "SchedulerStats", "LaunchStats",
)  # fmt: skip
OF_PEAK = "avg.pct_of_peak_sustained_active"
METRICS = (
    "lts__t_bytes.sum", "lts__t_sectors_op_read.sum", "lts__t_sectors_op_write.sum",
    "dram__bytes_read.sum", "dram__bytes_write.sum", "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    f"sm__pipe_tensor_cycles_active.{OF_PEAK}", f"sm__pipe_tensor_op_hmma_cycles_active.{OF_PEAK}",
    f"sm__inst_executed_pipe_tensor_op_gmma.{OF_PEAK}", f"sm__inst_executed_pipe_xu.{OF_PEAK}",
)  # fmt: skip
"""Beside the sections, where they exist: names differ from version to version."""
USEFUL = re.compile(
    r"gpu__time_duration|dram__(bytes|throughput)|lts__(t_bytes|t_sectors|throughput|t_sector_hit_rate)"
    r"|l1tex__(throughput|data_(pipe|bank)|t_sector_hit_rate)|sm__(throughput|warps_active|inst_executed|pipe)"
    r"|smsp__(issue_active|warps_eligible|average_warps?_|inst_executed)|launch__(registers|shared_mem|waves|occupancy)"
)
"""Columns of the result begin like this."""
SHOWN = {
    "sm": r"sm__throughput.*pct",
    "tensor": r"sm__(pipe|inst_executed_pipe)_tensor.*pct",
    "dram": r"dram__throughput.*pct",
    "l2": r"lts__throughput.*pct",
    "l1": r"l1tex__throughput.*pct",
    "issue": r"smsp__issue_active.*pct",
    "warps": r"sm__warps_active.*pct",
}
"""Percentages of the printed line, the largest of the columns that match."""


class Case(NamedTuple):
    """A launch to profile: a kernel's name, or "gates" for the library's product, and the layer that has it."""

    launch: str
    features: int
    pairs: int
    keep: bool = False
    skip: bool = False
    back: bool = False

    @property
    def name(self) -> str:
        """In words."""
        return f"{self.launch} {self.features}, {self.pairs} pairs{', kept' * self.keep}{', skip' * self.skip}"


CASES = (
    Case("layer_forward", 96, 2**20),
    Case("layer_forward", 192, 2**19),
    Case("layer_forward", 192, 2**14, keep=True, skip=True),
    Case("layer_forward", 192, 2**11),
    *(Case(launch, 192, pairs, keep=True, back=True)
      for launch in ("product_backward", "update_backward") for pairs in (2**14, 2**19)),
    Case("gates", 192, 2**19, keep=True),
    *(Case(launch, 96, 2**20, keep=True, back=True) for launch in ("product_backward", "update_backward")),
    *(Case(launch, 384, pairs) for launch in ("gates_forward", "candidates_forward") for pairs in (2**16, 2**12)),
)  # fmt: skip


@contextmanager
def profiled(launch: str, done: list[str]) -> Iterator[None]:
    """Let the profiler see the launches of this name only, each of which is added to ``done``."""
    call, multiply = Launch.__call__, torch.mm

    def watch(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        result = function(*arguments, **options)
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()
        done.append(launch)
        return result

    def call_launch(self: Launch, *tensors: Any) -> None:
        watch(call, self, *tensors) if self.kernel == launch else call(self, *tensors)

    def call_product(*arguments: Any, **options: Any) -> Any:
        return watch(multiply, *arguments, **options) if launch == "gates" else multiply(*arguments, **options)

    Launch.__call__, torch.mm = call_launch, call_product  # type: ignore[method-assign]
    try:
        yield
    finally:
        Launch.__call__, torch.mm = call, multiply  # type: ignore[method-assign]


def run_cases(cases: Sequence[Case], path: Path) -> None:
    """Run every case twice, the second time before the profiler; says in a file which launches it saw."""
    use("library+waiting")  # alone, no launch has one before it to wait for
    seen: list[str] = []
    for case in cases:
        layer = Layer(case.features, case.pairs, skip=case.skip, device=DEVICE)
        plan, done = layer.plan(keep=case.keep, shuffle=1), list[str]()

        def run(layer: Layer = layer, plan: Any = plan, back: bool = case.back) -> None:
            layer.forward(plan)
            if back:
                layer.backward(plan)

        run()
        with profiled(case.launch, done):
            run()
        seen += [case.name for _ in done]
        path.write_text(json.dumps(seen))
        del layer, run
        torch.cuda.empty_cache()


def known_metrics(ncu: str) -> list[str]:
    """Those of :data:`METRICS` that this version has on this chip."""
    listed = subprocess.run([ncu, "--query-metrics"], capture_output=True, text=True, check=False).stdout
    names = {line.split()[0] for line in listed.splitlines() if line.split()}
    return [metric for metric in METRICS if metric.partition(".")[0] in names]


def parse(output: str) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Launches and units of metrics from what Nsight Compute prints as CSV, raw page."""
    lines = output.splitlines()
    first = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    # The second line has the units; what a program or the profiler prints has no such number of columns.
    rows = list(csv.reader(lines[first:]))
    heads, units, *rows = rows if len(rows) > 1 else [[], []]
    columns = [i for i, head in enumerate(heads) if USEFUL.match(head)]
    launches = []
    for row in rows:
        if len(row) != len(heads):
            continue
        named = dict(zip(heads, row, strict=True))
        launch: dict[str, Any] = {
            key: named.get(head) for key, head in (("kernel", "Kernel Name"), ("grid", "Grid Size"))
        }
        values = {heads[i]: number(row[i]) for i in columns}
        launches.append(launch | {"metrics": {name: value for name, value in values.items() if value is not None}})
    return launches, {heads[i]: units[i] for i in columns if i < len(units)}


def number(text: str) -> float | None:
    """A number with commas between thousands; None for anything else, such as a metric that could not be had."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return None if math.isnan(value) else value


def line_of(launch: dict[str, Any]) -> str:
    """A launch in one line: microseconds, percentages of peak rates, and what its warps wait for most."""
    metrics = launch["metrics"]
    shown = [f"{metrics.get('gpu__time_duration.sum', 0) / 1000:.1f} us"]
    for label, pattern in SHOWN.items():
        found = [value for name, value in metrics.items() if re.match(pattern, name)]
        shown += [f"{label} {max(found):.0f}%"] if found else []
    stall = re.compile(r"smsp__average_warps_issue_stalled_(\w+?)(_per_issue_active|_not_issued)?\.")
    stalls = {match[1]: value for name, value in metrics.items() if (match := stall.match(name))}
    most = sorted(stalls, key=lambda name: -stalls[name])[:3]
    waits = ", ".join(f"{name} {stalls[name]:.2f}" for name in most)
    return f"{launch.get('case', launch['kernel'])}: {', '.join(shown)}; {waits}"


def profile(ncu: str, names: Sequence[str], seconds: float) -> dict[str, Any]:
    """Run the cases under Nsight Compute."""
    with tempfile.TemporaryDirectory() as folder:
        seen = Path(folder) / "seen.json"
        for metrics in (known_metrics(ncu), []):
            command = [
                ncu, "--clock-control", "none", "--cache-control", "none", "--profile-from-start", "off",
                "--target-processes", "application-only", "--csv", "--page", "raw", "--print-units", "base",
                *(part for section in SECTIONS for part in ("--section", section)),
                *(("--metrics", ",".join(metrics)) if metrics else ()),
                sys.executable, __file__, str(seen), "--run", "--cases", *names,
            ]  # fmt: skip
            result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)
            launches, units = parse(result.stdout)
            if launches:
                break
            print((result.stdout + result.stderr)[-3000:], file=sys.stderr)
        else:
            raise SystemExit("no counters: what Nsight Compute said is above")
        cases = json.loads(seen.read_text()) if seen.exists() else []
    if len(cases) == len(launches):
        launches = [{"case": case} | launch for case, launch in zip(cases, launches, strict=True)]
    return {"launches": launches, "units": units, "profiler": command[1 : command.index(sys.executable)]}


def main() -> None:
    """Profile, write and print; with ``--run``, be what is profiled."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("result", type=Path, metavar="RESULT.json")
    parser.add_argument("--cases", nargs="*", default=[""], help="beginnings of names of cases, all unless given")
    parser.add_argument("--ncu", default=NCU, help="Nsight Compute's command")
    parser.add_argument("--seconds", type=float, default=150.0, help="at most")
    parser.add_argument("--run", action="store_true", help="run the cases; a profiler watches")
    options = parser.parse_args()
    cases = [case for case in CASES if case.name.startswith(tuple(options.cases))]
    if options.run:
        run_cases(cases, options.result)
        return
    if shutil.which(options.ncu) is None:
        raise SystemExit(f"there is no Nsight Compute at {options.ncu}: give another --ncu")
    record = profile(options.ncu, [case.name for case in cases], options.seconds)
    write_json(options.result, {**environment(DEVICE), **record})
    print("\n".join(map(line_of, record["launches"])))


if __name__ == "__main__":
    main()
