"""``python -m research reproduce`` behind progress bars: training runs in processes, and timing series."""

from __future__ import annotations

import os
import signal
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from riffle.cli.display import choose_device, errors, have, progress_bar
from riffle.quantities import format_wait

if TYPE_CHECKING:
    from research.bench.over_length import Series
    from research.reproduce.figure import LearningFigure, TimingFigure
    from research.reproduce.jobs import RunJob, RunUpdate
    from research.reproduce.specs import RunSpec


T = TypeVar("T", "RunSpec", "Series")
AT_ONCE = 6
"""Runs at the same time on a GPU, which one small network does not fill."""


class ReproduceOptions(NamedTuple):
    """Options of ``python -m research reproduce``."""

    quick: bool
    only: tuple[str, ...]
    results: Path
    devices: tuple[str, ...]
    commit: str | None
    memory: float | None
    budget: float
    runs: int | None
    changes: tuple[str, ...]
    at_once: int | None
    minutes: float | None
    work: Path


def measure_series(figure: TimingFigure, options: ReproduceOptions) -> None:
    """Measure the series of a timing figure."""
    import torch

    from research.reproduce.figure import measure_timing

    selected = _select("series", figure.series(options.quick), options.only, "; ")
    with progress_bar() as bar:
        task = bar.add_task(figure.name, total=sum(len(series.lengths) for series in selected))
        measurements = measure_timing(
            figure,
            selected,
            options.results,
            torch.device(choose_device(",".join(options.devices))),
            memory=options.memory,
            budget=options.budget,
            quick=options.quick,
            commit=options.commit,
            keep_others=bool(options.only),
            on_point=lambda series, point: bar.update(task, advance=1, description=f"{series.name}, {point['length']}"),
        )
        for series, measured in measurements:
            lengths = len(measured["points"])
            bar.advance(task, len(series.lengths) - lengths)
            stopped = f"; {measured['stopped']}" if measured["stopped"] else ""
            text = f"{series.name}: {lengths} lengths in {measured['seconds']:.0f} s{stopped}"
            bar.console.print(text, highlight=False, markup=False)


def train_runs(figure: LearningFigure, options: ReproduceOptions) -> int:
    """Train and measure the runs of a figure that have no result; returns the exit status of the command."""
    import torch

    from research.files import command_line
    from research.reproduce.jobs import pending_jobs
    from research.reproduce.runner import multi_process_service, record_time, run_jobs
    from riffle.config import override
    from riffle.environment import commit, device_name

    devices = [choose_device(device) for device in options.devices or ("auto",)]
    on_gpu, cores = devices[0].startswith("cuda"), os.cpu_count() or 1
    at_once = options.at_once or (AT_ONCE if on_gpu else cores)
    specs = figure.specs(quick=options.quick, runs=options.runs)
    specs = [replace(spec, config=override(spec.config, options.changes)) for spec in specs]
    specs = _select("run", specs, options.only, ", ")
    provenance = {
        "command": command_line(),
        "commit": options.commit or commit(),
        "at_once": at_once,
        "quick": options.quick,
    }
    jobs = pending_jobs(specs, options.results, options.work, provenance)
    progress = RunProgress(jobs, at_once * len(devices))
    finished = f"{len(specs)} runs, {len(specs) - len(jobs)} finished before"
    errors.print(f"{figure.name}: {finished}; {progress.describe_left()}", highlight=False)
    if not jobs:
        return 0
    have("tensorboard", "TensorBoard curves")
    hardware = [device_name(torch.device(device)) for device in devices]
    origin = {**provenance, "hardware": hardware, "steps": sum(progress.steps_left.values())}
    time_record = record_time(options.results / figure.name / "time.json", origin, progress.ended)
    with time_record, multi_process_service(at_once if on_gpu else 0) as variables, progress.bar:
        stopped = run_jobs(
            jobs,
            devices * at_once,  # devices in turn, so that few runs are spread over all of them
            threads=max(1, cores // (at_once * len(devices))),
            seconds=options.minutes * 60 if options.minutes else None,
            variables=variables,
            compile_once=on_gpu,
            on_update=progress.on_update,
        )
    if stopped or progress.ended["stopped"]:
        reason = signal.Signals(stopped).name if stopped else "time is over"
        errors.print(f"stopped: {reason}; everything is saved, and the same command goes on", highlight=False)
    return 128 + stopped if stopped else int(progress.ended["failed"] > 0)


def _select(kind: str, candidates: Sequence[T], only: Sequence[str], separator: str) -> list[T]:
    """The runs or series with one of the texts of ``--only`` in their name."""
    selected = [each for each in candidates if not only or any(text in each.name for text in only)]
    if not selected:
        names = separator.join(each.name for each in candidates)
        raise ValueError(f"--only {','.join(only)} leaves no {kind} of {names}")
    return selected


class RunProgress:
    """A progress bar over all runs, with an estimate of the time left."""

    def __init__(self, jobs: Sequence[RunJob], at_once: int) -> None:
        columns = TextColumn("all runs"), BarColumn(None), MofNCompleteColumn(), TextColumn("{task.description}")
        self.bar = Progress(*columns, console=errors, expand=True)
        self.at_once = at_once
        self.steps_left = {job.spec.name: job.spec.config.train.steps - job.step for job in jobs}
        self.rates = {job.spec.name: job.rate for job in jobs if job.rate is not None}
        self.ended: Counter[str] = Counter()
        """Numbers of runs that finished, stopped and failed."""
        self.total = sum(job.spec.config.train.steps for job in jobs)
        self.task = self.bar.add_task("", total=self.total)

    def describe_left(self) -> str:
        """Steps left, and the time they take where a rate is known: at least that of the longest run."""
        left = sum(self.steps_left.values())
        if not (self.rates and left):
            return f"{left:,} steps to go"
        mean_rate = statistics.harmonic_mean(list(self.rates.values()))  # for runs without a rate
        times = [steps / self.rates.get(name, mean_rate) for name, steps in self.steps_left.items()]
        return f"{left:,} steps to go, about {format_wait(max(sum(times) / self.at_once, *times))}"

    def on_update(self, job: RunJob, update: RunUpdate) -> None:
        """Show an update of a run."""
        name = job.spec.name
        if update.kind == "step":
            self.rates[name] = update.rate
            self.steps_left[name] = job.spec.config.train.steps - update.step
        elif update.kind != "measuring":
            self.ended[update.kind] += 1
            left = self.steps_left.pop(name)
            self.total -= 0 if update.kind == "finished" else left  # which are neither done nor to come
            reason = f": {update.reason}; see {job.log}" if update.reason else ""
            self.bar.console.print(f"{name}: {update.kind}{reason}", highlight=False, markup=False, soft_wrap=True)
        completed = self.total - sum(self.steps_left.values())
        self.bar.update(self.task, total=self.total, completed=completed, description=self.describe_left())
