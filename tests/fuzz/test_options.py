"""Any value for any option of any command: it works or says in a sentence what is wrong, and loses no file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli.riffle_command import riffle
from cli.test_help import EVERY as COMMANDS
from hypothesis import given
from hypothesis import strategies as st

from .workspace import CORPUS, READER, RESULTS, RUN, WRITER, contents, copy_of, invoke, some, unfinished

SMALL = (
    *("--set", "data.bins=4", "--set", "train.evaluate_lengths=4"),
    *("--features", "8", "--steps", "1", "--device", "cpu"),
)
BASES: dict[str, tuple[str, ...]] = {
    "info": (),
    "tasks": (),
    "solve": ("reverse", "3", "1", "--run", RUN),
    "write": ("the guard", "--count", "4", "--run", WRITER, "--device", "cpu"),
    "export": (RUN, "--format", "hub"),
    "train": ("reverse", "--recipe", "small", *SMALL, "--set", "data.longest=0", "--out", "new"),
    "eval": (RUN, "--lengths", "4", "--examples", "1", "--no-worst-case", "--device", "cpu"),
    "bench": ("--quick", "--rows", "latency", "--out", "bench.json", "--device", "cpu"),
    "reproduce": ("sharing", "--draw", "--out", RESULTS),
    "plan": ("--length", "2^20"),
    "demo": ("--port", "0", "--no-open"),
    "inspect": (RUN, "--lengths", "4", "--examples", "1", "--device", "cpu"),
    "route": ("3", "1", "0", "2"),
    "lambada prepare": ("--novels", "data/few.txt", "--out", "made", "--workers", "1"),
    "lambada train": ("--corpus", CORPUS, *SMALL, "--set", "data.bins=32", "--precision", "fp32", "--out", "new"),
    "lambada eval": ("--run", READER, "--split", "development", "--device", "cpu"),
    "lambada solve": ("the guard was otto", "--run", READER, "--device", "cpu"),
    "lambada ship": (READER, "shipped"),
}
"""Arguments with which a command works; those drawn follow them, and of two values of an option the last counts."""
NUMBERS = ("0", "1", "-1", "2", "8", "63", "64", "1000000", "4294967296", "9" * 23, "0.5", "1e-300", "1e309", "nan")
NAMES = ("reverse", "add", "lambada", "sharing", "cuda", "cuda:99", "torch", "hub", "bf16", "lstm", "[bold]")
QUANTITIES = ("8,x", "8,8", "1,0", "1 0", "2^3", "2^999", "400Gb", "0Gb", "5us")
CHANGES = ("model.blocks=2", "model.features=-1", "train.steps=1e9", "data.bins=", "train.seed=" + "9" * 24)
TEXTS = ("", " ", "\x1b[31m", "a" * 5000, "ä\u202e", "a\tb", "md5:" + "0" * 32)
OUTSIDE = (".", "/", "..", "-", "nowhere", "nowhere/x", "out.png", "out.svg", "out.xyz", "/dev/null")
INSIDE = (RUN, READER, WRITER, CORPUS, "runs", "data", f"{RUN}/config.json", "data/few.txt", "data/vectors.npz")
POOLS = (NUMBERS, NAMES, QUANTITIES, CHANGES, TEXTS, OUTSIDE, INSIDE)
VALUES = st.one_of(*map(st.sampled_from, POOLS), st.text(max_size=6))


def settings_of(command: Any) -> st.SearchStrategy[list[str]]:
    """Some options and arguments of a command, each with any value."""
    drawn = []
    for parameter in command.params:
        names = [*parameter.opts, *parameter.secondary_opts]
        if parameter.param_type_name == "argument":
            drawn.append(VALUES.map(lambda value: [value]))
        elif parameter.is_flag:
            drawn.append(st.sampled_from(names).map(lambda name: [name]))
        else:
            drawn.append(st.tuples(st.sampled_from(names), VALUES).map(list))
    return st.lists(st.one_of(drawn), min_size=1, max_size=3).map(
        lambda parts: [word for part in parts for word in part]
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_any_option(name: str, workspace: Path) -> None:
    @some(3)
    @given(settings_of(COMMANDS[name]), st.integers(0, 9))
    def check(drawn: list[str], bare: int) -> None:
        with copy_of(workspace) as copy:
            before = contents(copy)
            base = () if bare == 0 else BASES[name]
            invoke(*name.split(), *base, *drawn)
            lost = set(before) - set(contents(copy))
            assert not lost
            assert not unfinished(copy)

    check()


def test_every_command_is_tried(workspace: Path) -> None:
    assert set(BASES) == set(COMMANDS), "a new command needs arguments with which it works"
    failed = {}
    for name, base in BASES.items():
        with copy_of(workspace):
            if (result := riffle(*name.split(), *base)).code:
                failed[name] = result.err
    assert not failed
