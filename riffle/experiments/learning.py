"""Train every network of a comparison on passages and measure it on the development set."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from riffle.config import PassageConfig, Reading, TrainConfig, reading
from riffle.experiments.kind import Entry, Kind, OnProgress, Settings
from riffle.experiments.riddles import prepare_riddles
from riffle.experiments.series import Claim
from riffle.lambada.corpus import Corpus
from riffle.train.loop import train
from riffle.train.reader import TrainedReader, read_splits
from riffle.train.record import read_metrics
from riffle.train.run import Run
from riffle.wording import percent

SPLIT = "development"
"""What accuracy is measured on; the test set is for the one network that is chosen."""


@dataclass(frozen=True, kw_only=True)
class Learner:
    """One line of a figure: a network to train."""

    name: str
    """The line's name."""
    experiment: Reading
    """How it is trained, on whatever corpus."""


def learner(
    name: str, *, quick: bool, data: Mapping[str, Any] = {}, train: Mapping[str, Any] = {}, **model: Any
) -> Learner:
    """The paper's network for LAMBADA with some fields changed; a quick one is small and takes seconds on a CPU."""
    base = reading()
    network = replace(base.model, **model)
    if not quick:
        changed = replace(base, data=replace(base.data, **data), train=replace(base.train, **train))
        return Learner(name=name, experiment=replace(changed, model=network))
    small = replace(network, features=network.features // 24, dropout=0.0)
    few = replace(PassageConfig(bins=(32,), batch=8), **data)
    short = replace(TrainConfig(steps=4, log_every=2, evaluate_every=2, evaluate_lengths=()), **train)
    return Learner(name=name, experiment=replace(base, model=small, data=few, train=short))


def about(settings: Settings, device: torch.device) -> Entry:
    """The corpus that all networks learn from."""
    corpus = _corpus(settings)
    if SPLIT not in corpus.held_out:
        raise ValueError(f"{corpus.folder} has no {SPLIT} passages: prepare it with LAMBADA's --evaluation")
    return {"split": SPLIT, "corpus": {"splits": corpus.about["splits"], "words": len(corpus.words)}}


def measure(line: Learner, device: torch.device, settings: Settings, on_progress: OnProgress) -> Entry:
    """Train a network, or go on where it was stopped, and measure it."""
    corpus = _corpus(settings)
    experiment = line.experiment
    data, steps = replace(experiment.data, corpus=str(corpus.folder)), settings.steps or experiment.train.steps
    experiment = replace(experiment, data=data, train=replace(experiment.train, steps=steps))
    folder = settings.runs / re.sub(r"\W+", "-", line.name)
    run = Run.resume(folder, experiment) if folder.exists() else Run.create(folder, experiment)
    began, before = time.perf_counter(), run.saved_step()
    train(run, device=device, on_log=lambda step, values: on_progress(f"{line.name}, step {step}", step / steps))
    seconds = time.perf_counter() - began
    reader = TrainedReader(run, device)
    evaluations = [values for values in read_metrics(folder) if f"accuracy/{SPLIT}" in values]
    return {
        "name": line.name,
        "parameters": sum(parameter.numel() for parameter in reader.model.parameters()),
        "steps": steps,
        "seconds": round(seconds, 1) if not before else None,  # of a run that was not stopped
        "accuracy": reader.evaluate(read_splits([SPLIT], corpus.folder)[SPLIT])["passages"],
        "curve": [{"step": each["step"], "accuracy": each[f"accuracy/{SPLIT}"]} for each in evaluations],
        "config": json.loads(run.config.read_text()),
    }


def rows(results: Mapping[str, Any]) -> list[list[str]]:
    """Accuracy of every network."""
    head = ["network", "parameters", "steps", "by position", "by word", "where the answer is in the passage"]
    body = []
    for line in results["series"]:
        overall, answerable = line["accuracy"]["all"], line["accuracy"]["answer in passage"]
        shares = (percent(share) for share in (overall["position"], overall["word"], answerable["position"]))
        body.append([line["name"], f"{line['parameters']:,}", f"{line['steps']:,}", *shares])
    return [head, *body]


LEARNING = Kind(about, measure, rows)


def accuracies(results: Mapping[str, Any]) -> dict[str, float]:
    """Accuracy over all passages by position, by network."""
    return {line["name"]: line["accuracy"]["all"]["position"] for line in results["series"]}


def rises(results: Mapping[str, Any], names: Sequence[str]) -> Claim:
    """Whether each network reads better than the one before."""
    found = [accuracies(results).get(name, -1.0) for name in names]
    evidence = ", ".join(f"{name} {percent(share)}" for name, share in zip(names, found, strict=True) if share >= 0)
    holds = None if min(found) < 0 else all(a < b for a, b in pairwise(found))
    return Claim(f"accuracy of {' < '.join(names)}", holds, evidence or "nothing was measured")


def alike(results: Mapping[str, Any], names: Sequence[str], points: float) -> Claim:
    """Whether networks are within so many points of one another."""
    found = [accuracies(results)[name] for name in names if name in accuracies(results)]
    statement = f"{', '.join(names)} are within {points:g} points"
    if len(found) < len(names):
        return Claim(statement, None, f"{len(found)} of {len(names)} were measured")
    apart = 100 * (max(found) - min(found))
    return Claim(statement, apart <= points, f"{apart:.2f} points from {percent(min(found))} to {percent(max(found))}")


def _corpus(settings: Settings) -> Corpus:
    made = settings.runs / "riddles"
    if settings.quick and settings.corpus is None:
        return Corpus(made / "corpus" if made.exists() else prepare_riddles(made))
    return Corpus(settings.corpus or Path(PassageConfig().corpus))
