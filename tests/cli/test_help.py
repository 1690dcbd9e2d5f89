"""Help: at once, for every command and every option; and how little of riffle a command loads."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from research.cli import COMMANDS as ALL_COMMANDS
from riffle.cli import COMMANDS, IN_A_CLONE, build

from .riffle_command import succeed


def commands_of(group: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every command below a group, by its name."""
    for word in group.list_commands(None):
        command = group.get_command(group.make_context("riffle", [], resilient_parsing=True), word)
        if hasattr(command, "list_commands"):
            yield from commands_of(command, f"{word} ")
        else:
            yield name + word, command


EVERY = dict(commands_of(build(ALL_COMMANDS)))


def test_the_commands() -> None:
    assert {"train", "eval", "solve", "tasks", "info", "export"} <= EVERY.keys()
    assert EVERY.keys() - dict(commands_of(build())).keys() == set(IN_A_CLONE)
    for flag in ("--help", "-h"):
        text = succeed(flag).out
        assert all(re.search(rf"\b{name}\b", text) for name in COMMANDS)
        assert not any(re.search(rf"\b{name}\b", text) for name in ("reproduce", "bench", "plan"))
        assert "riffle train reverse --recipe small" in text


@pytest.mark.parametrize("name", EVERY)
def test_every_option_is_explained(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # narrower, long options are cut
    text = " ".join(succeed(*name.split(), "--help").out.split())
    summary = (EVERY[name].help or "").strip().splitlines()[0]
    assert summary.endswith((".", ":"))
    for parameter in EVERY[name].params:
        assert getattr(parameter, "help", None), f"riffle {name}: {parameter.name} has no help"
        if parameter.param_type_name == "option":
            assert all(flag in text for flag in parameter.opts), f"riffle {name}: {parameter.opts}"


def run_alone(code: str) -> str:
    """What a program prints in a process of its own."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("name", IN_A_CLONE)
def test_what_needs_a_clone_says_so(name: str) -> None:
    code = f"import sys; sys.argv = ['riffle', *{name.split()}, '--quick']; from riffle.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert (
        done.stderr == f"error: riffle {name} needs a clone of the repository: there it is python -m research {name}\n"
    )


def test_help_does_not_load_torch() -> None:
    run_alone(
        "import sys; sys.argv = ['riffle', '--help']; import atexit, riffle; riffle.__version__; "
        "heavy = lambda: {'torch', 'numpy', 'matplotlib', 'tensorboard', 'huggingface_hub'} & set(sys.modules); "
        "atexit.register(lambda: heavy() and os._exit(3)); import os; from riffle.cli import main; main()"
    )


def test_solving_loads_what_it_needs() -> None:
    """Of riffle at most 40 modules, and neither other commands nor what trains, shards or launches kernels."""
    printed = run_alone(
        "import sys; from riffle.cli import build; build()(['solve', 'add', '1', '1'], standalone_mode=False); "
        "print(*(name for name in sys.modules if name.split('.')[0] == 'riffle'))"
    )
    loaded = set(printed.split()[1:])
    assert len(loaded) <= 40, sorted(loaded)
    assert {name for name in loaded if name.startswith("riffle.cli.")} == {"riffle.cli.display", "riffle.cli.solve"}
    unneeded = {"riffle.parallel", "riffle.recipes", "riffle.train.data", "riffle.train.distributed"}
    assert not unneeded & loaded


def test_the_hub_is_loaded_when_it_is_used() -> None:
    run_alone(
        "import sys, torch; from riffle import SequenceModel, ShuffleExchange as Net; "
        "Net(2)(torch.zeros(1, 3, 2)); assert Net.push_to_hub.__doc__; assert 'huggingface_hub' not in sys.modules"
    )


@pytest.mark.parametrize(
    "work",
    [
        "import torch; riffle.ShuffleExchange(2)(torch.zeros(1, 3, 2))",
        "build()(['solve', 'sort', '3 1 2'], standalone_mode=False)",
        "build()(['lambada', 'solve', 'Ann met Bob. Bob smiled at ___'], standalone_mode=False)",
    ],
    ids=["network", "solve", "lambada solve"],
)
def test_only_a_compiled_network_loads_the_compiler(work: str) -> None:
    run_alone(
        "import sys, riffle; from riffle.cli import build; [getattr(riffle, name) for name in riffle.__all__]; "
        f"{work}; assert 'torch._dynamo' not in sys.modules and 'sympy' not in sys.modules"
    )
