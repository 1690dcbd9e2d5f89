"""A trained run that reads passages: how many it answers, and what it answers to one."""

# E = examples
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from riffle.config import Reading
from riffle.lambada.breakdown import Score, breakdown
from riffle.lambada.corpus import Corpus
from riffle.lambada.passages import Passages, read_evaluation
from riffle.train.record import environment
from riffle.train.run import Run, find_run
from riffle.train.shipped import SHIPPED
from riffle.train.subject import reading_of

TASK = Reading().task
RUNS = Path("runs")
"""Where runs are looked for."""


class TrainedReader:
    """A run of ``riffle lambada train``, ready to be used.

    Args:
        run: The run.
        device: Where it reads.

    Raises:
        ValueError: The run learned something else, or its words are not those its weights were trained with.
    """

    def __init__(self, run: Run, device: Any = "cpu") -> None:
        if not isinstance(run.experiment, Reading):
            raise ValueError(
                f"{run.folder} was trained to {run.experiment.task!r}, not to read passages: "
                "train one with riffle lambada train"
            )
        self.run = run
        self.model = run.model(device)
        self.subject = reading_of(run.experiment, run.folder, device)

    def evaluate(
        self,
        passages: Passages,
        *,
        placements: int = 1,
        on_progress: Callable[[int], None] = lambda examples: None,
    ) -> dict[str, dict[str, Score]]:
        """Accuracy on passages whose last word is the answer, see :func:`riffle.lambada.breakdown.breakdown`.

        Args:
            passages: The passages; of one longer than the network's positions the last words are read.
            placements: Places among the positions over which probabilities are averaged.
            on_progress: Called with the number of passages just answered.
        """
        examples = self.subject.examples_of(passages)
        pointed = self.subject.point(self.model, examples, placements=placements, on_progress=on_progress)
        known_V = examples.lookup_V.cpu() - self.subject.words.first_known
        return breakdown(pointed, known_V[pointed.answers])

    def report(
        self,
        splits: Mapping[str, Passages],
        *,
        placements: int = 1,
        on_progress: Callable[[int], None] = lambda examples: None,
    ) -> dict[str, Any]:
        """What evaluation.json holds: the accuracy on every split, and by what it was measured."""
        scores = {
            name: self.evaluate(passages, placements=placements, on_progress=on_progress)
            for name, passages in splits.items()
        }
        return {
            "task": self.run.experiment.task,
            "run": str(self.run.folder),
            "step": self.run.saved_step(),
            "positions": self.subject.positions,
            "placements": placements,
            "splits": scores,
            "environment": environment(self.subject.device),
        }

    def likely(self, tokens: Sequence[str], placements: int = 1) -> dict[str, float]:
        """How likely words are to follow the tokens of a passage."""
        return self.subject.likely(self.model, tokens, placements)


def find_reader(folder: Path | None) -> Run:
    """The run of a folder, else the newest one below :data:`RUNS` that reads, else the one in the package."""
    run = Run(folder) if folder else find_run(TASK, RUNS) or find_run(TASK, SHIPPED)
    if run is None:
        raise ValueError(
            f"no run below {RUNS} reads passages: train one with riffle lambada train, or name one by --run"
        )
    return run


def read_splits(names: Sequence[str], corpus: Path) -> dict[str, Passages]:
    """The passages of files, and of splits of a prepared corpus, by name.

    Args:
        names: Files of passages, one a line, the answer last, and names of splits; without any, all splits of the
            corpus that are not trained on.
        corpus: The corpus that names without a file belong to.
    """
    files = [Path(name) for name in names if Path(name).exists()]
    splits = [name for name in names if not Path(name).exists()]
    found = read_evaluation(files)
    if splits or not names:
        prepared = _corpus(corpus, splits)
        for name in splits or prepared.held_out:
            passages = [prepared.passage(example) for example in prepared.examples(name)]
            if name in found or not passages:
                raise ValueError(f"{name!r} {'is the name of a file as well' if name in found else 'has no passages'}")
            found[name] = [[*context, answer] for context, answer in passages]
    return found


def _corpus(folder: Path, splits: Sequence[str]) -> Corpus:
    try:
        return Corpus(folder)
    except ValueError as error:
        asked = f"{', '.join(splits)} is no file" if splits else "no passages were named"
        raise ValueError(f"{asked}, and {error}; or give a file of passages with --split") from None
