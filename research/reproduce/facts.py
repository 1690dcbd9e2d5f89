"""Claims of the paper that no figure of it has: what follows from the wiring, and what single result files say."""

from __future__ import annotations

import random
from pathlib import Path

import torch

from research.baselines.universal_transformer import UniversalReader
from research.bench.over_length import points
from research.quantities import format_milliseconds
from research.reproduce.figure import read_timing
from research.reproduce.figures.comparisons import products
from research.reproduce.figures.timing import NEURAL_GPU, OURS
from research.reproduce.paper import LAMBADA
from research.reproduce.results import accuracies, by_group, read_results
from research.reproduce.verdicts import Claim
from research.ship.reader import PUBLISHED
from riffle.files import read_json
from riffle.models.build import WithoutValues
from riffle.nn.network import ShuffleExchange
from riffle.quantities import format_length, format_percent
from riffle.routing import permutation_of, route
from riffle.shuffle import bits, schedule

WORDS = 60_000
"""Words of the paper's vocabulary, by its appendix."""
NEAR = 0.1
"""A number of parameters agrees with the paper's within a tenth."""
BEFORE = ("Dhingra et al., 2018", "Universal Transformer, dynamic halting")
"""Published before the paper, of those that are better."""
DEEP = (0.61,)
"""Symbols right at 128 by the one run with a block for each address bit, see research/log/."""


def claims(root: Path) -> list[Claim]:
    """All of them, by statements of their own."""
    return [*_wiring(), *_sizes(), *_timed(root), *_trained(root), *_read(root)]


def _fact(statement: str, holds: bool | None, evidence: str) -> Claim:
    return Claim(statement, holds=holds, evidence=evidence)


def _wiring() -> list[Claim]:
    ks, generator, net = range(1, 21), random.Random(0), ShuffleExchange(8)
    layers, deep = [schedule(k) for k in ks], len(schedule(8, blocks=8))
    shuffles = [sum(layer.shuffle != 0 for layer in each) for each in layers]
    counted = [len(each) for each in layers] == [count + 1 for count in shuffles] == [2 * k - 1 for k in ks]
    paths = all(sorted(layer.bit for layer in each[:k]) == list(range(k)) for k, each in zip(ks, layers, strict=True))
    drawn = [generator.sample(range(1024), 1024) for _ in range(10)]
    costs = {net.flops(2**k) / (2**k * (2 * k - 1)) for k in ks}
    lengths = f"at all of 2 to {format_length(2 ** ks[-1])} cells"
    return [
        _fact("2k - 1 switch layers and 2k - 2 shuffles", counted, f"{lengths}; 19 and 18 for 1K"),
        _fact("a path to every cell in k layers", paths, f"every address bit once, {lengths}"),
        _fact("any permutation", all(permutation_of(route(each)) == each for each in drawn), "10 random ones of 1,024"),
        _fact("n log n operations", len(costs) == 1, f"n (2 log n - 1) times the same number {lengths}"),
        _fact("113 layers at length 256", deep == 113, f"{deep} in 8 blocks, one for each address bit"),
    ]


def _sizes() -> list[Claim]:
    """Parameters, counted in networks without values."""
    with torch.device("meta"), WithoutValues():
        nets = ShuffleExchange(384, 2), UniversalReader(WORDS + 1, 1024, heads=16), ShuffleExchange(192, 2)
        network, theirs, block, minimal = (
            sum(parameter.numel() for parameter in net.parameters()) / 1e6
            for net in (*nets, ShuffleExchange(192, 2, sharing="minimal"))
        )
        layers = len(ShuffleExchange(8, sharing="none", length=64).units)
    small, large = (WORDS * maps / 1e6 for maps in (192, 384))
    ours = network + large
    near = max(abs(ours / 33 - 1), abs(theirs / 152 - 1)) <= NEAR
    both = f"{ours:.1f}M and {theirs:.1f}M"
    return [
        _fact("33M and 152M parameters", near, both),
        _fact("five times smaller", round(theirs / ours) == 5, f"{theirs / ours:.1f} times: {both}"),
        _fact("embeddings of 11.5M and 23M", (round(small, 1), round(large)) == (11.5, 23), f"{small}M and {large}M"),
        _fact("minimal sharing has more", minimal > block, f"{minimal:.1f}M beside {block:.1f}M"),
        _fact("no sharing, one length", layers == 11, f"{layers} units at length 64, and none for another length"),
    ]


def _timed(root: Path) -> list[Claim]:
    """The longest sequences of the paper's figure of addition."""
    path = root / "timing-addition" / "results.json"
    results = read_timing(path) if path.exists() else {"series": []}
    ours, theirs = (points(results, model, "evaluation") for model in (OURS, NEURAL_GPU))
    if 2**21 not in ours or not theirs:
        return []
    peaks, last = points(results, NEURAL_GPU, "evaluation", "peak_bytes"), max(theirs)
    ended = (
        f"{peaks[last] / 1e9:.1f} GB at {format_length(last)}, where time ends it: {format_milliseconds(theirs[last])}"
    )
    quick = f"{format_milliseconds(ours[2**21])} on an H200"
    return [
        _fact("two million symbols in five seconds", ours[2**21] <= 5000, quick),
        _fact("the Neural GPU to 16K in 11 GB", last <= 2**14 or peaks[last] > 11e9, ended),
    ]


def _trained(root: Path) -> list[Claim]:
    """Trained networks beside one another where the paper gives no figure."""
    groups = by_group(read_results(root, ["generalization", "rivals"]))

    def symbols(group: str, length: int) -> tuple[float, ...]:
        return accuracies(groups.get(group, []), length)

    def sorted_symbols(alphabet: int) -> tuple[float, ...]:
        runs = [read_json(path)["scores"] for path in sorted((root / "alphabet").glob(f"sort-{alphabet}-small-*.json"))]
        return tuple(score["symbol_accuracy"] for scores in runs for score in scores if score["length"] == 32)

    at_64, at_128 = (symbols("multiply, shuffle-exchange, paper", length) for length in (64, 128))
    small, few, some, many = products(read_results(root, ["products"]), 64), *map(sorted_symbols, (11, 64, 256))
    claims = [
        Claim("products at 128 beside 64, trained to 64", at_128, at_64, "lower"),
        Claim("products at 64: 192 maps, 20,000 steps beside 384, 40,000", small, at_64, "lower"),
        Claim("products at 128: O(log² n) layers beside 25", DEEP, at_128, "equal"),
        Claim("add at 64 with 96 maps", symbols("add, preprint network", 64), 1.0),
        Claim("add at 64 with 96 maps, Neural GPU", symbols("add, dngpu, 96 maps", 64), 1.0),
        Claim("sort at 32: 64 symbols beside 11", some, few, "lower"),
        Claim("sort at 32: 256 symbols beside 64", many, some, "lower"),
    ]
    if probed := read_json(root / "addresses.json"):
        runs, k = probed["runs"], bits(probed["cells"])
        said = min(run["said"] for run in runs)
        read, untrained = (format_percent(min(run[name][k] for run in runs)) for name in ("by_layer", "untrained"))
        evidence = f"said right at {format_percent(said)} of the cells, worst of {len(runs)} seeds; after {k} layers a "
        evidence += f"linear probe reads {read} of the address bits, {untrained} of an untrained network's"
        claims.append(_fact("cells learn their distance from a marked one", said > 0.99, evidence))
    return claims


def _read(root: Path) -> list[Claim]:
    """LAMBADA: test and development set, published figures, and models that were trained alike."""
    test, rivals = (read_json(root / "lambada" / f"{name}.json") for name in ("test-set", "rivals"))
    if test is None or rivals is None:
        return []
    gated, attention, universal = (
        (rivals["runs"][name]["development"]["1 placement"]["position"],)
        for name in ("shuffle-exchange, gated", "gated-attention-reader", "universal-transformer")
    )
    above = [f"{name} {format_percent(PUBLISHED[name])}" for name in BEFORE if PUBLISHED[name] > LAMBADA]
    answered, fits = test["answer in passage"] / test["passages"], test["development"]["within 128 tokens"]
    return [
        Claim("test set, weights of the package", (test["accuracy"]["1 placement"]["position"],), LAMBADA, "reached"),
        _fact("only one published model is better", len(above) == 1, f"above 52.28%: {'; '.join(above)}"),
        Claim("trained alike: beside the Gated-Attention Reader", gated, attention, "higher"),
        Claim("trained alike: beside the Universal Transformer", gated, universal, "lower"),
        _fact("81% have their answer", abs(answered - 0.81) <= 0.01, f"{format_percent(answered)} of the test set"),
        _fact("almost all fit into 128", fits > 0.99, f"{format_percent(fits)} of the development set"),
    ]
