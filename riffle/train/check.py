"""Whether a configuration can be trained at all, asked before anything is written."""

from __future__ import annotations

import math
from pathlib import Path

from riffle.config import Experiment, PassageConfig
from riffle.overrides import fields
from riffle.tasks import TASKS
from riffle.train.subject import subject_of

SHARES = ("share", "word_dropout", "forget", "within", "flatten")
"""Fields of passages that are a part of something."""


def check(experiment: Experiment) -> None:
    """Raise a ``ValueError`` that names the first field with an impossible value, and says what it takes."""
    data, train = experiment.data, experiment.train
    rules = {
        "data.bins": (
            data.bins and min(data.bins) >= 1 and list(data.bins) == sorted(set(data.bins)),
            "rising lengths",
        ),
        "data.batch": (data.batch >= 1, "at least 1"),
        "data.shorter": (0 <= data.shorter <= 1, "within 0..1"),
        "data.full": (0 <= data.full <= 1 - data.shorter, "within 0..1, together with data.shorter"),
        "data.worst": (
            data.worst == 0 or (0 < data.worst <= 1 and experiment.task in TASKS and TASKS[experiment.task].splits),
            "within 0..1, and 0 for a task without worst cases",
        ),
        "train.steps": (train.steps >= 1, "at least 1"),
        "train.learning_rate": (0 < train.learning_rate < math.inf, "above 0"),
        "train.weight_decay": (0 <= train.weight_decay < math.inf, "at least 0"),
        "train.weight_decay of AdaMax": (
            train.optimizer != "adamax" or train.weight_decay == 0,
            "0, since it has no decay",
        ),
        "train.warmup": (train.warmup >= 0, "at least 0"),
        "train.clip": (0 <= train.clip < math.inf, "at least 0"),
        "train.gradient_noise": (0 <= train.gradient_noise < math.inf, "at least 0"),
        "train.label_smoothing": (0 <= train.label_smoothing <= 1, "within 0..1"),
        "train.average": (0 <= train.average < 1, "at least 0 and below 1"),
        "train.keep": (train.keep == "last" or train.evaluate_every, "'last' where nothing is evaluated"),
        "train.log_every": (train.log_every >= 1, "at least 1"),
        "train.evaluate_every": (train.evaluate_every >= 0, "at least 1, or 0 for no evaluation"),
        "train.evaluate_lengths": (min(train.evaluate_lengths, default=1) >= 1, "lengths of at least 1"),
        "train.checkpoint_every": (train.checkpoint_every >= 1, "at least 1"),
    }
    if isinstance(data, PassageConfig):
        rules |= {f"data.{name}": (0 <= getattr(data, name) <= 1, "within 0..1") for name in SHARES}
    for name, (holds, expected) in rules.items():
        if not holds:
            raise ValueError(f"{name} must be {expected}, got {fields(experiment)[name.split()[0]][0]}")
    if train.start and not (Path(train.start) / "checkpoint.safetensors").is_file():
        raise ValueError(f"train.start must be the folder of a trained run, got {train.start}")
    subject_of(experiment).build(experiment.model, device="meta")  # the model checks its own arguments
