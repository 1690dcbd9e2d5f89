"""Checkpoints: named tensors in one safetensors file; reading weights that were quantised to be shipped."""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from riffle.files import DamagedFile, refuse_pipe, write_atomically
from riffle.quantities import quote

FORMAT = "riffle-checkpoint-1"
"""Stands in a file's metadata, followed by a checksum: a CRC-32 of the file with zeros in its place."""
NO_CHECKSUM = b"00000000"
SCALE_SUFFIX = ".scale"
"""Appended to the name of a quantised matrix to name its scales."""


def write_checkpoint(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write named tensors and their checksum as safetensors, atomically."""
    # Safetensors refuses tensors that share memory or are not contiguous; copies are neither.
    copies = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    # One metadata entry only: the order of two, and with it the bytes of the file, would change from run to run.
    content = save(copies, {"format": f"{FORMAT} {NO_CHECKSUM.decode()}"})
    write_atomically(path, content.replace(NO_CHECKSUM, f"{zlib.crc32(content):08x}".encode(), 1))


def read_checkpoint(path: Path, prefix: str = "") -> dict[str, Tensor]:
    """The tensors of a checkpoint whose names begin with ``prefix``, which is removed; its checksum must be right."""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: the run has not written a checkpoint yet")
    refuse_pipe(path)
    try:
        with safe_open(path, framework="pt") as file:
            form, _, checksum = (file.metadata() or {}).get("format", "").partition(" ")
            if form != FORMAT:
                raise DamagedFile(
                    f"{path} is no checkpoint of riffle: its format is {quote(form)}, not {FORMAT!r}; "
                    "restore it or train again"
                )
            if checksum:  # earlier versions wrote none
                _verify(path, checksum)
            names = [name for name in file.keys() if name.startswith(prefix)]  # noqa: SIM118, it is no dict
            return {name.removeprefix(prefix): file.get_tensor(name) for name in names}
    except SafetensorError as error:
        raise DamagedFile(f"{path} is damaged or no safetensors file ({error}); restore it or train again") from None


def _verify(path: Path, checksum: str) -> None:
    """Raise unless a file has the given checksum."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        at = content.find(checksum.encode())
        with memoryview(content) as view:
            actual = zlib.crc32(NO_CHECKSUM, zlib.crc32(view[:at]))
            actual = zlib.crc32(view[at + len(checksum) :], actual)
    if f"{actual:08x}" != checksum:
        raise DamagedFile(
            f"{path} is damaged: its checksum is {actual:08x}, not {quote(checksum)}; restore it or train again"
        )


def select_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin with ``prefix``, which is removed."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def add_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors with ``prefix`` before their names."""
    return {f"{prefix}{name}": tensor for name, tensor in tensors.items()}


MOST_WEIGHTS = 2**30
"""Weights of a matrix at most: a damaged or hostile file is not inflated without end."""


def inflate(name: str, weights: Mapping[str, Tensor]) -> Tensor:
    """The integers of a quantised matrix, in rows as its scales."""
    scale, inflater = weights[name + SCALE_SUFFIX], zlib.decompressobj()
    try:
        content = inflater.decompress(weights[name].numpy().tobytes(), MOST_WEIGHTS)
    except zlib.error as error:
        raise ValueError(f"the weights {quote(name)} are no zlib stream ({error})") from None
    fits = scale.dim() > 1 and scale.shape[-1] == 1 and content and scale.numel() and not len(content) % scale.numel()
    if not inflater.eof or not fits:
        shape = tuple(scale.shape)
        raise ValueError(f"the scales {quote(name + SCALE_SUFFIX)} have shape {shape}, not one for each row of weights")
    return torch.frombuffer(bytearray(content), dtype=torch.int8).view(*scale.shape[:-1], -1)


def quantized_names(weights: Mapping[str, Tensor]) -> list[str]:
    """The names of the matrices that have scales."""
    names = [name.removesuffix(SCALE_SUFFIX) for name in weights if name.endswith(SCALE_SUFFIX)]
    if missing := [name for name in names if name not in weights]:
        raise ValueError(f"there are scales of {quote(missing[0])}, but no such weights")
    return names


def dequantize(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights as numbers: quantised integers times the scale of their row; weights without scales as they are."""
    out = {name: tensor for name, tensor in weights.items() if not name.endswith(SCALE_SUFFIX)}
    return out | {name: inflate(name, weights) * weights[name + SCALE_SUFFIX] for name in quantized_names(weights)}
