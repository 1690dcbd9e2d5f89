"""Draw training passages as LAMBADA's are: classes of passages, and sampling weights that give the classes' shares.

A passage belongs to one class of each feature: the rank of its answer, how far back its last mention is, and so on. The
weight of a passage is a product with one factor for each of its classes. The factors are fitted by raking (iterative
proportional fitting) until the weighted shares of all classes are those of the development set. Nothing of that set is
used but how many of its passages each class has.

Likeness to LAMBADA's text is a feature of its own: the mean over a passage's words of the logarithm of how much more
often a word occurs in the ready-made passages, which are cut from LAMBADA's own novels, than in the others.
"""

# E = examples, W = words before the answer, C = classes of a feature, V = words of the corpus
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from riffle.files import read_json, write_json
from riffle.lambada.corpus import AGAIN, POSITIONS, Corpus

LIMITS: dict[str, tuple[int, ...]] = {
    "rank": (100, 300, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000),
    "distance": (6, 11, 16, 21, 26, 31, 41, 51, 61, 81, 101),
    "mentions": (2, 3, 4, 5),
    "length": (55, 60, 65, 70, 75, 80, 90, 100, 115),
    "target": (3, 5, 7, 10, 13, 17, 22, 30),
    "quotation marks": (1, 3, 5, 7, 9),
    "speech": (1, 2),
    "before": (*range(1, 41), 100, 1_000),
    "before mention": (*range(1, 41), 100, 1_000),
}
"""Features of a passage and the limits of their classes: a class holds what is below its limit and not below the last.

The rank of the answer among the words of the corpus; words from its last mention to the answer; mentions; words before
the answer; of these, words of the target sentence; quotation marks; whether the last of them is none (0), closing (1)
or opening (2), so that the answer is spoken; ranks of the words before the answer and before its last mention.
"""
LIKENESS = "likeness"
LIKENESS_CLASSES = 10
"""Classes of likeness, each with the same number of development passages."""
SPLIT = "development"
TRAINED = ("train", "within")
"""The splits that are drawn from, each with factors of its own."""
FITTED_PASSAGES = 1 << 17
"""Passages of a split, evenly spread, that factors are fitted on."""
SWEEPS = 50
PSEUDO_COUNT = 5.0
"""Added to the counts of a word before their ratio is taken, so that a rare word is like and unlike nothing."""
LIKENESS_FILE = "likeness.npy"
MATCH_FILE = "match.json"
_EXAMPLES_AT_ONCE = 1 << 15


class Factors(TypedDict):
    """The content of match.json."""

    likeness_limits: list[float]
    splits: dict[str, dict[str, list[float]]]
    """For each split that is trained on the factors of every feature's classes."""


def word_likeness(given_V: NDArray[np.int64], counts_V: NDArray[np.int64]) -> NDArray[np.float32]:
    """The logarithm of how much more often words occur in given passages than in all text, float32 ``[V]``."""
    expected_V = (counts_V - given_V) * (given_V.sum() / max((counts_V - given_V).sum(), 1))
    return np.log((given_V + PSEUDO_COUNT) / (expected_V + PSEUDO_COUNT)).astype(np.float32)


def passage_values(
    corpus: Corpus, examples: NDArray[np.void], stream_T: Tensor, likeness_V: Tensor | None
) -> dict[str, Tensor]:
    """The value of every feature for every example, ``[E]``, on the stream's device; distance 0: no mention."""
    device = stream_T.device
    opening, closing = (corpus.rank(mark) for mark in ("``", "''"))
    parts: dict[str, list[Tensor]] = {}
    for begin in range(0, len(examples), _EXAMPLES_AT_ONCE):
        some = examples[begin : begin + _EXAMPLES_AT_ONCE]
        start_E, length_E, target_E = (
            torch.from_numpy(some[name].astype(np.int64)).to(device) for name in ("start", "length", "target")
        )
        answer_at_E, context_E = start_E + length_E - 1, (length_E - 1).clamp(max=POSITIONS - 1)
        back_W = torch.arange(1, POSITIONS, device=device)
        inside_EW = back_W <= context_E[:, None]
        tokens_EW = torch.where(inside_EW, stream_T[(answer_at_E[:, None] - back_W).clamp(min=0)], -1)
        answers_E = stream_T[answer_at_E]
        same_EW = tokens_EW == answers_E[:, None]
        distance_E = torch.where(same_EW.any(dim=1), same_EW.int().argmax(dim=1) + 1, 0)
        mark_EW = (tokens_EW == opening) | (tokens_EW == closing)
        last_mark_E = tokens_EW.gather(1, mark_EW.int().argmax(dim=1, keepdim=True))[:, 0]
        spoken_E = torch.where(last_mark_E == opening, 2, 1)
        at_E = distance_E.clamp(max=POSITIONS - 2)
        values = {
            "rank": answers_E,
            "distance": distance_E,
            "mentions": same_EW.sum(dim=1),
            "length": context_E,
            "target": length_E - 1 - target_E,
            "quotation marks": mark_EW.sum(dim=1),
            "speech": torch.where(mark_EW.any(dim=1), spoken_E, 0),
            "before": tokens_EW[:, 0],
            "before mention": tokens_EW.gather(1, at_E[:, None])[:, 0],
        }
        if likeness_V is not None:
            of_word_EW = torch.where(inside_EW, likeness_V[tokens_EW.clamp(min=0)], 0)
            values[LIKENESS] = of_word_EW.sum(dim=1) / context_E
        for name, value_E in values.items():
            parts.setdefault(name, []).append(value_E)
    return {name: torch.cat(part) for name, part in parts.items()}


def classify(value_E: Tensor, limits: tuple[float, ...]) -> Tensor:
    """The class of every value, ``[E]``.

    >>> classify(torch.tensor([0, 4, 5, 9]), (1, 5)).tolist()
    [0, 1, 2, 2]
    """
    return torch.bucketize(value_E, torch.tensor(limits, device=value_E.device, dtype=value_E.dtype), right=True)


def rake(classes: Mapping[str, Tensor], shares: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Factors ``[C]`` for the classes of every feature, with which examples have the given shares of them.

    A class without examples keeps a factor near 1; what it should have falls to the others.
    """
    factors = {name: torch.ones_like(share_C) for name, share_C in shares.items()}
    weights_E = torch.ones(len(next(iter(classes.values()))), dtype=torch.float64)
    for _ in range(SWEEPS):
        for name, share_C in shares.items():
            class_E = classes[name]
            now_C = torch.zeros_like(share_C).index_add_(0, class_E, weights_E) / weights_E.sum()
            change_C = torch.where(now_C > 0, share_C / now_C.clamp(min=1e-12), 1)
            factors[name] *= change_C
            weights_E *= change_C[class_E]
    return factors


def class_shares(class_E: Tensor, classes: int, weights_E: Tensor | None = None) -> Tensor:
    """The share of every class, float64 ``[C]``."""
    weights_E = torch.ones(len(class_E), dtype=torch.float64) if weights_E is None else weights_E
    return torch.zeros(classes, dtype=torch.float64).index_add_(0, class_E, weights_E) / weights_E.sum()


def fit_match(corpus: Corpus) -> dict[str, Any]:
    """Fit the factors of a corpus that has a development set, write match.json, and return the shares for a report.

    Shares are those before, with ``data.match`` 0.5 and with 1. The effective share of a split is that of as many
    equally weighted passages as have the same variance: the square of the sum of weights over the sum of squares.
    """
    stream_T = torch.from_numpy(corpus.tokens)
    likeness_V = None if corpus.likeness is None else torch.from_numpy(corpus.likeness)
    wanted = passage_values(corpus, corpus.examples(SPLIT), stream_T, likeness_V)
    answerable_E = wanted["distance"] > 0
    wanted, passages = {name: value_E[answerable_E] for name, value_E in wanted.items()}, int(answerable_E.sum())
    limits: dict[str, tuple[float, ...]] = dict(LIMITS)
    if likeness_V is not None:
        quantiles = torch.arange(1, LIKENESS_CLASSES) / LIKENESS_CLASSES
        limits[LIKENESS] = tuple(wanted[LIKENESS].quantile(quantiles).tolist())
    shares = {name: class_shares(classify(wanted[name], of), len(of) + 1) for name, of in limits.items()}
    splits: dict[str, dict[str, list[float]]] = {}
    report: dict[str, Any] = {"limits": limits, SPLIT: {name: share_C.tolist() for name, share_C in shares.items()}}
    for split in TRAINED:
        examples = corpus.examples(split)
        if not len(examples):
            continue
        examples = examples[:: -(-len(examples) // FITTED_PASSAGES)]
        values = passage_values(corpus, examples, stream_T, likeness_V)
        classes = {name: classify(values[name], of) for name, of in limits.items()}
        before = {name: class_shares(classes[name], len(of) + 1) for name, of in limits.items()}
        # As if the development set had one more passage, an average one of the split: no class gets a factor of 0.
        wanted_shares = {name: (share_C * passages + before[name]) / (passages + 1) for name, share_C in shares.items()}
        factors = rake(classes, {name: wanted_shares[name] for name in LIMITS})
        if LIKENESS in limits:  # apart from the others: it has a field of its own in the configuration
            factors |= rake(classes, {LIKENESS: wanted_shares[LIKENESS]})
        splits[split] = {name: factor_C.tolist() for name, factor_C in factors.items()}
        report[split] = {"before": {name: share_C.tolist() for name, share_C in before.items()}, "effective share": {}}
        for name, power in (("half", 0.5), ("full", 1.0)):
            weights_E = _product({feature: factors[feature] ** power for feature in LIMITS}, classes)
            report[split][name] = {
                feature: class_shares(classes[feature], len(of) + 1, weights_E).tolist()
                for feature, of in limits.items()
            }
            effective = weights_E.sum() ** 2 / (weights_E**2).sum() / len(weights_E)
            report[split]["effective share"][name] = float(effective)
    write_json(corpus.folder / MATCH_FILE, Factors(likeness_limits=list(limits.get(LIKENESS, ())), splits=splits))
    return report


def match_weights(
    corpus: Corpus, split: str, examples: NDArray[np.void], stream_T: Tensor, match: float, likeness: float
) -> Tensor:
    """The weights of examples of a split, float64 ``[E]``: factors to the power ``match``, likeness to its own."""
    path = corpus.folder / MATCH_FILE
    about = read_json(path, Factors, what="record of a match", remedy=AGAIN)
    if about is None or split not in about["splits"]:
        raise ValueError(f"{path} has no factors for {split!r}: prepare the corpus with LAMBADA's development set")
    factors = about["splits"][split]
    if likeness and LIKENESS not in factors:
        raise ValueError(f"{path} has no factors of likeness: prepare the corpus with --passages of LAMBADA's novels")
    limits: dict[str, tuple[float, ...]] = LIMITS | {LIKENESS: tuple(about["likeness_limits"])}
    powers = {name: likeness if name == LIKENESS else match for name in factors}
    likeness_V = (
        torch.from_numpy(corpus.likeness).to(stream_T.device) if likeness and corpus.likeness is not None else None
    )
    values = passage_values(corpus, examples, stream_T, likeness_V)
    used = [name for name in factors if powers[name]]
    classes = {name: classify(values[name], limits[name]) for name in used}
    tables = {
        name: torch.tensor(factors[name], dtype=torch.float64, device=stream_T.device) ** powers[name] for name in used
    }
    return _product(tables, classes)


def _product(factors: Mapping[str, Tensor], classes: Mapping[str, Tensor]) -> Tensor:
    """The product of the factors of every example's classes, ``[E]``."""
    parts = [factor_C[classes[name]] for name, factor_C in factors.items()]
    return torch.stack(parts).prod(dim=0)
