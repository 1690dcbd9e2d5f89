"""Model cards: how accurate a trained run is, at every length and on structured inputs, and how it was trained."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from statistics import mean

import torch

from research.files import write_result
from research.ship.quantize import quantized_bits
from riffle.config import differences
from riffle.environment import environment, read_environment
from riffle.quantities import DASH, format_percent
from riffle.recipes import paper
from riffle.shuffle import bits
from riffle.tasks import Task, get_task
from riffle.tasks.families import FAR, LIKE_TRAINING
from riffle.train.checkpoint import read_checkpoint
from riffle.train.evaluate import FACTORS, Score, evaluate, least_accurate, read_scores, tested_between, with_between
from riffle.train.run import Run

ASKED = (80, 98, 240, 300, 800, 1000)
"""Lengths between powers of two at which a run is tested as ``riffle solve`` asks it, beside the bare network."""
LONGEST = 2**16
CELLS = 2**17
"""Cells of all examples of one length together, for a network of 192 maps and one block."""
MOST_EXAMPLES, FEWEST_EXAMPLES = 1024, 4


def tested_powers(trained: int) -> list[int]:
    """The powers of two at which a run is tested: all up to the trained length, 8 times it, and every fourfold.

    >>> tested_powers(64)
    [8, 16, 32, 64, 256, 512, 1024, 4096, 16384, 65536]
    """
    short = [2**power for power in range(3, bits(trained) + 1)]
    far = [trained * 4**power for power in range(1, 6) if trained * 4**power <= LONGEST]
    return sorted([*short, 8 * trained, *far])


def measure_accuracy(run: Run, *, device: str = "cpu", cells: int = CELLS) -> list[Score]:
    """Score a run at and between powers of two, as ``riffle solve`` asks it, on worst cases and on every family.

    Args:
        run: The trained run.
        device: Where to measure.
        cells: Cells of all examples of one length together for 192 maps and one block; other networks get as many as
            take the same time, and every length 4 to 1024 examples.
    """
    config = run.config
    task, trained = get_task(config.task), config.data.longest_input
    powers = tested_powers(trained)
    beside = sorted({*ASKED, *(length for factor in FACTORS for length in with_between(factor * trained)[:-1])})
    work = [("uniform", length, False) for length in sorted([*powers, *beside])]
    work += [("uniform", length, True) for length in beside if type(task).fill is not Task.fill]
    structured = [*task.splits, *task.families()]
    work += [(split, factor * trained, False) for factor in FACTORS for split in structured]
    model = run.model(device)
    cells = int(cells * (192 / config.model.features) ** 2 / config.model.blocks)
    scores: list[Score] = []
    for split, length, filled in work:
        examples = max(FEWEST_EXAMPLES, min(MOST_EXAMPLES, cells // length))
        fill = run.padded if filled else None
        scores += evaluate(model, task, [length], splits=[split], examples=examples, trained_length=trained, fill=fill)
    return scores


def write_scores(run: Run, scores: Sequence[Score], device: str) -> None:
    """Write a run's evaluation."""
    kept = ({name: value for name, value in asdict(score).items() if value is not False} for score in scores)
    rounded = [{name: round(v, 6) if isinstance(v, float) else v for name, v in each.items()} for each in kept]
    write_result(run.folder / "evaluation.json", {"environment": environment(torch.device(device)), "scores": rounded})


Accuracy = tuple[float, float]
"""Symbols and whole sequences right."""


def summarize(runs: Sequence[Sequence[Score]], task: Task, trained: int) -> dict[str, Accuracy | None]:
    """Accuracy where it counts, the mean of several runs of one task; None where it was not measured.

    "Asked" is the mean of six lengths, as ``riffle solve`` asks them. "Worst" is the worst case or family with the
    fewest whole sequences right in the mean of the runs.
    """
    found: dict[tuple[str, int, bool], list[Score]] = {}
    for score in (score for scores in runs for score in scores):
        found.setdefault((score.split, score.length, score.filled), []).append(score)

    def average(*places: tuple[str, int, bool]) -> Accuracy | None:
        scores = [score for place in places for score in found.get(place, [])]
        if not scores:
            return None
        return mean(score.symbol_accuracy for score in scores), mean(score.sequence_accuracy for score in scores)

    def worst(length: int, *, far: bool) -> Accuracy | None:
        names = [*task.splits, *task.families()]
        # Those whose carries or runs grow with the input, beyond what trained lengths have.
        grow = {name for name in names if name.startswith(FAR) or name == "longest-carry"}
        means = (average((name, length, False)) for name in names if (name in grow) == far or length == trained)
        return min(filter(None, means), key=lambda accuracy: accuracy[::-1], default=None)

    asked = [("uniform", length, ("uniform", length, True) in found) for length in ASKED]
    return {
        "trained length": average(("uniform", trained, False)),
        **{f"{factor} times": average(("uniform", factor * trained, False)) for factor in (4, 8, 64, 1024)},
        "300, bare": average(("uniform", 300, False)),
        "1000, bare": average(("uniform", 1000, False)),
        "80 to 1000, asked": average(*asked),
        "worst": worst(trained, far=False),
        "8 times, worst": worst(8 * trained, far=False),
        "8 times, carries over 31": worst(8 * trained, far=True),
    }


def format_accuracy(accuracy: Accuracy | None) -> str:
    """Symbols and whole sequences right: ``99.90% / 87.50%``."""
    return " / ".join(map(format_percent, accuracy)) if accuracy else DASH


def model_card(run: Run) -> str:
    """The model card of a run: its training and its accuracy, from the files in its folder."""
    config, longest = run.config, run.config.data.longest_input
    matrices = quantized_bits(read_checkpoint(run.checkpoint, "model."))
    lines = [
        f"# {config.task}",
        "",
        f"Weights of a network that learned the task `{config.task}` from examples of length ≤ "
        f"{longest}: {config.model.features} feature maps, {config.model.blocks} Beneš "
        f"block{'s' if config.model.blocks > 1 else ''}, {run.saved_step()} steps, "
        f"matrices rounded to int{matrices}.",
        *_best_weights(run),
        "",
        "What differs from the recipe `paper`:",
        "",
        *(f"- `{name}={new}`" for name, (_, new) in differences(paper(config.task), config).items()),
    ]
    about = read_environment(run.folder)
    if about:
        lines += ["", f"Trained on: {about['device']}, torch {about['versions']['torch']}."]
        lines += [f"Commit: {about['commit']}."] if about["commit"] else []
        lines += [f"Command: `{shlex.join(about['command'])}`."]
        lines += [about["note"]] if "note" in about else []
    scores = read_scores(run)
    parts = (_over_length(scores), _asked(scores), _structured(scores, longest, bool(config.data.structure)))
    return "\n".join([*lines, *(line for part in parts for line in part)]) + "\n"


def _best_weights(run: Run) -> list[str]:
    """The step of the weights and what chose it, if it is not the last one."""
    settings = run.config.train
    if settings.keep == "last":
        return []
    where = f"by accuracy at length {settings.evaluate_lengths[0]}" if settings.evaluate_lengths else "as evaluated"
    if run.config.data.structure:
        where = f"by mean accuracy on uniform and structured examples of length {_listed(settings.evaluate_lengths)}"
    return [f"They are those after step {run.weights_step()}, the best {where}."]


def _over_length(scores: Sequence[Score]) -> list[str]:
    """Accuracy of uniform examples at powers of two, beside the least accurate of the lengths between."""
    uniform = [score for score in scores if score.split == "uniform" and not score.filled]
    beside = {score.length: tested_between(uniform, score.length) for score in uniform}
    among = {score.length for group in beside.values() for score in group}
    if not uniform:
        return []
    about = "Accuracy of these weights on fresh examples"
    heads = ["length", "examples", "symbols", "sequences"]
    if among:
        about += ", and of the least accurate of the lengths between the power of two and its half that were tested"
        heads += ["between: length", "symbols", "sequences"]
    rows = []
    for score in uniform:
        if score.length in among:
            continue
        row = [str(score.length), str(score.examples), *_percents(score)]
        if among:
            group = beside[score.length]
            row += [str(least_accurate(group).length), *_percents(least_accurate(group))] if group else [DASH] * 3
        rows.append(row)
    return ["", f"{about}:", "", *markdown_table(heads, rows)]


def _asked(scores: Sequence[Score]) -> list[str]:
    """Accuracy where inputs are filled up, beside that of the bare network."""
    bare, filled = (
        {score.length: score for score in scores if score.split == "uniform" and score.filled == asked}
        for asked in (False, True)
    )
    rows = [[str(length), *_percents(bare[length]), *_percents(filled[length])] for length in filled]
    if not rows:
        return []
    about = "As `riffle solve` asks, inputs filled up to a power of two first, beside the bare network:"
    heads = ["length", "bare: symbols", "sequences", "filled: symbols", "sequences"]
    return ["", about, "", *markdown_table(heads, rows)]


def _structured(scores: Sequence[Score], longest: int, marked: bool) -> list[str]:
    """Accuracy of worst cases and families, a row for each and one for the worst."""
    by_place = {(score.split, score.length): score for score in scores if score.split != "uniform"}
    kinds, lengths = (list(dict.fromkeys(part)) for part in zip(*by_place, strict=True)) if by_place else ([], [])
    if not kinds:
        return []
    tested = [longest * factor for factor in FACTORS if longest * factor in lengths]
    counted = any(score.held_out is not None for score in by_place.values())
    rows = [
        [
            f"{kind} \\*" if marked and kind in LIKE_TRAINING else kind,
            *([_inputs(by_place.get((kind, longest)))] if counted else []),
        ]
        + [" / ".join(_percents(by_place[kind, n])) if (kind, n) in by_place else DASH for n in tested]
        for kind in kinds
    ]
    worst = least_accurate([by_place[place] for place in by_place if place[1] == longest])
    how = f"the worst at {longest} is {worst.split}" if worst.sequence_accuracy < 1 else f"all right at {longest}"
    about = f"Structured inputs, symbols / sequences; {how}"
    about += ". \\* training makes inputs of this kind, too" if marked else ""
    about += f". Carries of {FAR} pass more than 31 columns" if any(kind.startswith(FAR) for kind in kinds) else ""
    return [
        "",
        f"{about}:",
        "",
        *markdown_table(["", *(["inputs"] if counted else []), *map(str, tested)], rows, text_columns=1),
    ]


def _inputs(score: Score | None) -> str:
    """How many distinct inputs were tested, and how many of them training never drew."""
    if score is None or score.held_out is None:
        return DASH
    return f"{score.examples:,}" + ("" if score.held_out == score.examples else f", {score.held_out:,} held out")


def _listed(values: Iterable[object]) -> str:
    """``1, 2 and 3``."""
    *first, last = map(str, values)
    return f"{', '.join(first)} and {last}" if first else last


def _percents(score: Score) -> list[str]:
    return [format_percent(score.symbol_accuracy), format_percent(score.sequence_accuracy)]


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, text_columns: int = 0) -> list[str]:
    """The lines of a table in Markdown; columns after the first ``text_columns`` are right-aligned."""
    rule = "|" + "---|" * text_columns + "---:|" * (len(heads) - text_columns)
    head, *body = ("|" + "".join(f" {cell} |" if cell else " |" for cell in row) for row in (heads, *rows))
    return [head, rule, *body]
