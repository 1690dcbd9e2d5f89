"""Files that are either whole or not there: written beside the target, synced, renamed."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

FORMAT = "riffle-checkpoint-1"


def write_atomically(path: Path, content: bytes) -> None:
    """Replace ``path`` by ``content`` in one step; after a failure or a power cut the old file is still whole."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(name)
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(path), None  # what the user knows, not our temporary name
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_json(path: Path) -> Any:
    """The content of a file, None where there is none."""
    return json.loads(path.read_text()) if path.exists() else None


def write_json(path: Path, value: object) -> None:
    """Write a value as indented JSON, atomically."""
    write_atomically(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def write_checkpoint(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write named tensors as safetensors, atomically."""
    # Safetensors refuses tensors that share memory or are not contiguous; copies are neither.
    content = save(
        {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}, {"format": FORMAT}
    )
    write_atomically(path, content)


def below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin with ``prefix``, which is taken off."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def read_checkpoint(path: Path, prefix: str = "") -> dict[str, Tensor]:
    """The tensors of a checkpoint whose names begin with ``prefix``, which is taken off."""
    try:
        with safe_open(path, framework="pt") as file:
            form = (file.metadata() or {}).get("format")
            if form != FORMAT:
                raise ValueError(
                    f"{path} is no checkpoint of riffle: its format is {form!r}, not {FORMAT!r}; "
                    "restore it or train again"
                )
            names = [name for name in file.keys() if name.startswith(prefix)]  # noqa: SIM118, it is no dict
            return {name.removeprefix(prefix): file.get_tensor(name) for name in names}
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} does not exist: the run has not written a checkpoint yet") from None
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged or no safetensors file ({error}); restore it or train again") from None
