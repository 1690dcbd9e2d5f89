"""Tables of README and docs about LAMBADA."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import Any

from research.reproduce.figures.lambada import BASELINE, LAMBADA_BLOCKS, LAMBADA_MAPS, LAMBADA_SHARING, LAMBADA_UNITS
from research.reproduce.results import by_group
from research.tables.common import ROOT, read_json, table, where
from riffle.lambada.evaluate import BOUND, PUBLISHED
from riffle.quantities import DASH, format_percent

PLACEMENTS = ("1 placement", "16 placements")
RIVALS = ROOT / "research" / "results" / "lambada" / "rivals.json"
"""What ``python benchmarks/lambada.py rivals`` wrote, once it has been run."""
LEVERS = ROOT / "research" / "results" / "trials" / "lambada-levers.json"
"""What ``python benchmarks/lambada.py levers`` wrote, once it has been run."""
MATCH = ROOT / "research" / "results" / "lambada" / "match.json"
NOT_RUN = "This command has not been run on a GPU yet."
TRAINED = ("train", "within")
"""The splits that are trained on."""
MODELS = {
    "gated-attention-reader": "Gated-Attention Reader",
    "universal-reader": "Universal Transformer, 6 fixed steps",
    "universal-reader, halting": "Universal Transformer, dynamic halting",
    "universal-transformer": "Universal Transformer, 6 fixed steps, pointing",
    "shuffle-exchange, gated": "Shuffle-Exchange, the paper",
    "shuffle-exchange": "Residual Shuffle-Exchange, 2021",
}
"""The models of the runs; all but the one that points are published."""


def lambada(
    *,
    short: bool = False,
    folder: Path = ROOT / "research" / "results" / "lambada",
    shipped: Path = ROOT / "riffle" / "weights" / "lambada",
    rivals: Path = RIVALS,
) -> str:
    """Accuracy on LAMBADA: the test set, by position, and the development set in columns of their own.

    The short table has models alone, and of ours no more than one run. The long one has a last column, of the models
    that were trained alike, see :func:`trained_alike`.
    """
    published = list(PUBLISHED.items())[1:-2] if short else PUBLISHED.items()  # the lowest is no model, nor the highest
    earlier = read_json(folder / "test-set.json")
    passages = read_json(shipped / "evaluation.json")["splits"]["development"]["passages"]
    bounds = {BOUND: format_percent(passages["answer in passage"]["passages"] / passages["all"]["passages"])}
    rows = [[model, format_percent(accuracy), bounds.get(model, DASH), DASH] for model, accuracy in published]
    for places, accuracy in earlier["accuracy"].items():
        if places in PLACEMENTS:
            name = f"riffle, earlier weights ({earlier['commit']}), {places}"
            rows.append([name, format_percent(accuracy["position"]), *_both(earlier["development"].get(places))])
    rows.sort(key=lambda row: row[1])
    rows.append(["**riffle**, the weights in the package, 1 placement", DASH, *_both(passages["all"])])
    for path in sorted(folder.glob("lambada-residual-*.json" if short else "lambada-*.json"), reverse=True):
        run = read_json(path)
        about = f"{run['config']['model'].get('unit', 'gated')} unit, {run['parameters'] / 1e6:.1f}M parameters"
        for places in PLACEMENTS:
            rows.append([f"riffle, {about}, before rounding, {places}", DASH, *_both(run["development"][places])])
    heads = ["model", "test set", "development set", "by word"]
    if short or not rivals.exists():
        return table(heads, rows)
    runs = scored_runs(read_json(rivals))
    alike = {MODELS[name]: _both(run["development"][PLACEMENTS[0]])[0] for name, run in runs.items()}
    others = [[model, DASH, DASH, DASH] for model in alike if model not in PUBLISHED]
    at = 1 + max(number for number, row in enumerate(rows) if row[1] != DASH)
    rows = [[*row, alike.get(row[0], DASH)] for row in (*rows[:at], *others, *rows[at:])]
    budget = f"{mean(run['step_seconds'] for run in runs.values()):.0f} s each"
    note = (
        f"*{budget}*: accuracy on the development set, {PLACEMENTS[0]}, of the model of the row, trained here so long "
        "beside the others, on the same passages and words."
    )
    return f"{table([*heads, budget], rows)}\n\n{note}"


def scored_runs(record: Mapping[str, Any]) -> dict[str, Any]:
    """The runs of a plan that did not fail, the most accurate first."""
    scored = {name: run for name, run in record["runs"].items() if "failed" not in run}
    return dict(sorted(scored.items(), key=lambda item: -item[1]["development"][PLACEMENTS[0]]["position"]))


def trained_alike(path: Path = RIVALS) -> str:
    """What every model read after the same time of training on the same passages, and what it did in this time."""
    if not path.exists():
        return NOT_RUN
    record = read_json(path)
    runs, splits = scored_runs(record), record["splits"]
    made_with = {**next(iter(runs.values()))["environment"], "commit": record["commit"]}
    limit = f", each on {percent}% of the GPU at most" if (percent := record["percent_of_multiprocessors"]) else ""
    about = (
        f"{where(made_with)}: {len(record['runs'])} runs at once{limit}, one seed, from {splits['train']:,} passages "
        f"that end with a sentence and {splits['within']:,} that end inside one "
        f"([{path.name}](research/results/lambada/{path.name}))."
    )
    rows = []
    for name, run in runs.items():
        steps, planned = run["step"], run["config"]["train"]["steps"]
        rows.append(
            [
                f"`{name}`",
                f"{run['parameters'] / 1e6:.1f}M",
                f"{run['step_seconds']:.0f} s",
                f"{steps:,}" if steps == planned else f"{steps:,} of {planned:,}",
                f"{steps * run['config']['data']['batch']:,}",
                *(cell for places in PLACEMENTS for cell in _both(run["development"][places])),
            ]
        )
    rows += [[f"`{name}`, failed", *[DASH] * 8] for name in record["runs"] if name not in runs]
    heads = ["run", "parameters", "time", "steps", "passages", "accuracy", "by word", "16 placements", "by word"]
    return f"{about}\n\n{table(heads, rows)}"


def _both(accuracy: Mapping[str, float] | None) -> list[str]:
    """Accuracy by position and by word."""
    return [format_percent(accuracy[by]) for by in ("position", "word")] if accuracy else [DASH, DASH]


SHOWN_CLASSES: dict[str, dict[str, int | None]] = {
    "rank": {"to 300": 300, "to 1,000": 1_000, "to 4,000": 4_000, "to 16,000": 16_000, "rarer": None},
    "distance": {"to 10": 11, "to 25": 26, "to 50": 51, "further": None},
    "mentions": {"one": 2, "two": 3, "more": None},
    "speech": {"no quotation mark": 1, "after a closing one": 2, "after an opening one": None},
}
"""Features of passages that the page shows, and the upper limits of their classes."""


def match(path: Path = MATCH) -> str:
    """How passages are distributed in the development set and in training, before and after they are weighted."""
    about = read_json(path)
    columns = [about["match"]["development"]] + [
        about["match"][split][key] for split in ("train", "within") for key in ("before", "half", "full")
    ]
    rows = []
    for feature, classes in SHOWN_CLASSES.items():
        limits, begin = about["match"]["limits"][feature], 0
        for name, limit in classes.items():
            end = len(limits) + 1 if limit is None else limits.index(limit) + 1
            shares = [format_percent(sum(column[feature][begin:end])) for column in columns]
            rows.append([f"{feature}: {name}", *shares])
            begin = end
    for feature in about["match"]["limits"]:
        wanted, *others = (column[feature] for column in columns)
        apart = [sum(abs(a - b) for a, b in zip(wanted, other, strict=True)) / 2 for other in others]
        rows.append([f"apart in {feature}", DASH, *map(format_percent, apart)])
    effective = [about["match"][split]["effective share"] for split in ("train", "within")]
    shares = [cell for each in effective for cell in ("100%", *map(format_percent, (each["half"], each["full"])))]
    rows.append(["effective share", DASH, *shares])
    ends = [f"{where}, {how}" for where in ("ends", "inside") for how in ("all", "0.5", "1")]
    return table(["", "development", *ends], rows)


def reading_speed(path: Path = ROOT / "research" / "results" / "lambada" / "lambada-residual-seed0.json") -> str:
    """How fast a reader is trained that has the GPU to itself."""
    run = read_json(path)
    minutes = run["passages"] / run["passages_per_second"] / 60
    return (
        f"{where(run)}: {run['steps']:,} steps of "
        f"{run['config']['data']['batch']} passages at **{run['passages_per_second']:,} passages a second**, "
        f"{minutes:.0f} minutes, of {run['splits']['train'] + run['splits']['within']:,} passages from "
        f"public-domain novels ([{path.name}](research/results/lambada/{path.name}))."
    )


def levers(folder: Path = ROOT / "research" / "results" / "lambada-levers") -> str:
    """Accuracy on LAMBADA with one setting changed at a time, the best first."""
    runs = sorted(map(read_json, folder.glob("*.json")), key=lambda run: -run["accuracy"]["all"]["position"])
    first, commits = runs[0], sorted({run["commit"][:7] for run in runs})
    about = (
        f"One {first['hardware']}, commits {', '.join(commits)}: {first['config']['model']['features']} maps, "
        f"{first['steps']:,} steps, one seed."
    )
    rows = []
    for run in runs:
        score = run["accuracy"]["all"]
        name = "nothing" if run["group"] == "as it is" else run["group"]
        rows.append([name, format_percent(score["position"]), format_percent(score["word"])])
    return f"{about}\n\n{table(['changed', 'accuracy', 'by word'], rows)}"


def levers_part(path: Path = ROOT / "research" / "results" / "trials" / "lambada-part.json") -> str:
    """Accuracy on LAMBADA with one setting changed at a time, trained on a part of the text, the best first."""
    if not path.exists():
        return NOT_RUN
    record = read_json(path)
    runs = scored_runs(record)
    first = next(iter(runs.values()))
    config, share = first["config"], first["config"]["data"]["share"]
    if share == 1:  # the corpus was cut before it was moved
        whole = read_json(MATCH)["splits"]
        share = sum(record["splits"][split] for split in TRAINED) / sum(whole[split] for split in TRAINED)
    about = (
        f"One {first['environment']['device']}, commit {record['commit'][:7]}: {config['model']['features']} maps, "
        f"{config['train']['steps']:,} steps, {100 * share:.0f}% of the text, one seed "
        f"([{path.name}](research/results/trials/{path.name}))."
    )
    rows = []
    for name, run in runs.items():
        stopped = f", stopped at step {run['step']:,}" if run["step"] < config["train"]["steps"] else ""
        cells = (cell for places in PLACEMENTS for cell in _both(run["development"][places]))
        rows.append([f"{name}{stopped}", *cells])
    rows += [[f"{name}, failed", *[DASH] * 4] for name in record["runs"] if name not in runs]
    return f"{about}\n\n{table(['changed', 'accuracy', 'by word', '16 placements', 'by word'], rows)}"


def compared(root: Path = ROOT / "research" / "results") -> str:
    """Accuracy on LAMBADA by network: every one that a comparison of the paper has."""
    figures = (LAMBADA_MAPS, LAMBADA_BLOCKS, LAMBADA_SHARING, LAMBADA_UNITS)
    groups = {group: runs for figure in figures for group, runs in by_group(figure.read(root)).items()}
    first = groups[BASELINE][0]
    about = (
        f"One {first['hardware']}, commit {first['commit'][:7]}: {first['steps']:,} steps of "
        f"{first['config']['data']['batch']} passages."
    )
    rows = []
    for group, runs in groups.items():
        position, word = (mean(run["accuracy"]["all"][rule] for run in runs) for rule in ("position", "word"))
        size = f"{runs[0]['parameters'] / 1e6:.1f} M"
        rows.append([group, size, format_percent(position), format_percent(word), str(len(runs))])
    return f"{about}\n\n{table(['network', 'parameters', 'accuracy', 'by word', 'seeds'], rows)}"
