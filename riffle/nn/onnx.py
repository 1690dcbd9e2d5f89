"""A model with networks inside as one ONNX program for all lengths: half blocks are loops of as many trips as needed.

``torch.onnx.export`` unrolls the layers, so that its programs serve the lengths of one power of two. Here it writes a
network as a single node, which becomes a call of a function of ONNX: a loop over the groups of rows that run on one
number of cells, in it a loop for every half block, in it a unit as ``torch.onnx`` translates it.
"""

# B = batch, N = length, W = padded length, R = rows of one padded length, K = bits, D = features per cell
from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from riffle.files import replacing

if TYPE_CHECKING:
    from riffle.nn.network import ShuffleExchange
    from riffle.nn.switch import PairUnit

OPSET = 18
MOST_BITS = 40
"""Address bits of the longest sequence that a program takes."""
TYPES = {torch.float32: "float", torch.float64: "double", torch.float16: "float16", torch.bfloat16: "bfloat16"}
exported: list[ShuffleExchange] | None = None
"""The networks of the model that is being exported; None at all other times."""


def export_onnx(
    model: nn.Module,
    inputs: tuple[Any, ...],
    path: str | Path,
    *,
    input_names: Sequence[str] = ("inputs", "lengths"),
    output_names: Sequence[str] = ("outputs",),
    dynamic_shapes: Any = None,
) -> None:
    """Write a model as one ONNX program for all lengths and batches, of nothing but ONNX's own operators.

    Args:
        model: A :class:`riffle.Encoder`, or any module with shuffle-exchange networks inside, in evaluation mode.
        inputs: Examples of its arguments. With lengths as a tensor, or a mask, among them the program takes these too,
            and a length that no row can have is an error there.
        path: The file to write.
        input_names: What to call the arguments that are tensors.
        output_names: What to call the results.
        dynamic_shapes: The free dimensions, see ``torch.onnx.export``; None where all inputs are ``[batch, ...]`` or
            ``[batch, length, ...]``.
    """
    global exported
    onnx = require_onnx()
    from torch.export import Dim

    if dynamic_shapes is None:
        free = {0: Dim("batch"), 1: Dim("length")}
        dynamic_shapes = tuple(
            {dim: free[dim] for dim in range(min(2, x.dim()))} if isinstance(x, Tensor) else None for x in inputs
        )
    exported = []
    try:
        program = translate(model, inputs, input_names, output_names, dynamic_shapes)
        networks = exported
    finally:
        exported = None
    program.opset_import.append(onnx.helper.make_opsetid("riffle", 1))
    units: dict[str, str] = {}
    for index, network in enumerate(networks):
        for unit in network.units.values():
            if repr(unit) not in units:
                units[repr(unit)] = f"Unit{len(units)}"
                program.functions.append(_unit_function(unit, units[repr(unit)]))  # type: ignore[arg-type]
        program.functions.append(onnx.parser.parse_function(_network_function(network, f"Network{index}", units)))
    save(onnx.inliner.inline_local_functions(program), Path(path))


def require_onnx() -> Any:
    """The package onnx, and onnxscript beside it, which ``torch.onnx`` needs."""
    try:
        import onnx.inliner
        import onnxscript  # noqa: F401
    except ImportError:
        raise ImportError("ONNX export needs onnx and onnxscript: pip install 'riffle-nn[export]'") from None
    return onnx


def save(model: Any, path: Path) -> None:
    """Write an ONNX model, whole or not at all, after a check."""
    onnx = require_onnx()
    onnx.checker.check_model(model)
    with replacing(path) as temporary:
        onnx.save(model, temporary)


def network_node(
    network: ShuffleExchange, x_BND: Tensor, lengths: Tensor | Sequence[int] | None, padding_D: Tensor | None
) -> Tensor:
    """The node of a network in a model that is being exported; its weights are inputs of it."""
    from riffle.nn.network import ShuffleExchange

    assert exported is not None
    if type(network) is not ShuffleExchange or network.sharing == "none":
        raise ValueError('a network of a class of its own, or with sharing="none", is exported by torch.onnx.export')
    if network not in exported:
        exported.append(network)
    batch, longest = x_BND.shape[:2]
    if lengths is None:
        lengths = torch.full((batch,), longest, device=x_BND.device)
    lengths_B = torch.as_tensor(lengths, device=x_BND.device).long()
    padding_D = x_BND.new_zeros(network.features) if padding_D is None else padding_D.to(x_BND.dtype)
    x_BND = network.relabel(x_BND)
    return network.relabel(
        torch.onnx.ops.symbolic(
            f"riffle::Network{exported.index(network)}",
            (x_BND, lengths_B, network.relabel(padding_D), *network.units.parameters()),
            dtype=x_BND.dtype,
            shape=x_BND.shape,
            version=1,
        )
    )


def translate(
    model: Any, inputs: Any, input_names: Sequence[str], output_names: Sequence[str], dynamic_shapes: Any = None
) -> Any:
    """What ``torch.onnx`` makes of a module, or of a program of ``torch.export``."""
    require_onnx()
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # or it lists the operators of absent libraries
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            model, inputs, input_names=input_names, output_names=output_names, dynamic_shapes=dynamic_shapes,
            opset_version=OPSET, dynamo=True, verbose=False, optimize=False,  # which takes 1e-10 for 0
        )  # fmt: skip
    assert program is not None
    translated = program.model_proto
    for node in translated.graph.node:
        del node.metadata_props[:]  # where in torch each came from: more than all weights of a small model
    return translated


class _UnitCall(nn.Module):
    """A unit whose weights are arguments, so that units of one kind are one function."""

    def __init__(self, unit: PairUnit) -> None:
        super().__init__()
        self.unit = [unit]  # in a list, so that it is no part of this module
        self.names = [name for name, _ in unit.named_parameters()]

    def forward(self, cells: list[Tensor], weights: list[Tensor]) -> Tensor:
        return torch.func.functional_call(self.unit[0], dict(zip(self.names, weights, strict=True)), tuple(cells))


def _unit_function(unit: PairUnit, name: str) -> Any:
    """A unit as a function of cells, those of its skip connection if it has one, and its weights."""
    import onnx
    from torch.export import Dim

    weights = [weight.detach() for weight in unit.parameters()]
    cells = [weights[0].new_zeros(2, 8, unit.features) for _ in range(1 if unit.skip_scale is None else 2)]
    free = [{0: Dim("batch"), 1: 2 * Dim("pairs")}] * len(cells)
    names = [f"input_{number}" for number in range(len(cells) + len(weights))]
    graph = translate(_UnitCall(unit), (cells, weights), names, ["out"], (free, [None] * len(weights))).graph
    constants = [onnx.helper.make_node("Constant", [], [value.name], value=value) for value in graph.initializer]
    opsets = [onnx.helper.make_opsetid("", OPSET)]
    return onnx.helper.make_function("riffle", name, names, ["out"], [*constants, *graph.node], opsets)


def _network_function(network: ShuffleExchange, name: str, units: dict[str, str]) -> str:
    """A network in ONNX's textual syntax, as a function of cells, lengths, the cell that fills rows up, and weights."""
    weights = {
        unit: [f"{unit}_{number}" for number, _ in enumerate(module.parameters())]
        for unit, module in ((f"u{key}", module) for key, module in network.units.items())
    }
    cells = f"{TYPES[next(network.parameters()).dtype]}[R, W, D]"
    layers = network.layers(3)  # which have all half blocks, and in each a first layer and others
    levels = (len(layers) - 1) // (2 * network.blocks)

    def call(key: str, out: str, state: str, skip: str) -> str:
        inputs = [state, *([] if network[key].skip_scale is None else [skip]), *weights[f"u{key}"]]
        return f"{out} = riffle.{units[repr(network[key])]} ({', '.join(inputs)})"

    text = []
    for half, start in enumerate(range(0, len(layers) - 1, levels)):
        first, later = layers[start : start + 2]
        body, skip = ["still = Identity(go)"], "nothing"
        outputs, results = f"bool still, {cells} next", f"state_{half + 1}"
        if any(layer.skip == start for layer in layers[:-1]):
            body.append("kept = Identity(state)")
            outputs, results = f"{outputs}, {cells} kept", f"{results}, kept_{half}"
        if first.skip is not None:
            skip = "skip"
            body.append(f"skip = Gather <axis = 0> (kept_{first.skip // levels}, level)")
        if first.unit == later.unit:
            body.append(call(first.unit, "out", "state", skip))
        else:
            then, other = call(first.unit, "out_then", "state", skip), call(later.unit, "out_else", "state", skip)
            body.append("at_first = Equal(level, zero)")
            body.append(
                f"out = If (at_first) <then_branch = then () => ({cells} out_then) {{ {then} }}, "
                f"else_branch = else () => ({cells} out_else) {{ {other} }}>"
            )
        body.append(f"parts = Reshape(out, {'as_pairs' if first.shuffle > 0 else 'as_halves'})")
        body.append("dealt = Transpose <perm = [0, 2, 1, 3]> (parts)")
        body.append("next = Reshape(dealt, as_cells)")
        text.append(
            f"{results} = Loop (levels, go_on, state_{half}) <body = half "
            f"(int64 level, bool go, {cells} state) => ({outputs}) {{ {' '.join(body)} }}>"
        )
    last = layers[-1]
    if last.skip is not None:
        text.append("any_level = Greater(levels, zero)")
        text.append(f"last_skip = Where(any_level, state_{last.skip // levels}, zero_x)")
    text.append(call(last.unit, "out_last", f"state_{2 * network.blocks}", "last_skip"))
    return _WIRING.format(
        opset=OPSET,
        name=name,
        weights="".join(f", {each}" for names in weights.values() for each in names),
        powers=", ".join(str(2**bit) for bit in range(MOST_BITS)),
        width="Gather(powers, bits_B)" if network.pad == "power" else "Add(size_B, odd_B)",
        levels="under" if network.benes else "bits",
        cells=cells,
        features=network.features,
        layers="\n".join(text),
    )


_WIRING = """<opset_import: ["" : {opset}, "riffle" : 1], domain: "riffle">
{name} (x, lengths, padding{weights}) => (y) {{
    zero = Constant <value_int = 0> ()
    one = Constant <value_int = 1> ()
    zeros = Constant <value_ints = [0]> ()
    ones = Constant <value_ints = [1]> ()
    twos = Constant <value_ints = [2]> ()
    features = Constant <value_ints = [{features}]> ()
    powers = Constant <value_ints = [{powers}]> ()
    none = Constant <value_ints = [0, 0, 0, 0]> ()
    yes = Cast <to = 9> (one)
    zero_x = CastLike(zero, x)

    shape = Shape(x)
    length = Gather <axis = 0> (shape, one)
    lengths_1 = Unsqueeze(length, zeros)
    beyond = Add(length, one)
    possible = Range(zero, beyond, one)
    batch = Shape <start = 0, end = 1> (x)
    given_B = Reshape(lengths, batch)
    negative_B = Less(given_B, zero)
    checked_B = Where(negative_B, beyond, given_B)
    end_B = Gather(possible, checked_B)
    size_B = Max(end_B, one)
    size_B1 = Unsqueeze(size_B, ones)
    below_BK = Less(powers, size_B1)
    below_int_BK = Cast <to = 7> (below_BK)
    below_B = ReduceSum <keepdims = 0> (below_int_BK, ones)
    bits_B = Max(below_B, one)
    odd_B = Mod(size_B, twos)
    width_B = {width}
    widths_G = Unique(width_B)
    groups = Size(widths_G)
    blank = Expand(zero_x, shape)
    y = Loop (groups, yes, blank) <body = group (int64 g, bool going, {cells} before) => (bool go_on, {cells} after) {{
        go_on = Identity(going)
        width = Gather(widths_G, g)
        width_1 = Unsqueeze(width, zeros)
        below_K = Less(powers, width)
        below_int_K = Cast <to = 7> (below_K)
        bits = ReduceSum <keepdims = 0> (below_int_K, zeros)
        under = Sub(bits, one)
        levels = Identity({levels})

        here_B = Equal(width_B, width)
        here_1R = NonZero(here_B)
        rows_R = Squeeze(here_1R, zeros)
        number = Shape(rows_R)
        end_R = Gather(end_B, rows_R)
        end_R1 = Unsqueeze(end_R, ones)
        place_W = Range(zero, width, one)
        inside_RW = Less(place_W, end_R1)
        inside_RW1 = Unsqueeze(inside_RW, twos)
        common = Min(width_1, lengths_1)
        missing = Sub(width_1, common)
        pads = Concat <axis = 0> (none, missing, zeros)
        x_RND = Gather(x, rows_R)
        x_RCD = Slice(x_RND, zeros, common, ones)
        x_RWD = Pad(x_RCD, pads, zero_x)
        state_0 = Where(inside_RW1, x_RWD, padding)

        pairs = Div(width_1, twos)
        as_pairs = Concat <axis = 0> (number, pairs, twos, features)
        as_halves = Concat <axis = 0> (number, twos, pairs, features)
        as_cells = Concat <axis = 0> (number, width_1, features)
        nothing = Expand(zero_x, as_cells)
        {layers}
        y_RWD = Where(inside_RW1, out_last, zero_x)
        y_RCD = Slice(y_RWD, zeros, common, ones)
        cut = Sub(lengths_1, common)
        y_pads = Concat <axis = 0> (none, cut, zeros)
        y_RND = Pad(y_RCD, y_pads, zero_x)
        rows_R1 = Unsqueeze(rows_R, ones)
        after = ScatterND(before, rows_R1, y_RND)
    }}>
}}"""
