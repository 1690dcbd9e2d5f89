"""Products of inputs to length 32, on which networks are compared: many can be trained in the time of one at 128."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from riffle.recipes import long
from riffle.reproduce.specs import EvaluationSpec, RunSpec, over_lengths, with_model_fields, with_train

LENGTH = 32
STEPS = 10_000
RATE = 0.005
TESTS = (EvaluationSpec((8, 16, 32, 64), 1024),)
FOLDER = "products"
"""Where the network is kept that all others are variants of."""


def product(
    folder: str = FOLDER, variant: str = "gated, 2 blocks, 192 maps", rate: float = RATE, **model: Any
) -> RunSpec:
    """Half the maps of the network that multiplies at 128, with some fields of its model changed.

    By Adam, as the paper compared them: Muon hides what makes one network easier to train than another.
    """
    config = with_train(
        long("multiply"), steps=STEPS, optimizer="adamw", learning_rate=rate, evaluate_lengths=(LENGTH,)
    )
    config = replace(config, data=replace(config.data, bins=(8, 16, LENGTH)))
    return RunSpec(
        folder=folder,
        group=f"multiply, {variant}",
        config=with_model_fields(config, **{"features": 192, **model}),
        measure=partial(over_lengths, tests=TESTS),
    )
