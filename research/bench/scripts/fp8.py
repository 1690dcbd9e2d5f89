"""How accurate shipped networks are where the inputs of their matrix products are rounded to 8-bit floating point.

    python benchmarks/fp8.py tasks RESULT.json [--task sort ...]
    python benchmarks/fp8.py passages RESULT.json FILE [--passages 2000]
    python benchmarks/fp8.py table RESULT.json

The cells and weights that enter a switch layer's products are rounded to e4m3 and back, as a kernel with 8-bit products
would read them; the products are summed in float32, and all else is as the units define it. Every variant answers the
same examples. What is lost is a mean over examples, with the standard error of that mean; RESULT.json keeps the parts
that are not run again.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from research.ship.card import markdown_table
from riffle.environment import environment
from riffle.files import read_json, write_json
from riffle.kernels.reference import (
    CANDIDATE_SCALE,
    gelu,
    mix,
    normalise_over_features,
    normalise_over_sequence,
    swap_half,
)
from riffle.kernels.tuning import CHUNK_PAIRS
from riffle.lambada.evaluate import TrainedReader, read_splits
from riffle.lambada.pointing import Predictions, predict_answers
from riffle.nn.lengths import pad_to
from riffle.nn.switch import PairUnit, ResidualUnit, SwapGateUnit, SwitchUnit
from riffle.quantities import DASH
from riffle.tasks import get_task
from riffle.tasks.task import BLANK
from riffle.train.data import sample_held_out
from riffle.train.evaluate import answer, batch_rows
from riffle.train.run import Run
from riffle.train.shipped import SHIPPED

E4M3 = torch.float8_e4m3fn
EXAMPLES = {
    "add": {64: 1024, 300: 64, 512: 64, 1000: 32, 4096: 8},
    "sort": {64: 2048, 300: 128, 512: 128, 1000: 64, 4096: 16},
    "rotate": {64: 1024, 300: 128, 512: 128, 1000: 64, 4096: 16},
    "add-base4": {64: 1024, 300: 128, 512: 128, 1000: 64, 4096: 16},
}
"""How many examples of each task and length."""
PASSAGES_AT_ONCE = 64
SEED = 1_000_003


class Variant(NamedTuple):
    """What is rounded, to what, and with how many scales."""

    dtype: torch.dtype | None
    cells: bool = True
    """Whether cells are rounded beside the weights."""
    candidates: bool = True
    """Whether the candidates' product is rounded beside the first, that of the gates."""
    fine: bool = False
    """A scale for each output column of the weights and for each pair, instead of one for each tensor."""


VARIANTS = {
    "float32": Variant(None),
    "e4m3": Variant(E4M3),
    "e4m3, a scale a column and pair": Variant(E4M3, fine=True),
    "e4m3, gates only": Variant(E4M3, candidates=False),
    "e4m3, weights only": Variant(E4M3, cells=False),
    "bfloat16": Variant(torch.bfloat16),
}
"""The first is what the others are compared with; the last is what the fused kernels read."""
BASE = next(iter(VARIANTS))


def rounded(x: Tensor, dtype: torch.dtype | None, *, fine: bool = False) -> Tensor:
    """Numbers rounded to a dtype and back; in 8 bits scaled so that the largest, of all or of a row, is the dtype's.

    >>> rounded(torch.tensor([1.0, 0.99, 0.93, 1e-6]), E4M3).tolist()
    [1.0, 1.0, 0.9285714626312256, 0.0]
    """
    if dtype is None or dtype.itemsize > 1:
        return x if dtype is None else x.to(dtype).to(x.dtype)
    largest = x.abs().amax(dim=-1, keepdim=True) if fine else x.abs().amax()
    scale = (largest / torch.finfo(dtype).max).clamp(min=torch.finfo(x.dtype).tiny)
    return (x / scale).to(dtype).to(x.dtype) * scale


def round_unit(unit: SwitchUnit, variant: Variant) -> None:
    """Round a unit's matrices, and let it round the cells that enter its products."""
    gates_dtype, candidates_dtype = variant.dtype, variant.dtype if variant.candidates else None
    matrices = [(unit.gates.weight, gates_dtype), (unit.candidates_weight, candidates_dtype)]
    if isinstance(unit, SwapGateUnit):
        matrices.append((unit.swap_gate.weight, gates_dtype))
    for matrix, dtype in matrices:
        matrix.copy_(rounded(matrix, dtype, fine=variant.fine))
    weights = unit.weights()

    def cells(x: Tensor, dtype: torch.dtype | None) -> Tensor:
        return rounded(x, dtype if variant.cells else None, fine=variant.fine)

    def pairs(s_PE: Tensor, skip_PE: Tensor | None) -> Tensor:
        read_PE = s_PE if skip_PE is None else s_PE + skip_PE
        gates_read_PE = cells(read_PE, gates_dtype)
        *resets_PE, update_PE = F.linear(gates_read_PE, weights.gates_weight, weights.gates_bias).sigmoid().chunk(3, -1)
        kept_P2E = cells(torch.stack(resets_PE, dim=-2) * read_PE.unsqueeze(-2), candidates_dtype)
        parts = zip(kept_P2E.unbind(-2), weights.candidates_weight, weights.candidates_bias, strict=True)
        candidate_PE = torch.cat([F.linear(*part) for part in parts], dim=-1).tanh()
        copied_PE = swap_half(s_PE) if unit.swap else s_PE
        if isinstance(unit, SwapGateUnit):
            straight_PE = unit.swap_gate(gates_read_PE).sigmoid()
            copied_PE = mix(straight_PE, s_PE, torch.cat(s_PE.chunk(2, dim=-1)[::-1], dim=-1))
        return mix(update_PE, copied_PE, candidate_PE)

    unit.pairs = pairs  # type: ignore[method-assign]


def round_residual_unit(unit: ResidualUnit, variant: Variant) -> None:
    """The same for a residual unit, whose first product forms the hidden features."""
    dtypes = variant.dtype, variant.dtype if variant.candidates else None
    for matrix, dtype in zip((unit.hidden_weight, unit.candidate_weight), dtypes, strict=True):
        matrix.copy_(rounded(matrix, dtype, fine=variant.fine))
    normalise = normalise_over_sequence if unit.norm == "sequence" else normalise_over_features
    read, active = (dtype if variant.cells else None for dtype in dtypes)

    def pairs(s_PE: Tensor, skip_PE: Tensor | None) -> Tensor:
        hidden = F.linear(rounded(s_PE, read, fine=variant.fine), unit.hidden_weight)
        active_P2E = rounded(gelu(normalise(hidden, unit.hidden_bias)), active, fine=variant.fine)
        candidate_PE = F.linear(active_P2E, unit.candidate_weight, unit.candidate_bias)
        return torch.sigmoid(2 * unit.residual) * s_PE + CANDIDATE_SCALE * candidate_PE

    unit.pairs = pairs  # type: ignore[method-assign]


@torch.no_grad()
def rounded_model(model: nn.Module, variant: Variant) -> nn.Module:
    """A copy of a model whose switch units round the inputs of their products."""
    model = copy.deepcopy(model).eval()
    for unit in [unit for unit in model.modules() if isinstance(unit, PairUnit)]:
        if isinstance(unit, ResidualUnit):
            round_residual_unit(unit, variant)
        else:
            assert isinstance(unit, SwitchUnit), f"{type(unit).__name__} has no rounded form"
            round_unit(unit, variant)
    return model


class Counts(NamedTuple):
    """What is right in every example, and of how many."""

    right: Tensor
    of: Tensor


def compare(found: Counts, base: Counts) -> dict[str, float]:
    """The share that is right in percent, the points lost on the base's, and the standard error of that difference."""
    shares = [counts.right.sum().item() / counts.of.sum().item() for counts in (found, base)]
    # Examples are independent, what is right within one is not: each has its part in the difference.
    parts = [
        (counts.right - share * counts.of).double() / counts.of.sum()
        for counts, share in zip((found, base), shares, strict=True)
    ]
    error = (parts[0] - parts[1]).square().sum().sqrt().item()
    numbers = {"percent": shares[0], "lost": shares[1] - shares[0], "error": error}
    return {name: round(100 * number, 4) for name, number in numbers.items()}


def count_rows(outputs_BN: Tensor, targets_BN: Tensor) -> tuple[Counts, Counts]:
    """Symbols as the paper counts them, and whole sequences."""
    matters_BN = (targets_BN != BLANK) | (outputs_BN != BLANK)
    right_BN = outputs_BN == targets_BN
    whole_B = right_BN.all(dim=1).long()
    return Counts((right_BN & matters_BN).sum(dim=1), matters_BN.sum(dim=1)), Counts(whole_B, torch.ones_like(whole_B))


@torch.inference_mode()
def score_task(name: str, lengths: Mapping[int, int]) -> list[dict[str, Any]]:
    """Symbols and whole sequences of a shipped network at several lengths, by every variant."""
    run, task = Run(SHIPPED / name), get_task(name)
    models = {variant: rounded_model(run.model("cpu"), form) for variant, form in VARIANTS.items()}
    entries = []
    for length, examples in lengths.items():
        generator = torch.Generator().manual_seed(SEED + length)
        counted: dict[str, list[tuple[Counts, Counts]]] = {variant: [] for variant in models}
        rows = batch_rows(length, examples, torch.device("cpu"))
        for start in range(0, examples, rows):
            size, trained = min(rows, examples - start), length <= run.config.data.longest_input
            inputs_BN, targets_BN = sample_held_out(task, size, length, generator=generator, trained=trained)
            for variant, model in models.items():
                outputs_BN = answer(model, task, inputs_BN)
                counted[variant].append(count_rows(outputs_BN, pad_to(targets_BN, outputs_BN.shape[1])))
        totals = {
            variant: [Counts(*map(torch.cat, zip(*counts, strict=True))) for counts in zip(*batches, strict=True)]
            for variant, batches in counted.items()
        }
        for variant, counts in totals.items():
            pairs = zip(("symbols", "sequences"), counts, totals[BASE], strict=True)
            entry = {"length": length, "examples": examples, "variant": variant}
            entries.append(entry | {what: compare(*each) for what, *each in pairs})
            print(name, entries[-1], flush=True)
    return entries


def score_passages(passages: Sequence[list[str]], variants: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Passages that the shipped reader answers rightly, by several variants, the base first, one placement each."""
    reader = TrainedReader(Run(SHIPPED / "lambada"))
    dataset = reader.objective.dataset_from_tokens(passages)
    answered: dict[str, Predictions] = {}
    for variant in variants:
        since = time.perf_counter()
        model = rounded_model(reader.model, VARIANTS[variant])
        answered[variant] = predict_answers(model, dataset, reader.objective.predict_rows, batch=PASSAGES_AT_ONCE)
        both = [answered[variant], answered[BASE]]
        right = [(each.by_position == each.answers).long() for each in both]
        found_E = both[0].distance > 0
        chosen, base_chosen = (each.probability[found_E].log() for each in both)
        entry = {
            "passages": len(passages),
            "variant": variant,
            "position": compare(*(Counts(right_E, torch.ones_like(right_E)) for right_E in right)),
            "answered_otherwise": int((both[0].by_position != both[1].by_position).sum()),
            "log_probability_lost": round((base_chosen - chosen).mean().item(), 5),
            "log_probability_error": round((base_chosen - chosen).std().item() / len(chosen) ** 0.5, 5),
            "seconds": round(time.perf_counter() - since, 1),
        }
        print("lambada", entry, flush=True)
        yield entry


def table(record: Mapping[str, Any]) -> str:
    """The table of docs/kernels.md: percent right in float32, points lost by the others; rows where any lost or won."""
    compared: dict[str, dict[str, dict[str, float]]] = {}
    for name, part in record.items():
        for score in part["scores"]:
            row = f"{name}, {score['length']}" if "length" in score else name
            compared.setdefault(row, {})[score["variant"]] = score.get("symbols") or score["position"]
    rows = [
        [row, *(format_compared(variant, found[variant]) if variant in found else DASH for variant in VARIANTS)]
        for row, found in compared.items()
        if any(each["error"] for each in found.values())
    ]
    return "\n".join(markdown_table(["symbols or passages", *VARIANTS], rows, text_columns=1))


def format_compared(variant: str, compared: Mapping[str, float]) -> str:
    """Percent of what is compared with, else what was lost and its standard error."""
    if variant == BASE:
        return f"{compared['percent']:.2f}%"
    lost = round(compared["lost"], 2) + 0.0  # no negative zero
    return f"{lost:.2f} ± {compared['error']:.2f}" if compared["error"] else f"{lost:g}"


def main() -> None:
    """Score what was named and put it into the result file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    tasks, passages, shown = (commands.add_parser(name) for name in ("tasks", "passages", "table"))
    for command in (tasks, passages, shown):
        command.add_argument("result", type=Path)
    tasks.add_argument("--task", action="append", choices=EXAMPLES, help="By default all.")
    passages.add_argument("file", type=Path, help="Passages, one a line, the answer last.")
    passages.add_argument("--passages", type=int, help="Score so many, evenly spread over the file; by default all.")
    passages.add_argument("--variant", action="append", choices=list(VARIANTS)[1:], help="By default all.")
    arguments = parser.parse_args()
    record: dict[str, Any] = read_json(arguments.result) if arguments.result.exists() else {}
    if arguments.command == "table":
        return print(table(record))
    # All pairs of a layer at once: a tensor's scale is that of all of them.
    with mock.patch.dict(CHUNK_PAIRS, cpu=2**30):
        if arguments.command == "tasks":
            for name in arguments.task or EXAMPLES:
                about = environment(torch.device("cpu"))
                record[name] = {"environment": about, "scores": score_task(name, EXAMPLES[name])}
                write_json(arguments.result, record)
            return None
        about, split = environment(torch.device("cpu")), read_splits([str(arguments.file)], Path())
        tokens = next(iter(split.values()))
        count = arguments.passages or len(tokens)
        scores = []
        chosen = [tokens[index * len(tokens) // count] for index in range(count)]
        for entry in score_passages(chosen, [BASE, *(arguments.variant or list(VARIANTS)[1:])]):
            scores.append(entry)
            record["lambada"] = {"environment": about, "scores": scores}
            write_json(arguments.result, record)


if __name__ == "__main__":
    main()
