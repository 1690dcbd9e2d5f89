"""The command line without the seconds that importing torch takes: inside this process, or in one forked for it."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import torch

from research.cli import main as research_main
from riffle.cli import IN_A_CLONE
from riffle.cli import main as riffle_main

SMALL = ("--recipe", "paper", "--features", "8", "--device", "cpu")
TINY = (*SMALL, "--set", "data.bins=4,8", "--set", "train.evaluate_lengths=8")


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@contextmanager
def small_files(limit: int) -> Iterator[None]:
    """No file can grow beyond ``limit`` bytes, as if the disk were full: a write ends in ``OSError``."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def riffle_or_research(*arguments: object) -> tuple[list[str], Callable[[], None]]:
    """The words that start a command, and its program: ``python -m research`` for what only a clone has."""
    words = [str(argument) for argument in arguments]
    if {" ".join(words[:1]), " ".join(words[:2])} & set(IN_A_CLONE):
        return ["research/__main__.py", *words], research_main
    return ["riffle", *words], riffle_main


def riffle(*arguments: object) -> Result:
    """Run a command; what is not turned into an exit code comes out as the exception it is."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    words, main = riffle_or_research(*arguments)
    with (
        redirect_stdout(out),
        redirect_stderr(err),
        patch.object(sys, "argv", words),
        patch.object(threading, "excepthook", threading.excepthook),
    ):
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
    return Result(code, out.getvalue(), err.getvalue())


def succeed(*arguments: object) -> Result:
    result = riffle(*arguments)
    assert result.code == 0, result
    return result


class ForkedCommand:
    """``python -m riffle`` in a process of its own that has imported torch already; as a ``subprocess.Popen``."""

    def __init__(self, *arguments: object) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._printed = [Path(self._folder.name) / name for name in ("out", "err")]
        context = multiprocessing.get_context("forkserver")
        self._process = context.Process(target=_run, args=(*riffle_or_research(*arguments), os.getcwd(), self._printed))
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def __enter__(self) -> ForkedCommand:
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is not None:
            self.kill()
        self._process.join()
        self._folder.cleanup()

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self, timeout: float) -> int | None:
        self._process.join(timeout)
        assert self.returncode is not None, f"it does not end within {timeout} seconds"
        return self.returncode

    def communicate(self, timeout: float) -> tuple[str, str]:
        """What it prints to standard output and error until it ends."""
        self.wait(timeout)
        out, err = (path.read_text() for path in self._printed)
        return out, err


def _run(words: list[str], main: Callable[[], None], folder: str, printed: list[Path]) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(folder)
    for number, path in enumerate(printed, start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    torch.set_num_threads(1)
    sys.argv = words
    main()
