"""NVIDIA's Multi-Process Service: kernels of several processes side by side on one GPU, not in turns."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

CONTROL = "nvidia-cuda-mps-control"


@contextmanager
def shared_gpu(wanted: bool) -> Iterator[dict[str, str]]:
    """Start the service where it is wanted, installed and not running; gives the variables that lead a process to it.

    Without the service processes take turns on a GPU, which is slower and as right, so its absence is no error.
    """
    if not wanted or shutil.which(CONTROL) is None or _answers({}):
        yield {}
        return
    place = Path(tempfile.gettempdir()) / f"riffle-mps-{os.getuid()}"  # where a killed command left it, it is found
    variables = {"CUDA_MPS_PIPE_DIRECTORY": str(place), "CUDA_MPS_LOG_DIRECTORY": str(place)}
    place.mkdir(exist_ok=True, mode=0o700)
    started = _answers(variables) or _control(variables, "-d")
    try:
        yield variables if started else {}
    finally:
        if started:
            _control(variables, said="quit\n")


def _answers(variables: Mapping[str, str]) -> bool:
    return _control(variables, said="get_server_list\n")


def _control(variables: Mapping[str, str], *arguments: str, said: str = "") -> bool:
    """Whether the service's command succeeds."""
    with suppress(OSError, subprocess.TimeoutExpired):
        environment = {**os.environ, **variables}
        # No pipes: the service would keep them open.
        done = subprocess.run(
            [CONTROL, *arguments],
            input=said.encode(),
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=20,
        )
        return done.returncode == 0
    return False
