"""The authors' released network restated in NumPy: cells move by gathers, weights go by their TensorFlow names.

Nothing of riffle is used here, so that the two can be held against each other where no golden file exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

Variables = Mapping[str, np.ndarray]


class Step(NamedTuple):
    """One switch layer and the shuffle after it."""

    layer: str
    swap: bool
    shuffle: str | None
    skip: int | None


def rol(address: int, k: int) -> int:
    return ((address << 1) | (address >> (k - 1))) & (2**k - 1)


def ror(address: int, k: int) -> int:
    return (address >> 1) | ((address & 1) << (k - 1))


def steps(k: int, blocks: int, sharing: str) -> list[Step]:
    """The layers in order: k-1 with rol, k-1 with ror, block after block, then a last one without a shuffle."""
    result: list[Step] = []
    for block in range(blocks):
        for i in range(2 * (k - 1)):
            skip = None if block == 0 else len(result) - 2 * (k - 1)
            forward, level = i < k - 1, i % (k - 1)
            shuffle = "rol" if forward else "ror"
            match sharing:
                case "block":
                    layer = f"{block}_forward" if forward else f"{block}_reverse"
                case "full":
                    layer = "forward" if forward else "reverse"
                case "none":
                    layer = f"{block}_forward_{level}" if forward else f"{block}_reverse_{k - 2 - level}"
                case "minimal" if level == 0:
                    layer = f"{block}_first_layer" if forward else f"{block}_middle_layer"
                case "minimal":
                    layer = f"{block}_forward" if forward else f"{block}_backward"
            result.append(Step(layer, sharing != "minimal" or level > 0, shuffle, skip))
    skip = None if blocks == 1 or k == 1 else len(result) - 2 * (k - 1)
    result.append(Step("last_layer" if sharing == "minimal" else "last", sharing != "minimal", None, skip))
    return result


def network(variables: Variables, x: np.ndarray, blocks: int, sharing: str) -> tuple[np.ndarray, np.ndarray]:
    """The output, and the memory as the released code stacks it (after the shuffles for minimal sharing)."""
    n = x.shape[1]
    k = n.bit_length() - 1
    rotate = {"rol": rol, "ror": ror}
    inputs: list[np.ndarray] = []
    memory: list[np.ndarray] = []
    for step in steps(k, blocks, sharing):
        inputs.append(x)
        prev = None if step.skip is None else inputs[step.skip]
        x = switched = switch(variables, f"{scope(sharing)}/{step.layer}", x, prev, swap=step.swap)
        if step.shuffle is not None:
            x = x[:, [rotate[step.shuffle](i, k) for i in range(n)]]
        memory.append(x if sharing == "minimal" else switched)
    return x, np.stack(memory)


def switch(variables: Variables, prefix: str, x: np.ndarray, prev: np.ndarray | None, *, swap: bool) -> np.ndarray:
    """One switch layer on adjacent cells; it swaps the first halves, as the released code does."""
    batch, n, m = x.shape
    mem_all = x if prev is None else x + prev * variables[f"{prefix}/residual_scale"]
    s = mem_all.reshape(batch, n // 2, 2 * m)

    def linear(name: str, inputs: np.ndarray, constant: float) -> np.ndarray:
        return inputs @ variables[f"{prefix}/{name}/CvK"] + variables[f"{prefix}/{name}/CvB"] + constant

    candidates = [np.tanh(linear(f"cand{i}/c", sigmoid(linear(f"reset{i}/c", s, 0.5)) * s, 0.0)) for i in (1, 2)]
    candidate = np.concatenate(candidates, axis=2).reshape(batch, n, m)
    gate = sigmoid(linear("g", s, 0.5)).reshape(batch, n, m)
    copied = x.copy()
    if swap:
        partner = [i ^ 1 for i in range(n)]
        copied[..., : m // 2] = x[:, partner, : m // 2]
    return gate * copied + (1 - gate) * candidate


def random_variables(k: int, blocks: int, sharing: str, m: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Variables of a network, large enough that outputs depend strongly on inputs, none at a default."""
    variables: dict[str, np.ndarray] = {}
    for step in steps(k, blocks, sharing):
        prefix = f"{scope(sharing)}/{step.layer}"
        for name, outputs in (("reset1/c", 2), ("reset2/c", 2), ("cand1/c", 1), ("cand2/c", 1), ("g", 2)):
            if f"{prefix}/{name}/CvK" not in variables:
                variables[f"{prefix}/{name}/CvK"] = rng.normal(0, 3 / np.sqrt(2 * m), (2 * m, outputs * m))
                variables[f"{prefix}/{name}/CvB"] = rng.normal(0, 0.4, outputs * m)
        if step.skip is not None and f"{prefix}/residual_scale" not in variables:
            variables[f"{prefix}/residual_scale"] = rng.uniform(-0.3, 1.3, m)
    return variables


def scope(sharing: str) -> str:
    return "steps/shuffle_exchange" if sharing == "minimal" else "steps_shuffle_exchange"


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))
