"""Files that were damaged or edited: a command works or says in a sentence what is wrong, and loses no file."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.riffle_command import riffle
from hypothesis import given
from hypothesis import strategies as st

from .damage import damaged
from .workspace import CORPUS, READER, RESULTS, RUN, WRITER, contents, copy_of, invoke, some, unfinished

SOLVE = ("solve", "reverse", "3", "1", "--run", RUN)
RESUME = ("train", "reverse", "--resume", "--out", RUN, "--device", "cpu")
SHIP = ("export", RUN, "--format", "hub", "--out", "shipped")
EVALUATE = ("eval", RUN, "--lengths", "4", "--examples", "1", "--no-worst-case", "--device", "cpu")
INSPECT = ("inspect", RUN, "--lengths", "4", "--examples", "1", "--probes", "1")
WRITE = ("write", "the guard", "--count", "4", "--run", WRITER, "--device", "cpu")
LEARN_TEXT = ("train", "text", "--resume", "--out", WRITER, "--device", "cpu")
READ = ("lambada", "solve", "the guard was otto and the king waved to", "--run", READER, "--device", "cpu")
READ_ALL = ("lambada", "eval", "--run", READER, "--corpus", CORPUS, "--split", "development", "--device", "cpu")
READ_SMALL = ("--features", "8", "--set", "data.bins=32", "--set", "data.batch=4", "--set", "model.blocks=1")
LEARN = ("lambada", "train", "--corpus", CORPUS, *READ_SMALL, "--steps", "1", "--precision", "fp32", "--out", "new")
PREPARE = ("lambada", "prepare", "--workers", "1", "--out", "made")
COMMANDS = {
    f"{RUN}/config.json": (SOLVE, RESUME, SHIP, EVALUATE, INSPECT),
    f"{RUN}/checkpoint.safetensors": (SOLVE, RESUME, SHIP),
    f"{RUN}/metrics.jsonl": (RESUME,),
    f"{RUN}/environment.json": (RESUME, SHIP),
    f"{RUN}/evaluation.json": (SHIP,),
    f"{READER}/config.json": (READ, READ_ALL),
    f"{READER}/checkpoint.safetensors": (READ,),
    f"{READER}/words.safetensors": (READ, ("lambada", "ship", READER, "shipped")),
    f"{WRITER}/config.json": (WRITE, LEARN_TEXT),
    f"{WRITER}/checkpoint.safetensors": (WRITE, LEARN_TEXT),
    f"{CORPUS}/corpus.json": (READ_ALL, LEARN),
    f"{CORPUS}/tokens.npy": (READ_ALL, LEARN),
    f"{CORPUS}/words.txt": (READ_ALL, LEARN),
    f"{CORPUS}/counts.npy": (READ_ALL, LEARN),
    f"{CORPUS}/train.npy": (LEARN,),
    f"{CORPUS}/development.npy": (READ_ALL,),
    f"{CORPUS}/vectors.safetensors": (LEARN,),
    "data/novels.tar.gz": ((*PREPARE, "--novels", "data/novels.tar.gz"),),
    "data/few.txt": (
        (*PREPARE, "--novels", "data/few.txt"),
        (*PREPARE, "--passages", "data/few.txt", "--anywhere", "--any-word"),
        ("lambada", "eval", "--run", READER, "--split", "data/few.txt", "--device", "cpu"),
        ("train", "text", "--data", "data/few.txt", *READ_SMALL, "--steps", "1", "--out", "new", "--device", "cpu"),
    ),
    "data/vectors.txt": ((*PREPARE, "--novels", "data/few.txt", "--vectors", "data/vectors.txt"),),
    "data/vectors.npz": ((*PREPARE, "--novels", "data/few.txt", "--vectors", "data/vectors.npz"),),
    "data/symbols.txt": (("solve", "reverse", "--input", "data/symbols.txt"),),
    f"{RESULTS}/sharing/add-gated-minimal-seed0.json": (("reproduce", "sharing", "--draw"),),
    f"{RESULTS}/timing-addition/results.json": (("reproduce", "timing-addition", "--draw"),),
}
"""Every file that the program reads, and the commands that read it."""
WRITTEN = (
    *("config.json", "environment.json", "metrics.jsonl"),
    *("evaluation.json", "checkpoint.safetensors", "tensorboard"),
)
"""What training and evaluation write into a run's folder."""


@pytest.mark.parametrize("name", COMMANDS)
def test_an_edited_file(name: str, workspace: Path) -> None:
    content = (workspace / name).read_bytes()

    @some(5)
    @given(damaged(name, content), st.sampled_from(COMMANDS[name]))
    def check(edited: bytes, command: tuple[str, ...]) -> None:
        with copy_of(workspace) as copy:
            (copy / name).write_bytes(edited)
            before = contents(copy)
            invoke(*command)
            after = contents(copy)
            changed = [path for path in before if before[path] != after.get(path)]
            assert all(path in after for path in changed), "a file was lost"
            assert all(path.startswith("runs/") and any(part in path for part in WRITTEN) for path in changed), changed
            assert not unfinished(copy)

    check()


def test_the_commands_work(workspace: Path) -> None:
    failed = {}
    for command in dict.fromkeys(command for commands in COMMANDS.values() for command in commands):
        with copy_of(workspace):
            if (result := riffle(*command)).code:
                failed[command] = result.err
    assert not failed


def test_the_list_has_every_file(workspace: Path) -> None:
    """A file that a new version writes to a run or a corpus is edited here as well, or is one that nothing reads."""
    unread = ("validation.npy", "within.npy", "accuracy.png", "tfevents")
    for folder in (RUN, READER, WRITER, CORPUS):
        for path in contents(workspace / folder):
            assert f"{folder}/{path}" in COMMANDS or any(part in path for part in (*unread, *WRITTEN)), path
