"""The fifteen tasks of Delétang et al., trained on lengths 1 to 40: accuracy over all lengths 41 to 500."""

# B = batch, N = width of the padded rows, M = the power of two that holds it, L = lengths, E = examples of a length
from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import compress
from typing import Any

import torch
from torch import Tensor

from research.baselines.configs import TransformerConfig
from research.recipes import TRAINED_LENGTH, chomsky
from research.reproduce.figure import LearningFigure
from research.reproduce.results import Result, by_group
from research.reproduce.specs import RunSpec, shrink, with_model_fields, with_train
from riffle.config import DataConfig
from riffle.models.base import SymbolModel
from riffle.models.sequence import SequenceModel
from riffle.nn.lengths import pad_to
from riffle.recipes import with_model
from riffle.shuffle import padded_length
from riffle.tasks import get_task
from riffle.tasks.task import BLANK
from riffle.train.objective import autocast
from riffle.train.run import Run

LENGTHS = range(TRAINED_LENGTH + 1, 501)
EXAMPLES = 64
"""Examples of each length."""
TEST_ROWS = 1_000_003
"""Seed of the rows of the test."""
CELLS = 2**18
"""Cells that go through our network at once."""
SOLVED = 0.9
"""The score from which Delétang et al. call a task solved."""
MODELS = ("RNN", "Stack-RNN", "Tape-RNN", "Transformer", "LSTM")
PUBLISHED: dict[str, tuple[float, ...]] = {
    "even-pairs": (100, 100, 100, 96.4, 100),
    "modular-arithmetic": (100, 100, 100, 24.2, 100),
    "parity": (100, 100, 100, 52.0, 100),
    "cycle": (100, 100, 100, 61.9, 100),
    "stack": (56.0, 100, 100, 57.5, 59.1),
    "reverse-bits": (62.0, 100, 100, 62.3, 60.9),
    "modular-brackets": (41.3, 96.1, 95.4, 32.5, 59.2),
    "equation": (51.0, 56.2, 64.4, 25.7, 67.8),
    "duplicate-bits": (50.3, 52.8, 100, 52.8, 57.6),
    "missing-duplicate": (52.3, 55.2, 100, 56.4, 54.3),
    "odds-first": (51.0, 51.9, 100, 52.8, 55.6),
    "add-unequal": (50.3, 52.7, 100, 54.3, 55.5),
    "multiply-unequal": (50.0, 52.7, 58.5, 52.2, 53.1),
    "square-root": (54.3, 56.5, 57.8, 52.4, 57.5),
    "bucket-sort": (27.9, 78.1, 70.7, 91.9, 99.3),
}
"""Scores in percent of :data:`MODELS` in the main table of Delétang et al., the best over seeds and settings."""
CHECKED = ("parity", "reverse-bits", "bucket-sort")
"""Tasks on which baselines check that training and test are as they were there."""
BASELINE_STEPS = {"lstm": 20_000, "transformer": 10_000}
"""Their steps; a run or three of each are a check, not a comparison."""
CODES = ("rotary", "alibi", "relative", "relative, post-norm")
"""Position codes of the transformer, of which the published one has the best for each task, and its normalisation."""
CHECKS = ("lstm", *(f"transformer, {code}" for code in CODES))
"""Columns of the baselines."""
UNPADDED = (1, 3, 6, 10, 16, 23, 31, TRAINED_LENGTH)
"""Lengths that baselines are trained on, which read inputs without blanks after them."""
OURS = ("gated", "residual")
"""Units of our network."""


def score_lengths(
    run: Run, device: torch.device, lengths: Sequence[int] = LENGTHS, seed: int = TEST_ROWS
) -> dict[str, Any]:
    """The share of right symbols at every length, of those that the answer has; the mean over lengths is the score.

    Computed in the precision of the training. Lengths are grouped by the power of two that holds them. With another
    seed, rows are others than those of the test, to choose settings by.
    """
    task, model = get_task(run.config.task), run.model(device)
    generator = torch.Generator(device).manual_seed(seed)
    accuracy: dict[int, float] = {}
    for bits in sorted({(length - 1).bit_length() for length in lengths}):
        group = [length for length in lengths if (length - 1).bit_length() == bits]
        cells_L = task.reach * torch.tensor(group, device=device)
        width = int(cells_L[-1])
        inputs_BN = task.draw(cells_L.repeat_interleave(EXAMPLES), width, generator=generator)
        targets_BN = task.answer(inputs_BN)
        with torch.inference_mode(), autocast(run.config.train.precision, device):
            outputs_BN = _answers(model, inputs_BN, [task.reach * length for length in group])
        counts_BN = targets_BN != BLANK
        right_BN = counts_BN & (outputs_BN == targets_BN)
        right_L, counts_L = (mask_BN.view(len(group), -1).sum(dim=1) for mask_BN in (right_BN, counts_BN))
        accuracy |= dict(zip(group, (right_L / counts_L).tolist(), strict=True))
    ranges = [(41, 64), (65, 128), (129, 256), (257, 500)]
    parts = {f"{low} to {high}": [a for length, a in accuracy.items() if low <= length <= high] for low, high in ranges}
    means = {name: round(statistics.mean(values), 4) for name, values in parts.items() if values}
    return {"accuracy": {"score": round(statistics.mean(accuracy.values()), 4), **means}}


def _answers(model: SymbolModel, inputs_BN: Tensor, cells: Sequence[int]) -> Tensor:
    """The likeliest symbols but blanks, which no answer has, :data:`EXAMPLES` rows of each number of cells in turn.

    Our network adds blanks up to a power of two, so that rows of one power go through it at once with blanks after
    them, to the same effect. Other models read rows without blanks.
    """
    if isinstance(model, SequenceModel):
        inputs_BM = pad_to(inputs_BN, padded_length(inputs_BN.shape[1]))
        rows = max(CELLS // inputs_BM.shape[1], 1)
        outputs_BM = torch.cat([_symbols(model(part_BM)) for part_BM in inputs_BM.split(rows)])
        return outputs_BM[:, : inputs_BN.shape[1]]
    parts = zip(cells, inputs_BN.split(EXAMPLES), strict=True)
    outputs = [_symbols(model(part_EN[:, :own])) for own, part_EN in parts]
    return torch.cat([pad_to(each_EN, inputs_BN.shape[1]) for each_EN in outputs])


def _symbols(logits_BNC: Tensor) -> Tensor:
    return logits_BNC[..., BLANK + 1 :].argmax(dim=-1) + BLANK + 1


def _spec(task: str, unit: str) -> RunSpec:
    """This network with a unit; gradients of the residual one are clipped and its rate falls, as in its recipe."""
    config = with_model_fields(chomsky(task), unit=unit)
    config = with_train(config, clip=1.0, schedule="linear") if unit == "residual" else config
    return RunSpec(folder="chomsky", group=f"{task}, {unit}", config=config, measure=score_lengths)


def _baseline_spec(task: str, variant: str) -> RunSpec:
    """A baseline, trained without padding, and in float32: bfloat16 does not count to 500.

    Both read before they answer at blanks, as theirs do, and have the size of theirs. As many inputs of the pre-norm
    transformer are structured as of our network; the LSTM and the post-norm transformer, which is theirs, learn from
    uniform ones at a constant rate, as theirs did.
    """
    kind, _, code = variant.partition(", ")
    code, _, norm = code.partition(", ")
    as_theirs = kind == "lstm" or norm == "post-norm"
    config = chomsky(task)
    config = with_model(with_train(config, precision="fp32", steps=BASELINE_STEPS[kind]), kind)
    if kind == "lstm":
        config = with_model_fields(config, features=256, layers=1, reads_first=True, dropout=0.0)
        config = with_train(config, learning_rate=0.0016)
    else:
        config = with_model_fields(config, features=64, layers=5, heads=8, positions=code, reads_first=True)
        config = with_train(with_model_fields(config, post_norm=as_theirs), learning_rate=0.0008)
    if as_theirs:
        config = with_train(config, schedule="constant", weight_decay=0.0)
    structure = 0.0 if as_theirs else config.data.structure
    config = replace(config, data=DataConfig(bins=UNPADDED, batch=16, shorter=0.0, full=1.0, structure=structure))
    runs = 3 if norm else 1
    return RunSpec(folder="chomsky", group=f"{task}, {variant}", config=config, measure=score_lengths, runs=runs)


def _shrink(spec: RunSpec) -> RunSpec:
    small, model = shrink(spec), spec.config.model
    config = small.config
    if isinstance(model, TransformerConfig) and model.heads is not None:
        config = with_model_fields(config, features=2 * model.heads)
    return replace(small, config=config, measure=partial(score_lengths, lengths=(41, 70)))


def scores(results: Sequence[Result], task: str, variant: str) -> list[float]:
    """The scores of the runs of a task with a unit or a baseline."""
    return [run["accuracy"]["score"] for run in by_group(results).get(f"{task}, {variant}", [])]


def table(results: Sequence[Result]) -> tuple[list[str], list[list[float | None]]]:
    """Columns that have a score, in percent of every task: published, then the best and the mean of our runs."""
    columns = [*MODELS, *(f"{unit}, {which}" for unit in OURS for which in ("best", "mean")), *CHECKS]
    rows: list[list[float | None]] = []
    for task, published in PUBLISHED.items():
        row: list[float | None] = [*published]
        for unit in OURS:
            values = scores(results, task, unit)
            row += [100 * max(values), 100 * statistics.mean(values)] if values else [None, None]
        for variant in CHECKS:
            values = scores(results, task, variant)
            row.append(100 * max(values) if values else None)
        rows.append(row)
    filled = [any(row[index] is not None for row in rows) for index in range(len(columns))]
    return [*compress(columns, filled)], [[*compress(row, filled)] for row in rows]


CHOMSKY = LearningFigure(
    name="chomsky",
    networks=lambda: [
        *(_spec(task, unit) for unit in OURS for task in PUBLISHED),
        *(_baseline_spec(task, variant) for variant in CHECKS for task in CHECKED),
    ],
    folders=("chomsky",),
    runs=3,
    shrink=_shrink,
)
