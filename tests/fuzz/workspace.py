"""Commands in copies of a folder that has everything the program reads, and what must hold whatever they are given."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from cli.riffle_command import Result, riffle
from hypothesis import settings

SECONDS_TO_INTERRUPT, SECONDS_TO_HANG = 1.0, 10.0
"""When a command that works for long gets a Ctrl-C, and when it must have ended."""
MEMORY = 3 << 30
"""Bytes that a command may take beyond what the process has."""
RUN, READER, WRITER = "runs/reverse", "runs/lambada", "runs/text"
CORPUS, RESULTS = "data/corpus", "research/results"


def some(share: int) -> settings:
    """One ``share``-th of the cases of other tests; ``--hypothesis-profile=thorough`` tries 25 times as many."""
    return settings(max_examples=settings().max_examples // share)


class Hang(BaseException):
    """A command took too long."""


def invoke(*arguments: object) -> Result:
    """Run a command; it ends by itself or by Ctrl-C, in time, within its memory, and with no exception."""

    def on_alarm(number: int, frame: object) -> None:
        if time.monotonic() - began > SECONDS_TO_HANG:
            raise Hang(f"riffle {arguments} takes over {SECONDS_TO_HANG:.0f} seconds")
        signal.raise_signal(signal.SIGINT)

    handler = signal.signal(signal.SIGALRM, on_alarm)
    began = time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, SECONDS_TO_INTERRUPT, SECONDS_TO_INTERRUPT)
    try:
        with limited_memory():
            result = riffle(*arguments)
    except KeyboardInterrupt:  # it came outside of the command
        return Result(130, "", "interrupted")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
    assert "Traceback" not in result.out + result.err, result
    assert result.code in (0, 1, 2, 130), result
    assert result.code in (0, 130) or result.err.strip(), "it fails and says nothing"
    assert len(result.err) < 20_000, "it repeats what it was given"
    return result


@contextlib.contextmanager
def limited_memory() -> Iterator[None]:
    """A command that would fill the machine's memory fails in this process instead."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@contextlib.contextmanager
def copy_of(workspace: Path) -> Iterator[Path]:
    """A copy of the folder as the working directory."""
    home = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "w"
        shutil.copytree(workspace, copy)
        os.chdir(copy)
        try:
            yield copy
        finally:
            os.chdir(home)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def unfinished(folder: Path) -> list[str]:
    """Temporary files and folders that a command left behind."""
    return [str(path) for path in folder.rglob(".*") if path.name != ".lock"]
