"""The record of software, hardware, command and commit that goes with every result, and free memory."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import riffle


def environment(device: torch.device) -> dict[str, Any]:
    """Versions, hardware, command and commit: what is needed to repeat a run."""
    versions = {"riffle": riffle.__version__, "python": platform.python_version()}
    for package in ("torch", "triton", "numpy", "safetensors"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "absent"
    return {
        "versions": versions,
        "device": device_name(device),
        "threads": torch.get_num_threads(),
        "platform": f"{platform.system()} {platform.machine()}",
        "command": [Path(sys.argv[0]).name.replace("__main__.py", "riffle"), *sys.argv[1:]],  # python -m riffle
        "commit": commit(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def device_name(device: torch.device) -> str:
    """The name of a GPU, or the kind of device and processor."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{device.type}, {platform.machine()}"


def commit() -> str | None:
    """The git commit of the checkout this package runs from, None if there is none."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def free_bytes(device: torch.device) -> int:
    """Memory that torch can still allocate on a GPU: free, or cached by torch, within the process's fraction of it."""
    free, total = torch.cuda.mem_get_info(device)
    held = torch.cuda.memory_allocated(device)
    index = torch.cuda.current_device() if device.index is None else device.index
    limit = int(torch.cuda.get_per_process_memory_fraction(index) * total)
    return min(free + torch.cuda.memory_reserved(device) - held, limit - held)


def available_bytes(device: torch.device) -> float:
    """Memory that no process uses, on a GPU or of the host."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
