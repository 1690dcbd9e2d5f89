"""Results of the authors' released TensorFlow code, kept in tests/golden, and how closely they must be met.

A file ``net_*.npz`` holds ``input`` [B, N, m], ``var/<TensorFlow name>``, and for both precisions (suffix ``_f32``,
``_f64``) ``output``, ``mem`` [layers, B, N, m], and in some files ``grad_input`` and ``grad_*/<TensorFlow name>``, the
gradients of ``sum(output * loss_weight)``. ``net_std_*`` come from ``shuffle_exchange_network``, whose ``mem`` is each
switch layer's output; ``net_less_*`` come from ``shuffle_exchange_network_less_sharing`` (our ``sharing="minimal"``),
whose ``mem`` has passed the shuffle, too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from riffle.nn.official import CANDIDATES, GATES, LAYER_NAMES, relabel
from riffle.nn.switch import GATE_BIAS

FOLDER = Path(__file__).parents[1] / "golden"
NETS = sorted(path.stem for path in FOLDER.glob("net_*.npz"))
RESIDUAL_NETS = sorted(path.stem for path in FOLDER.glob("rse_*_L*.npz"))
SWITCHES = sorted(path.stem for path in FOLDER.glob("switch_layer_*.npz"))
PRECISIONS = {"f64": torch.float64, "f32": torch.float32}
TOLERANCE = {"f64": 1e-10, "f32": 1e-5}


@dataclass(frozen=True)
class Golden:
    """One golden file."""

    name: str
    meta: dict[str, Any]
    arrays: dict[str, np.ndarray]

    def __getitem__(self, key: str) -> np.ndarray:
        return self.arrays[key]

    def __contains__(self, key: str) -> bool:
        return key in self.arrays

    def under(self, prefix: str) -> dict[str, np.ndarray]:
        """The arrays whose key starts with ``prefix``, by what follows it."""
        return {key.removeprefix(prefix): array for key, array in self.arrays.items() if key.startswith(prefix)}

    @property
    def minimal(self) -> bool:
        return self.name.startswith(("net_less", "rse_less"))

    @property
    def scope(self) -> str:
        return "steps/shuffle_exchange" if self.minimal else "steps_shuffle_exchange"

    @property
    def sharing(self) -> str:
        if self.minimal:
            return "minimal"
        if self.meta["kwargs"].get("tied_outer_weights"):
            return "full"
        return "block" if self.meta["kwargs"].get("tied_inner_weights", True) else "none"


def load(name: str) -> Golden:
    with np.load(FOLDER / f"{name}.npz") as file:
        arrays = {key: file[key] for key in file.files}
    meta = json.loads(str(arrays.pop("meta"))) if "meta" in arrays else {}
    return Golden(name, meta, arrays)


def load_json(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_text())


def assert_near(what: str, actual: Any, expected: np.ndarray, tolerance: float) -> None:
    """The largest error may be ``tolerance`` times the largest magnitude of the expected array."""
    if isinstance(actual, torch.Tensor):
        actual = actual.detach().numpy()
    assert actual.shape == expected.shape, f"{what}: {actual.shape}, expected {expected.shape}"
    error = np.abs(actual.astype(np.float64) - expected).max()
    allowed = tolerance * np.abs(expected).max()
    assert error <= allowed, f"{what}: {error:.2e} away, {allowed:.2e} allowed"


def write_variables(tensors: Mapping[str, Tensor], scope: str, *, gradients: bool = False) -> dict[str, Tensor]:
    """The inverse of ``read_variables`` for a network's state dict, or for gradients, which have no constant bias."""
    minimal = any("_first." in name for name in tensors)
    official = {ours: name for name, ours in LAYER_NAMES.items()} if minimal else {}
    bias = 0.0 if gradients else GATE_BIAS
    features = next(tensor.shape[-1] for name, tensor in tensors.items() if name.endswith("candidates_bias"))
    variables: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        _, unit, part = name.split(".", 2)
        block, _, kind = unit.removeprefix("all_").rpartition("_")
        layer = f"{scope}/{block}{'_' if block else ''}{official.get(kind, kind)}"
        match part:
            case "skip_scale":
                variables[f"{layer}/residual_scale"] = relabel(tensor, features)
            case "gates.weight":
                for gate, matrix_EE in zip(GATES, tensor.chunk(3), strict=True):
                    variables[f"{layer}/{gate}/CvK"] = relabel(matrix_EE, features).T
            case "gates.bias":
                for gate, bias_E in zip(GATES, tensor.chunk(3), strict=True):
                    variables[f"{layer}/{gate}/CvB"] = relabel(bias_E, features) - bias
            case "candidates_weight":
                for candidate, matrix_DE in zip(CANDIDATES, tensor, strict=True):
                    variables[f"{layer}/{candidate}/CvK"] = relabel(matrix_DE, features).T
            case "candidates_bias":
                for candidate, bias_D in zip(CANDIDATES, tensor, strict=True):
                    variables[f"{layer}/{candidate}/CvB"] = relabel(bias_D, features)
    return variables
