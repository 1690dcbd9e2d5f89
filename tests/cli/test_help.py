"""Help: at once, for every command and every option."""

from __future__ import annotations

import re
import subprocess
import sys

import click
import pytest
import typer

from riffle.cli import app

from .riffle_command import riffle, succeed

COMMANDS: dict[str, click.Command] = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def test_the_commands() -> None:
    assert {"train", "eval", "solve", "tasks", "info", "export"} <= COMMANDS.keys()
    for flag in ("--help", "-h"):
        text = succeed(flag).out
        assert all(re.search(rf"\b{name}\b", text) for name in COMMANDS)
        assert "riffle train reverse --recipe small" in text


def test_no_command_shows_the_help() -> None:
    result = riffle()
    assert result.code == 2
    assert "Usage" in result.out + result.err


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_explained(name: str) -> None:
    text = " ".join(succeed(name, "--help").out.split())
    summary = (COMMANDS[name].help or "").strip().splitlines()[0]
    assert summary.endswith((".", ":"))
    for parameter in COMMANDS[name].params:
        assert getattr(parameter, "help", None), f"riffle {name}: {parameter.name} has no help"
        if isinstance(parameter, click.Option) or parameter.param_type_name == "option":
            assert all(flag in text for flag in parameter.opts), f"riffle {name}: {parameter.opts}"


def test_help_does_not_load_torch() -> None:
    code = (
        "import sys, riffle.cli, typer; typer.main.get_command(riffle.cli.app); import riffle; riffle.__version__; "
        "heavy = {'torch', 'numpy', 'matplotlib', 'tensorboard', 'huggingface_hub'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "work",
    [
        "import torch; riffle.ShuffleExchange(2)(torch.zeros(1, 3, 2))",
        "riffle.cli.app(['solve', 'sort', '3 1 2'], standalone_mode=False)",
        "riffle.cli.app(['lambada', 'solve', 'Ann met Bob. Bob smiled at ___'], standalone_mode=False)",
    ],
    ids=["network", "solve", "lambada solve"],
)
def test_only_a_compiled_network_loads_the_compiler(work: str) -> None:
    code = (
        f"import sys, riffle.cli, riffle; names = [getattr(riffle, name) for name in riffle.__all__]; {work}; "
        "assert 'torch._dynamo' not in sys.modules and 'sympy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_python_m_riffle_is_riffle() -> None:
    done = subprocess.run([sys.executable, "-m", "riffle", "--help"], capture_output=True, text=True, check=True)
    assert "solve" in done.stdout
