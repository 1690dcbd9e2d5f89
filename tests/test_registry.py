"""Registries are open: a model, a task, a recipe of one's own train, are evaluated and solve like those of riffle."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from cli.riffle_command import TINY, succeed
from torch import Tensor, nn
from train.tiny import TINY as CONFIG
from train.tiny import train

import research.registry
from riffle.config import MODELS, RETIRED, BaseModelConfig, Depth, ModelEntry, fields, override, run_config_from_dict
from riffle.models.base import SymbolModel
from riffle.recipes import RECIPES, with_model
from riffle.registry import RESEARCH, NeedsResearch, Registry, unknown
from riffle.tasks import TASKS, get_task
from riffle.tasks.sequences import Reverse
from riffle.train.evaluate import Score
from riffle.train.objective import SAMPLERS
from riffle.train.optim import OPTIMIZERS
from riffle.train.outcome import describe
from riffle.train.run import Run
from riffle.train.schedule import SCHEDULES

REPOSITORY = Path(research.__file__).parents[1]


@dataclass(frozen=True, kw_only=True)
class WindowConfig(BaseModelConfig):
    """A model that sees neighbours only."""

    kind: str = "window"
    """The model."""
    width: Depth = 3
    """Cells it sees."""


class Window(SymbolModel):
    """One convolution."""

    def __init__(self, symbols: int, classes: int, *, features: int, width: int, **factory: Any) -> None:
        super().__init__()
        self.embedding = nn.Embedding(symbols, features, **factory)
        self.mix = nn.Conv1d(features, features, width, padding="same", **factory)
        self.output = nn.Linear(features, classes, **factory)

    def forward_cells(self, x_BND: Tensor) -> Tensor:
        """The scores."""
        return self.output(self.mix(x_BND.mT).mT)


class Backwards(Reverse):
    """A task of one's own."""

    name = "backwards"


@pytest.fixture
def window() -> Iterator[None]:
    MODELS["window"] = ModelEntry(WindowConfig, f"{__name__}:Window")
    yield
    del MODELS["window"]


@pytest.mark.usefixtures("window")
def test_a_model_of_ones_own_brings_its_configuration(tmp_path: Path) -> None:
    config = override(with_model(replace(CONFIG), "window"), ["model.width=5"])
    assert config.model == WindowConfig(features=CONFIG.model.features, width=5)
    run = train(tmp_path / "run", config)
    assert Run(run.folder).config == config
    assert run.model()(torch.tensor([[1, 2, 3]])).shape == (1, 3, 12)
    with pytest.raises(ValueError, match=r"unknown option 'model\.heads'; .*options are model\.kind, model\.features"):
        override(config, ["model.heads=4"])
    with pytest.raises(ValueError, match=r"model\.width must be at least 1"):
        override(config, ["model.width=0"])


def test_a_task_of_ones_own_is_named_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"{__name__}:Backwards"
    assert get_task(name) == Backwards()
    monkeypatch.chdir(tmp_path)
    said = succeed("train", name, *TINY, "--steps", 2).err
    assert "more steps (--steps 4)" in said
    scores = succeed("eval", "runs/backwards", "--lengths", "3", "--examples", 4, "--json").json
    assert scores["task"] == "backwards"
    assert succeed("solve", name, "--run", "runs/backwards", "7", "3", "9", "--json").json["expected"] == "9 3 7"
    perfect = [Score(length, "uniform", 9, 1.0, 1.0) for length in (8, 64)]
    hint = f"riffle solve {name} {' '.join(Backwards.example)} --run runs/backwards"
    assert describe(Run(Path("runs/backwards")), perfect)[1] == hint
    assert succeed("inspect", "runs/backwards", "--lengths", "4", "--examples", "1").out
    for wrong in (f"{__name__}:Nothing", "no_such_module:Task"):
        with pytest.raises((ValueError, ImportError), match=r"Nothing|no_such_module"):
            get_task(wrong)


def test_a_recipe_asks_the_task_what_it_is() -> None:
    ours, theirs = (RECIPES["default"](task) for task in ("reverse", f"{__name__}:Backwards"))
    assert replace(theirs, task="reverse") == ours
    assert RECIPES["default"]("id") != replace(ours, task="id")


@pytest.mark.parametrize("name", ["robust", "long"])
def test_a_former_name_is_answered_with_the_new_one(name: str) -> None:
    assert f"the recipe '{name}' is now 'default'" in str(unknown("recipe", name, RECIPES))


def test_an_unknown_name_is_answered_with_the_nearest_and_all() -> None:
    with pytest.raises(ValueError, match="unknown fruit 'aple'; did you mean 'apple'\\? choose one of apple, pear"):
        Registry("fruit", {"apple": 1, "pear": 2})["aple"]
    assert isinstance(unknown("model", "dngpu", ["shuffle-exchange"]), NeedsResearch)


def test_the_names_that_research_adds_are_those_of_the_table() -> None:
    code = "import json, riffle.registry, riffle.config as c, riffle.tasks as t, riffle.recipes as r; "
    code += "import riffle.train.optim as o, riffle.train.schedule as s, riffle.train.objective as j; print(json.dumps("
    code += "[list(x) for x in (c.MODELS, t.TASKS, r.RECIPES, o.OPTIMIZERS, s.SCHEDULES, j.SAMPLERS)]))"
    wheel = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
    registries: tuple[Any, ...] = (MODELS, TASKS, RECIPES, OPTIMIZERS, SCHEDULES, SAMPLERS)
    for what, registry, own in zip(RESEARCH, registries, wheel, strict=True):
        assert set(registry) == {*own, *RESEARCH[what]}, what


def test_the_wheel_names_the_command_that_has_what_it_lacks(tmp_path: Path) -> None:
    config = override(with_model(CONFIG, "dngpu"), ["train.steps=1", "train.evaluate_every=0"])
    folder = str(train(tmp_path / "run", config).folder)
    lines = [
        ["train", "add", "--model", "dngpu"],
        ["train", "parity"],
        ["train", "add", "--recipe", "long"],
        *(["eval", folder], ["solve", "reverse", "--run", folder, "1", "2"], ["export", folder]),
    ]
    code = "import json, sys\nfrom riffle.cli import main\nfor line in json.loads(sys.argv[1]):\n"
    code += "    sys.argv[1:] = line\n    try: main()\n    except SystemExit: pass\n"
    done = subprocess.run([sys.executable, "-c", code, json.dumps(lines)], capture_output=True, text=True, check=True)
    said = done.stderr.splitlines()
    for line, answer in zip(lines, said, strict=True):
        assert "comes with riffle's research: from a clone, python -m research " + " ".join(line) in answer, done.stderr


def configurations(value: Any) -> Iterator[dict[str, Any]]:
    """Every configuration of a run within a JSON value."""
    if isinstance(value, dict) and isinstance(value.get("model"), dict) and "train" in value:
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from configurations(part)


def test_every_shipped_and_every_committed_configuration_loads() -> None:
    folders = (REPOSITORY / "riffle/weights", REPOSITORY / "research/results")
    paths = [path for folder in folders for path in folder.rglob("*.json")]
    found = [config for path in paths for config in configurations(json.loads(path.read_text()))]
    assert len(found) > 500
    for values in found:
        config = run_config_from_dict(values)
        assert run_config_from_dict(asdict(config)) == config
        own = {"task": config.task} | {name: value for name, (value, _) in fields(config).items()}
        for section, before in values.items():
            for name, value in before.items() if isinstance(before, dict) else ():
                kept = own.get(f"{section}.{name}", value)
                assert name in RETIRED[section] or kept == (tuple(value) if isinstance(value, list) else value), name


def test_there_are_at_most_fifty_fields() -> None:
    names = {name for task in ("sort", "lambada") for name in fields(run_config_from_dict({"task": task}))}
    assert len(names) <= 50
