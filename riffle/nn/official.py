"""Weights of the authors' released TensorFlow code, in our names and feature order."""

# D = features per cell, E = 2 * D features per pair; TensorFlow kernels are [in, out], ours [out, in]
from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from riffle.nn.switch import GATE_BIAS

if TYPE_CHECKING:
    from riffle.nn.network import ShuffleExchange

VARIABLE = re.compile(r"(?:^|/)\w+(?:[_/]shuffle_exchange|_recursive)/(?P<layer>[^/]+)/(?P<what>.+?)(?::0)?$")
"""A variable of a switch layer, whatever scopes stand before it."""
LAYER_NAMES = {"first_layer": "first", "middle_layer": "middle", "last_layer": "last", "backward": "reverse"}
"""Layers that the released code names otherwise in its network with minimal sharing."""
PARTS = ("CvK", "CvB", "residual_scale", "offset", "residual")
"""What the name of such a variable ends with."""
OUTSIDE = ("embedding", "output/CvK", "output/CvB")
"""The variables of a whole model beside its network."""
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
GATED_SHAPES = {
    **{f"{gate}/{what}": width for gate in GATES for what, width in (("CvK", (2, 2)), ("CvB", (2,)))},
    **{f"{cand}/{what}": width for cand in CANDIDATES for what, width in (("CvK", (2, 1)), ("CvB", (1,)))},
    "residual_scale": (1,),
}
RESIDUAL_SHAPES = {
    **{"cand1/c/CvK": (2, 4), "norm/c/norm_bias/offset": (4,), "cand2/c/CvK": (4, 2)},
    **{"cand2/c/CvB": (2,), "residual": (2,)},
}
"""The shapes of variables, in features per cell; dimensions of size 1 before them are left out."""


def read_variables(variables: Mapping[str, Any], blocks: int | None = None) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The arguments of a :class:`~riffle.nn.network.ShuffleExchange` and its state, from TensorFlow variables.

    Variables outside the network (embedding, output, optimiser slots) are passed over. A graph built for two or four
    cells never made the units that it had no layers for: those are absent from the state.
    """
    units: dict[str, dict[str, Tensor]] = {}
    scopes: set[str] = set()
    for name, array in variables.items():
        match = VARIABLE.search(name)
        if match and match["what"].rsplit("/")[-1] in PARTS:
            parts = units.setdefault(match["layer"], {})
            scopes.add(name[: match.start("layer")])
            if len(scopes) > 1 or match["what"] in parts:
                raise ValueError(f"these variables are of several networks, see {name!r}: give those of one scope")
            parts[match["what"]] = _read_array(name, array)
    if not units:
        raise ValueError("no variable of a shuffle-exchange network, like 'steps_shuffle_exchange/last/g/CvK', found")
    residual = any("residual" in parts for parts in units.values())
    first, shapes = ("residual", RESIDUAL_SHAPES) if residual else ("cand1/c/CvB", GATED_SHAPES)
    features = next((parts[first].numel() for parts in units.values() if first in parts), 0) // (1 + residual)
    state: dict[str, Tensor] = {}
    for layer, parts in units.items():
        _check_shapes(layer, parts, shapes, features)
        try:
            unit = _read_residual_unit(parts) if residual else _read_unit(parts)
        except KeyError as error:
            raise ValueError(f"layer {layer!r} lacks the variable {error}") from None
        state |= {f"units.{_our_name(layer)}.{name}": tensor for name, tensor in unit.items()}
    kind = {"unit": "residual", "norm": "sequence"} if residual else {"order": "official"}
    return {"features": features, **kind, **_arguments(units, blocks)}, state


def load_network(net: ShuffleExchange, state: Mapping[str, Tensor]) -> None:
    """Copy what :func:`read_variables` gave to a network made with its arguments."""
    missing, unexpected = net.load_state_dict(state, strict=False)
    # A graph of two cells, or of four with minimal sharing, had no layers for the shared units of the half blocks.
    absent = net.units.keys() - {key.split(".")[1] for key in state}
    if absent == {name for name in net.units if name.endswith(("_forward", "_reverse"))}:
        missing = [key for key in missing if key.split(".")[1] not in absent]
    if wrong := [*unexpected, *missing]:
        raise ValueError(f"these variables do not make a network of {net.blocks} blocks, see {', '.join(wrong)}")


def read_model(
    variables: Mapping[str, Any], blocks: int | None = None
) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, Tensor]]:
    """The arguments of a :class:`~riffle.models.sequence.SequenceModel`, its state, and its network's, from variables.

    The embedding and the output layer are relabelled with the network, so nothing else has to be.
    """
    arguments, network = read_variables(variables, blocks)
    if arguments.pop("order", None) is None:
        raise ValueError("a residual network is read by ShuffleExchange.from_official, without embedding and output")
    outside: dict[str, Tensor] = {}
    for name, array in variables.items():
        own = re.sub(r"^.*?(?=embedding|output/)|:0$", "", name)
        if own in OUTSIDE:
            if own in outside:
                raise ValueError(f"these variables are of several models, see {name!r}: give those of one scope")
            outside[own] = _read_array(name, array)
    try:
        embedding_SD, output_DC, output_C = (outside[name] for name in OUTSIDE)
    except KeyError as error:
        raise ValueError(f"these variables lack {error}, which a whole model has beside its network") from None
    features, shapes = arguments["features"], [list(tensor.shape) for tensor in outside.values()]
    if embedding_SD.shape[1:] != (features,) or output_DC.shape != (features, output_C.numel()) or output_C.dim() != 1:
        raise ValueError(f"{', '.join(outside)} have shapes {shapes}, which do not fit {features} features per cell")
    state = {
        "embedding.weight": embedding_SD.roll(features // 2, 1),
        "output.weight": output_DC.T.roll(features // 2, 1),
        "output.bias": output_C,
    }
    return {"symbols": len(embedding_SD), "classes": len(output_C), **arguments}, state, network


def _read_array(name: str, array: Any) -> Tensor:
    try:
        tensor = torch.as_tensor(array)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"the variable {name!r} is no array but {type(array).__name__}") from None
    if not tensor.is_floating_point() or not tensor.isfinite().all():
        raise ValueError(
            f"the variable {name!r} must hold finite real numbers, and {tensor.dtype} does not, or has NaN"
        )
    return tensor


def _check_shapes(
    layer: str, parts: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]], features: int
) -> None:
    for name, tensor in parts.items():
        expected, shape = [width * features for width in shapes.get(name, ())], list(tensor.shape)
        while len(shape) > len(expected) and shape[0] == 1:
            del shape[0]
        if shape != expected and name in shapes and features:
            sizes = f"{list(tensor.shape)}, not {expected}"
            raise ValueError(
                f"layer {layer!r} has {name!r} of shape {sizes}: of one network all have {features} features"
            )


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
    arguments["blocks"] = max(numbers, default=0) + 1 if blocks is None else blocks
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
