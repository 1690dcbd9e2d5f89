"""Weights of the authors' released TensorFlow code, in our names and feature order."""

# D = features per cell, E = 2 * D features per pair; TensorFlow kernels are [in, out], ours [out, in]
from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from riffle.nn.switch import GATE_BIAS

VARIABLE = re.compile(r"(?:^|/)\w+(?:[_/]shuffle_exchange|_recursive)/(?P<layer>[^/]+)/(?P<what>.+?)(?::0)?$")
"""A variable of a switch layer, whatever scopes stand before it."""
LAYER_NAMES = {"first_layer": "first", "middle_layer": "middle", "last_layer": "last", "backward": "reverse"}
"""Layers that the released code names otherwise in its network with minimal sharing."""
PARTS = ("CvK", "CvB", "residual_scale", "offset", "residual")
"""What the name of such a variable ends with."""
GATES = ("reset1/c", "reset2/c", "g")
CANDIDATES = ("cand1/c", "cand2/c")
RESIDUAL = {
    "cand1/c/CvK": "hidden_weight",
    "norm/c/norm_bias/offset": "hidden_bias",
    "cand2/c/CvK": "candidate_weight",
    "cand2/c/CvB": "candidate_bias",
    "residual": "residual",
}
"""The variables of a residual unit, and ours."""


def read_variables(variables: Mapping[str, Any], blocks: int | None = None) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The arguments of a :class:`~riffle.nn.network.ShuffleExchange` and its state, from TensorFlow variables.

    Variables outside the network (embedding, output, optimiser slots) are passed over. A graph built for two or four
    cells never made the units that it had no layers for: those are absent from the state.
    """
    units: dict[str, dict[str, Tensor]] = {}
    for name, array in variables.items():
        match = VARIABLE.search(name)
        if match and match["what"].rsplit("/")[-1] in PARTS:
            units.setdefault(match["layer"], {})[match["what"]] = torch.as_tensor(array)
    if not units:
        raise ValueError("no variable of a shuffle-exchange network, like 'steps_shuffle_exchange/last/g/CvK', found")
    residual = any("residual" in parts for parts in units.values())
    state: dict[str, Tensor] = {}
    for layer, parts in units.items():
        try:
            unit = _read_residual_unit(parts) if residual else _read_unit(parts)
        except KeyError as error:
            raise ValueError(f"layer {layer!r} lacks the variable {error}") from None
        state |= {f"units.{_our_name(layer)}.{name}": tensor for name, tensor in unit.items()}
    arguments = _arguments(units, blocks)
    if residual:
        width = next(len(tensor) for name, tensor in state.items() if name.endswith("residual"))
        return {"features": width // 2, "unit": "residual", "norm": "sequence", **arguments}, state
    features = next(tensor.shape[-1] for name, tensor in state.items() if name.endswith("candidates_bias"))
    return {"features": features, "order": "official", **arguments}, state


def read_model(variables: Mapping[str, Any], blocks: int | None = None) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The arguments of a :class:`~riffle.models.sequence.SequenceModel` and its state, from TensorFlow variables.

    The embedding and the output layer are relabelled with the network, so nothing else has to be.
    """
    arguments, network = read_variables(variables, blocks)
    if arguments.pop("order", None) is None:
        raise ValueError("a residual network is read by ShuffleExchange.from_official, without embedding and output")
    outside = {re.sub(r"^.*?(?=embedding|output/)|:0$", "", name): array for name, array in variables.items()}
    try:
        names = ("embedding", "output/CvK", "output/CvB")
        embedding_SD, output_DC, output_C = (torch.as_tensor(outside[name]) for name in names)
    except KeyError as error:
        raise ValueError(f"these variables lack {error}, which a whole model has beside its network") from None
    half = arguments["features"] // 2
    state = {
        "embedding.weight": embedding_SD.roll(half, 1),
        "output.weight": output_DC.T.roll(half, 1),
        "output.bias": output_C,
        **{f"network.{name}": tensor for name, tensor in network.items()},
    }
    return {"symbols": len(embedding_SD), "classes": len(output_C), **arguments}, state


def _arguments(units: Mapping[str, Mapping[str, Tensor]], blocks: int | None) -> dict[str, Any]:
    layers = [_our_name(layer) for layer in units]
    numbers = [int(layer.split("_")[0]) for layer in layers if layer[0].isdigit()]
    arguments: dict[str, Any] = {"sharing": "block"}
    if any(layer.endswith("first") for layer in layers):
        arguments["sharing"] = "minimal"
    elif any(layer[-1].isdigit() for layer in layers):
        arguments["sharing"] = "none"
        arguments["length"] = 2 ** (1 + sum(layer.startswith("0_forward") for layer in layers))
    elif "all_forward" in layers:
        arguments["sharing"] = "full"
        if blocks is None:
            raise ValueError("all blocks share these weights, so their names do not tell how many: pass blocks=")
    arguments["blocks"] = blocks or max(numbers, default=0) + 1
    return arguments


def _our_name(layer: str) -> str:
    if layer in ("forward", "reverse"):
        return f"all_{layer}"
    for official, ours in LAYER_NAMES.items():
        if layer.endswith(official):
            return layer.removesuffix(official) + ours
    return layer


def _read_residual_unit(parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {ours: parts[name].T if name.endswith("CvK") else parts[name].flatten() for name, ours in RESIDUAL.items()}


def _read_unit(parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
    features = len(parts["cand1/c/CvB"])
    state = {
        "gates.weight": torch.cat([relabel(parts[f"{gate}/CvK"].T, features) for gate in GATES]),
        "gates.bias": torch.cat([relabel(parts[f"{gate}/CvB"], features) + GATE_BIAS for gate in GATES]),
        "candidates_weight": torch.stack([relabel(parts[f"{cand}/CvK"].T, features) for cand in CANDIDATES]),
        "candidates_bias": torch.stack([relabel(parts[f"{cand}/CvB"], features) for cand in CANDIDATES]),
    }
    if "residual_scale" in parts:
        state["skip_scale"] = relabel(parts["residual_scale"], features)
    return state


def relabel(tensor: Tensor, features: int) -> Tensor:
    """Exchange the two halves of every cell; each dimension holds whole cells."""
    for dim in range(tensor.dim()):
        cells = tensor.unflatten(dim, (-1, features))
        tensor = cells.roll(features // 2, dim + 1).flatten(dim, dim + 1)
    return tensor
