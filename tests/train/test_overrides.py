"""Dotted overrides: typed, documented, and answered with what exists when they do not fit."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from riffle.config import RunConfig, TrainConfig, differences, fields, override, run_config_from_dict
from riffle.recipes import RECIPES
from riffle.schema import decode

BASE = RunConfig(task="sort")
SECTIONS = ("model", "data", "train")


@pytest.mark.parametrize(
    ("assignment", "section", "field", "value"),
    [
        ("train.steps=100", "train", "steps", 100),
        ("train.steps = 20_000 ", "train", "steps", 20_000),
        ("train.learning_rate=1e-3", "train", "learning_rate", 0.001),
        ("train.learning_rate=1", "train", "learning_rate", 1.0),
        ("train.precision=bf16", "train", "precision", "bf16"),
        ("model.kind=gru", "model", "kind", "gru"),
        ("model.unit=no-swap", "model", "unit", "no-swap"),
        ("data.bins=8,16", "data", "bins", (8, 16)),
        ("data.bins=(8, 16,)", "data", "bins", (8, 16)),
        ("data.bins=8", "data", "bins", (8,)),
        ("train.evaluate_lengths=", "train", "evaluate_lengths", ()),
    ],
)
def test_values_have_the_type_of_their_field(assignment: str, section: str, field: str, value: object) -> None:
    changed = getattr(getattr(override(BASE, [assignment]), section), field)
    assert changed == value
    assert type(changed) is type(value)


def test_only_what_is_named_changes_and_the_last_wins() -> None:
    changed = override(BASE, ["train.steps=1", "model.blocks=2", "train.steps=3", "task=add"])
    assert changed == replace(BASE, task="add", model=replace(BASE.model, blocks=2), train=replace(BASE.train, steps=3))
    assert RunConfig(task="sort") == BASE


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("train.step", "train.steps"),
        ("trian.steps", "train.steps"),
        ("steps", "train.steps"),
        ("stepz", "train.steps"),
        ("seed", "train.seed"),
        ("bins", "data.bins"),
        ("optim.weight_decay", "train.weight_decay"),
        ("model.feature", "model.features"),
    ],
)
def test_an_unknown_key_gets_the_nearest_and_all(name: str, nearest: str) -> None:
    with pytest.raises(ValueError, match=f"unknown option '{name}'; did you mean {nearest}\\?") as error:
        override(BASE, [f"{name}=1"])
    section, _, _ = name.rpartition(".")
    assert all(key in str(error.value) for key in fields(BASE) if key.startswith(section) or section not in SECTIONS)


def test_a_key_like_none_gets_all() -> None:
    with pytest.raises(ValueError, match=r"unknown option 'xyzzy'; options are task, model\.kind, ") as error:
        override(BASE, ["xyzzy=1"])
    assert "did you mean" not in str(error.value)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("train.steps=many", "train.steps must be a whole number, got 'many'"),
        ("train.steps=1.5", "train.steps must be a whole number, got '1.5'"),
        ("train.steps=", "train.steps must be a whole number, got ''"),
        ("train.learning_rate=fast", "train.learning_rate must be a number, got 'fast'"),
        ("data.bins=8,x", "data.bins must be a whole number, got 'x'"),
        ("train.precision=fp8", "train.precision must be one of auto, fp32, tf32, bf16, got 'fp8'"),
        ("train.steps", "'train.steps' is no assignment: write it as"),
        ("train=3", "unknown option 'train'"),
    ],
)
def test_a_bad_value_says_what_is_taken(assignment: str, message: str) -> None:
    with pytest.raises(ValueError, match=r".") as error:
        override(BASE, [assignment])
    assert message in str(error.value)


def test_every_field_is_documented() -> None:
    for name, (_, meaning) in fields(BASE).items():
        assert meaning.endswith("."), f"{name} has no string beneath it"


def test_differences() -> None:
    assert differences(BASE, BASE) == {}
    other = override(BASE, ["task=add", "data.bins=4"])
    assert differences(BASE, other) == {"task": ("sort", "add"), "data.bins": ((8, 16, 32, 64), (4,))}


@pytest.mark.parametrize("task", ["sort", "reverse", "multiply"])
@pytest.mark.parametrize("recipe", RECIPES)
def test_configurations_survive_json(recipe: str, task: str) -> None:
    config = RECIPES[recipe](task)
    assert run_config_from_dict(json.loads(json.dumps(asdict(config)))) == config


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown field 'colour'; TrainConfig has steps, start, learning_rate, "):
        decode(TrainConfig, {"steps": 3, "colour": "red"})
    with pytest.raises(ValueError, match="the field task is missing"):
        decode(RunConfig, {})
