"""The trained models that the page offers, and the tab Solve: an answer beside the true one, symbol by symbol."""

from __future__ import annotations

from functools import cached_property
from html import escape
from itertools import zip_longest
from pathlib import Path

import torch

from riffle.demo.svg import errors_as_markup, tag
from riffle.models.base import SymbolModel
from riffle.quantities import format_percent
from riffle.tasks import TASKS, Task, get_task
from riffle.tasks.task import trim
from riffle.train.run import Run, find_runs
from riffle.train.shipped import SHIPPED, Solution, solve

MAX_SYMBOLS = 4096
MAX_CHARACTERS = 8 * MAX_SYMBOLS
"""The longest input, and the longest text that is parsed at all."""
MISSING = "·"
"""Stands in the shorter one of two answers."""


class LoadedRun(Run):
    """A run whose model is loaded once, on the CPU, and kept in memory."""

    @cached_property
    def _loaded_model(self) -> SymbolModel:
        try:
            return super().model()
        except (ValueError, OSError) as error:  # which names files of the server: for its log alone
            raise RuntimeError("a run on the page cannot be loaded any more") from error

    def model(self, device: str | torch.device = "cpu") -> SymbolModel:
        assert str(device) == "cpu", "the page computes on the CPU"
        return self._loaded_model

    @cached_property
    def task(self) -> Task:
        """The task that the model solves."""
        return get_task(self.config.task)

    @property
    def trained_length(self) -> int:
        """The longest input of the training."""
        return self.config.data.longest_input


class RunCatalogue:
    """Runs by the name under which the page offers them, the shipped ones first, then the newest."""

    def __init__(self, runs: Path, shipped: Path = SHIPPED) -> None:
        self.models: dict[str, LoadedRun] = {}
        for root in (shipped, runs):
            for run in find_runs(root, TASKS):
                # Visitors are not told where the server keeps its runs.
                name = f"{run.config.task} (shipped)" if root == shipped else f"runs/{run.folder.name}"
                self.models[name] = LoadedRun(run.folder)
        if not self.models:
            raise ValueError(f"no trained model below {runs}: train one with `riffle train reverse --recipe small`")

    @property
    def tasks(self) -> list[str]:
        """The tasks that have a model, in the order of :data:`riffle.tasks.TASKS`."""
        trained = {run.config.task for run in self.models.values()}
        return [name for name in TASKS if name in trained]

    def names(self, task: str) -> list[str]:
        """The names of a task's models."""
        return [name for name, run in self.models.items() if run.config.task == task]

    def get(self, name: str) -> LoadedRun:
        """The model of that name; the error for an unknown name lists those that exist."""
        if name not in self.models:
            raise ValueError(f"there is no model {name[:200]!r}; models are {', '.join(self.models)}")
        return self.models[name]


def random_input(task: Task, length: int, seed: int | None = None) -> str:
    """A random input as one would type it; the task's example if the length is too short for the task."""
    generator = torch.Generator()
    generator.seed() if seed is None else generator.manual_seed(seed)
    symbols = trim(task.sample(1, length, generator=generator).inputs[0].tolist())
    text = task.write(symbols)
    try:
        can_be_typed = trim(task.parse(text.split())) == symbols
    except ValueError:
        can_be_typed = False
    return text if can_be_typed else " ".join(task.example)


def parse_input(task: Task, words: list[str], limit: int = MAX_SYMBOLS) -> list[int]:
    """The symbols of an input; refuses more than ``limit``."""
    characters, refusal = sum(map(len, words)) + len(words), "the input is too long: it has"
    if characters > MAX_CHARACTERS:
        raise ValueError(f"{refusal} {characters} characters, and this page reads at most {limit} symbols")
    symbols = task.parse(words)
    if len(symbols) > limit:
        raise ValueError(f"{refusal} {len(symbols)} symbols, and this page takes at most {limit}")
    return symbols


def answer(trained: LoadedRun, text: str) -> Solution:
    """What ``riffle solve`` answers with this run; refuses an input over the page's limit."""
    words = text.split()
    parse_input(trained.task, words)
    return solve(trained.config.task, words, trained)


@errors_as_markup
def show_answer(trained: LoadedRun, text: str) -> str:
    """The answer to an input, its wrong symbols marked."""
    solution = answer(trained, text)
    symbols = len(trained.task.parse(text.split()))
    pairs = compare_answers(trained.task, solution.output, solution.expected)
    wrong = sum(got != right for got, right in pairs)
    cells = [tag("span", "<b>network</b><i>true answer</i>", class_="names")]
    for got, right in pairs:
        mark = None if got == right else "wrong"
        cells.append(tag("span", f"<b>{escape(got)}</b><i>{escape(right)}</i>", class_=mark))
    said = verdict(solution.correct, wrong, len(pairs), symbols / trained.trained_length)
    rows = tag("div", cells, class_="cells", tabindex=0, role="group", aria_label="The answers, symbol by symbol")
    grade = "right" if solution.correct else "partly" if 0 < wrong <= len(pairs) / 2 else "wrong"
    answers = {"data_output": solution.output, "data_expected": solution.expected}
    return tag("section", [tag("p", said, class_="verdict"), rows], class_=f"answer {grade}", **answers)


def verdict(correct: bool, wrong: int, symbols: int, times: float) -> str:
    """One sentence about an answer to an input of so many times the trained length.

    >>> verdict(False, 27, 1024, 16)
    '97.36% of 1024 symbols right at 16 × the trained length.'
    """
    where = f" at {times:.3g} × the trained length" if times > 1 else ""  # noqa: RUF001 (a multiplication sign)
    if correct:
        return f"All {symbols} symbols right{where}." if symbols > 1 else f"Right{where}."
    if wrong == 0:
        return f"Wrong{where}: in blanks or leading zeros, which are not shown."
    if symbols == 1:
        return f"Wrong{where}."
    return f"{format_percent(1 - wrong / symbols)} of {symbols} symbols right{where}."


def alphabet(task: Task) -> str:
    """The symbols of a task's inputs, as they are typed; of many, the first and the last.

    >>> alphabet(get_task("sort"))
    'Symbols: 1 2 3 4 5 6 7 8 9 10 11'
    """
    labels = list(dict.fromkeys(task.label(symbol) for symbol in range(1, task.symbols)))
    return f"Symbols: {' '.join(labels) if len(labels) <= 16 else f'{labels[0]} … {labels[-1]}'}"


def compare_answers(task: Task, got: str, right: str) -> list[tuple[str, str]]:
    """Two answers, split into symbols, in pairs; numbers are aligned at their lowest digit."""
    ours, expected = task.pieces(got), task.pieces(right)
    if task.right_aligned:
        longest = max(len(ours), len(expected))
        ours, expected = ([MISSING] * (longest - len(pieces)) + pieces for pieces in (ours, expected))
    return list(zip_longest(ours, expected, fillvalue=MISSING))
