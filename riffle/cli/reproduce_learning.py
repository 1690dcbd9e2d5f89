"""``riffle reproduce`` of what is learned: one display over all runs."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from riffle.cli.display import choose_device, errors, print_claims, print_json
from riffle.quantities import format_wait
from riffle.reproduce import get_figure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from riffle.reproduce.jobs import PendingRun, RunJob, RunUpdate
    from riffle.reproduce.specs import RunSpec


AT_ONCE = 6
"""Runs at the same time on a GPU, which one small network does not fill."""


@dataclass(frozen=True, kw_only=True)
class ReproduceOptions:
    """What is asked for: the options of ``riffle reproduce``."""

    quick: bool
    runs: int | None
    only: tuple[str, ...]
    changes: tuple[str, ...]
    devices: tuple[str, ...]
    at_once: int | None
    minutes: float | None
    results: Path
    work: Path
    commit: str | None


@dataclass
class Outcome:
    """How the runs ended."""

    ended: Counter[str] = field(default_factory=Counter)
    """How many were finished, stopped or failed."""
    signal: int | None = None
    """What stopped them."""

    @property
    def status(self) -> int:
        """The command's exit status."""
        return 128 + self.signal if self.signal else int(self.ended["failed"] > 0)


def learn(name: str, wishes: ReproduceOptions) -> Outcome:
    """Train and measure all runs of an experiment that are not finished."""
    import torch

    from riffle.environment import commit, device_name
    from riffle.reproduce.jobs import pending_runs
    from riffle.reproduce.runner import record_time, run_jobs, shared_gpu

    devices = [choose_device(device) for device in wishes.devices or ("auto",)]
    on_gpu, cores = devices[0].startswith("cuda"), os.cpu_count() or 1
    at_once = wishes.at_once or (AT_ONCE if on_gpu else cores)
    learners = _learners(name, wishes)
    about = {
        "command": shlex.join(["riffle", *sys.argv[1:]]),
        "commit": wishes.commit or commit(),
        "at_once": at_once,
        "quick": wishes.quick,
    }
    todo = pending_runs(learners, wishes.results, wishes.work, about)
    board = RunProgress(todo, at_once * len(devices))
    done = len(learners) - len(todo)
    errors.print(f"{name}: {len(learners)} runs, {done} finished before; {board.left()}", highlight=False)
    if not todo:
        return Outcome()
    clock = record_time(
        wishes.results / name / "time.json",
        {**about, "hardware": [device_name(torch.device(device)) for device in devices], "steps": board.steps_left()},
        board.ended,
    )
    with clock, shared_gpu(on_gpu and at_once > 1) as variables, board.bar:
        stopped = run_jobs(
            [each.order for each in todo],
            devices * at_once,  # devices in turn, so that each gets its share of few runs
            threads=max(1, cores // (at_once * len(devices))),
            seconds=wishes.minutes * 60 if wishes.minutes else None,
            variables=variables,
            tell=board.tell,
        )
    if stopped or board.ended["stopped"]:
        why = signal.Signals(stopped).name if stopped else "time is over"
        errors.print(f"stopped: {why}; everything is saved, and the same command goes on", highlight=False)
    return Outcome(board.ended, stopped)


def show(name: str, root: Path, *, json: bool) -> None:
    """Draw the figure of the results there are, and print the claims."""
    from riffle.reproduce.results import draw_figure, read_figure_results

    figure = get_figure(name)
    results, names = read_figure_results(name, root), [*figure.FOLDERS, *(each.folder for each in figure.configs())]
    folders = ", ".join(str(root / folder) for folder in dict.fromkeys(names))
    claims = figure.claims(results)
    if json:
        found = [claim._asdict() | {"verdict": claim.verdict} for claim in claims]
        print_json({"experiment": name, "runs": [result["run"] for result in results], "claims": found})
    elif results:
        print_claims(claims)
    drawn = f"figure: {', '.join(map(str, draw_figure(name, root)))}" if results else "nothing to draw"
    errors.print(f"numbers of {len(results)} runs: {folders}   {drawn}", markup=False, soft_wrap=True)


def _learners(name: str, wishes: ReproduceOptions) -> list[RunSpec]:
    from riffle.reproduce.specs import with_overrides

    figure = get_figure(name)
    runs = wishes.runs or (1 if wishes.quick else figure.RUNS)
    learners = [with_overrides(each, wishes.changes) for each in figure.configs(quick=wishes.quick, runs=runs)]
    chosen = [each for each in learners if not wishes.only or any(text in each.name for text in wishes.only)]
    if not chosen:
        names = ", ".join(each.name for each in learners)
        raise ValueError(f"--only {','.join(wishes.only)} leaves no run of {names}")
    return chosen


class RunProgress:
    """A progress bar over all runs and one for each that is going on; knows how long it will take.

    Args:
        todo: The runs.
        at_once: How many of them go on at the same time.
    """

    def __init__(self, todo: Sequence[PendingRun], at_once: int) -> None:
        from riffle.reproduce.runner import TimeEstimate

        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            console=errors,
            expand=True,
        )
        self.steps = {each.order.learner.name: each.step for each in todo}
        self.learners = {each.order.learner.name: each.order.learner for each in todo}
        self.heard: Counter[str] = Counter()
        self.bars: dict[str, TaskID] = {}
        self.ended: Counter[str] = Counter()
        self.estimate = TimeEstimate(at_once)
        for each in todo:
            if each.rate is not None:
                self.estimate.note(each.order.learner.group, each.rate)
        self.told = bool(self.estimate.rates)
        self.total = sum(self._total(name) for name in self.learners)
        self.whole = self.bar.add_task("all runs", total=self.total, note="")

    def _total(self, name: str) -> int:
        return self.learners[name].config.train.steps

    def left(self) -> str:
        """What there is to do, and how long it will take where that is known."""
        left = [(self.learners[name].group, self._total(name) - step) for name, step in self.steps.items()]
        seconds = self.estimate.seconds(left)
        time = f", about {format_wait(seconds)}" if seconds else ""
        return f"{self.steps_left():,} steps to go{time}"

    def steps_left(self) -> int:
        """Steps of all runs together."""
        return sum(self._total(name) - step for name, step in self.steps.items())

    def tell(self, order: RunJob, news: RunUpdate) -> None:
        """Take note of what a run reports."""
        name = order.learner.name
        if news.kind == "step":
            self._step(name, news)
        elif news.kind == "measuring":
            self._show(name, self._total(name), "measured")
        else:
            self.ended[news.kind] += 1
            del self.steps[name]
            if name in self.bars:
                self.bar.remove_task(self.bars.pop(name))
            self._say(f"{name}: {news.kind}" + (f": {news.reason}; see {order.log}" if news.reason else ""))

    def _step(self, name: str, news: RunUpdate) -> None:
        self.heard[name] += 1
        if self.heard[name] > 1:  # the first steps also load and compile
            self.estimate.note(self.learners[name].group, news.rate)
            if not self.told:
                self.told = True
                self._say(self.left())
        self._show(name, news.step, f"{news.rate:.0f} steps/s")

    def _show(self, name: str, step: int, note: str) -> None:
        self.steps[name] = step
        if name not in self.bars:
            self.bars[name] = self.bar.add_task(name, total=self._total(name), note="")
        self.bar.update(self.bars[name], completed=step, note=note)
        self.bar.update(self.whole, completed=self.total - self.steps_left(), note=self.left())

    def _say(self, text: str) -> None:
        self.bar.console.print(text, highlight=False, markup=False, soft_wrap=True)
