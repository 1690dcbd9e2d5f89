"""The switch layer in plain PyTorch: the definition, the CPU path and the oracle of every other kernel."""

# P = pairs (any leading shape), D = features per cell, E = 2 * D features per pair
from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional as F

Norm = Literal["sequence", "features"]
NORMS: tuple[Norm, ...] = get_args(Norm)
"""What a residual Switch Unit normalises over: the pairs of a sequence, or the features of a pair."""
SEQUENCE_EPSILON, FEATURES_EPSILON = 1e-10, 1e-5
"""What is added to the variances."""
CANDIDATE_SCALE = 0.25 * (1 - 0.9**2) ** 0.5
"""The weight of a residual unit's candidate, which keeps the variance of the cells about where it was."""


class SwitchWeights(NamedTuple):
    """The parameters of a gated Switch Unit."""

    gates_weight: Tensor
    """``[3 * E, E]``: the matrices of both reset gates and the update gate, W_r^1, W_r^2, W_u, one below the other."""
    gates_bias: Tensor
    """``[3 * E]``: B_r^1, B_r^2, B_u."""
    candidates_weight: Tensor
    """``[2, D, E]``: W_c^1 and W_c^2."""
    candidates_bias: Tensor
    """``[2, D]``: B_c^1 and B_c^2."""


def swap_half(s_PE: Tensor) -> Tensor:
    """Exchange the second halves of the two cells of every pair: ([a, b], [c, d]) -> ([a, d], [c, b]).

    >>> swap_half(torch.tensor([[1, 2, 3, 4]])).tolist()
    [[1, 4, 3, 2]]
    """
    a, b, c, d = s_PE.chunk(4, dim=-1)
    return torch.cat((a, d, c, b), dim=-1)


def gated_switch(s_PE: Tensor, weights: SwitchWeights, skip_PE: Tensor | None = None, *, swap: bool = True) -> Tensor:
    r"""The Switch Unit on pairs of cells: :math:`u \odot \mathrm{swapHalf}(s) + (1 - u) \odot [c^1, c^2]`.

    Gates and candidates read :math:`s` plus the skip connection; the copied value is :math:`s` alone, which keeps
    every output a convex mix of a tanh and an input.

    Args:
        s_PE: The pairs, two cells side by side.
        weights: The unit's parameters.
        skip_PE: What the skip connection adds, already scaled.
        swap: False copies the pair as it is instead of exchanging the second halves.
    """
    read_PE = s_PE if skip_PE is None else s_PE + skip_PE
    copied_PE = swap_half(s_PE) if swap else s_PE
    if _may_overwrite(s_PE):
        return _gated_switch_in_place(read_PE, copied_PE, weights)
    gates = read_gates(read_PE, weights)
    return mix(gates.update, copied_PE, gates.candidate)


class Gates(NamedTuple):
    """What a gated Switch Unit computes from the pairs it reads."""

    reset: Tensor
    """``[P, 2, E]``: r^1 and r^2."""
    update: Tensor
    """``[P, E]``: u."""
    candidate: Tensor
    """``[P, E]``: c^1 and c^2 side by side."""


def read_gates(read_PE: Tensor, weights: SwitchWeights) -> Gates:
    """The gates and the candidates of pairs, to which the skip connection has been added."""
    features_E = read_PE.shape[-1]
    gates = F.linear(read_PE, weights.gates_weight, weights.gates_bias)
    # Split first: the compiler (torch 2.11 to 2.13) takes a saved tensor and slices of it for separate buffers and
    # overwrites the one before the others are read, which in bfloat16 gave wrong gradients.
    reset_PE2, update_PE = gates.split((2 * features_E, features_E), dim=-1)
    reset_P2E, update_PE = reset_PE2.unflatten(-1, (2, features_E)).sigmoid(), update_PE.sigmoid()
    del gates, reset_PE2  # or they would stay in memory to the end, as much again as the gates
    kept_P2E = reset_P2E * read_PE.unsqueeze(-2)
    candidate_PE = _pairwise_linear(kept_P2E, weights.candidates_weight, weights.candidates_bias).tanh()
    return Gates(reset_P2E, update_PE, candidate_PE)


def mix(update: Tensor, copied: Tensor, candidate: Tensor) -> Tensor:
    """``update * copied + (1 - update) * candidate``, in the dtype of the cells also under autocast."""
    return torch.lerp(candidate.to(copied.dtype), copied, update.to(copied.dtype))


def _pairwise_linear(x_P2E: Tensor, weight_2DE: Tensor, bias_2D: Tensor) -> Tensor:
    """Cell i of every pair by its own matrix i, as one batched product."""
    rows_2PE = x_P2E.flatten(0, -3).transpose(0, 1)
    out_2PD = torch.baddbmm(bias_2D.unsqueeze(1), rows_2PE, weight_2DE.transpose(1, 2))
    return out_2PD.transpose(0, 1).reshape(*x_P2E.shape[:-2], bias_2D.numel())


def _may_overwrite(x: Tensor) -> bool:
    """Whether nobody needs the intermediate values: no gradients, no traced graph, no change of dtype on the way."""
    if torch.is_grad_enabled() or torch.compiler.is_compiling() or torch.is_autocast_enabled(x.device.type):
        return False
    return x.dtype in (torch.float32, torch.float64) and not is_transformed()


def is_transformed() -> bool:
    """Whether a transform of ``torch.func`` (vmap, jvp) or forward-mode differentiation follows every operation."""
    return torch._C._functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0


def _gated_switch_in_place(read_PE: Tensor, copied_PE: Tensor, weights: SwitchWeights) -> Tensor:
    """The same arithmetic with as few passes over memory as there can be."""
    rows_PE = read_PE.flatten(0, -2)
    features_E = rows_PE.shape[1]
    gates = torch.addmm(weights.gates_bias, rows_PE, weights.gates_weight.t()).sigmoid_()
    *resets, update_PE = gates.split(features_E, dim=1)
    candidate_PE = torch.empty_like(rows_PE)
    parts = zip(resets, candidate_PE.chunk(2, dim=1), weights.candidates_weight, weights.candidates_bias, strict=True)
    for reset_PE, candidate_PD, weight_DE, bias_D in parts:
        # tanh(x) = 2 sigmoid(2 x) - 1, and a vectorised sigmoid takes a fifth of the time of a tanh.
        torch.addmm(bias_D, reset_PE.mul_(rows_PE), weight_DE.t(), beta=2, alpha=2, out=candidate_PD)
    candidate_PE.sigmoid_()
    torch.add(candidate_PE.new_full((), -1.0), candidate_PE, alpha=2, out=candidate_PE)
    return torch.lerp(candidate_PE, copied_PE.flatten(0, -2), update_PE, out=candidate_PE).view_as(read_PE)


class ResidualWeights(NamedTuple):
    """The parameters of a residual Switch Unit."""

    hidden_weight: Tensor
    """``[2 * E, E]``: Z."""
    hidden_bias: Tensor
    """``[2 * E]``: B_Z, added by the normalisation."""
    candidate_weight: Tensor
    """``[E, 2 * E]``: W."""
    candidate_bias: Tensor
    """``[E]``: B."""
    residual: Tensor
    """``[E]``: S."""


def residual_switch(s_PE: Tensor, weights: ResidualWeights, *, norm: Norm) -> Tensor:
    r"""The residual Switch Unit on pairs of cells: :math:`\sigma(2S) \odot s + h (W\,\mathrm{GELU}(g) + B)`.

    Args:
        s_PE: The pairs, two cells side by side; those of a sequence along the dimension before the last.
        weights: The unit's parameters.
        norm: Over what the hidden features :math:`g` are normalised.
    """
    candidate_PE = residual_candidate(s_PE, weights, norm=norm).to(s_PE.dtype)
    # With 2 for 2.0, torch 2.8 and 2.11 do not export to ONNX.
    return torch.sigmoid(2.0 * weights.residual) * s_PE + CANDIDATE_SCALE * candidate_PE


def residual_candidate(s_PE: Tensor, weights: ResidualWeights, *, norm: Norm) -> Tensor:
    """What a residual unit adds to the pairs, before it is scaled."""
    hidden = F.linear(s_PE, weights.hidden_weight)
    wide = hidden.to(torch.promote_types(hidden.dtype, torch.float32))  # squares of 16-bit numbers are inexact
    normalise = normalise_over_sequence if norm == "sequence" else normalise_over_features
    active = gelu(normalise(wide, weights.hidden_bias.to(wide.dtype))).to(hidden.dtype)
    return F.linear(active, weights.candidate_weight, weights.candidate_bias)


def normalise_over_sequence(hidden: Tensor, bias: Tensor) -> Tensor:
    """The normalisation of the released code: each feature over all pairs of its sequence.

    The centred features are doubled and the bias is added before their mean square is taken. A sequence of two cells is
    a single pair, whose features are their own mean: there the result is the sign of the bias.
    """
    shifted = 2 * (hidden - hidden.mean(-2, keepdim=True)) + bias
    return shifted * torch.rsqrt(shifted.square().mean(-2, keepdim=True) + SEQUENCE_EPSILON)


def normalise_over_features(hidden: Tensor, bias: Tensor) -> Tensor:
    """Layer normalisation: the features of each pair by themselves, then the bias."""
    return F.layer_norm(hidden, bias.shape, None, bias, FEATURES_EPSILON)


def gelu(x: Tensor) -> Tensor:
    """The Gaussian error linear unit in its approximation by a sigmoid."""
    return x * torch.sigmoid(1.702 * x)
