"""Learning to read: passages of a corpus in each step, a pointer to the word that was left out."""

# B = passages, N = positions
from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from riffle.config import ModelConfig, Reading
from riffle.lambada.corpus import Corpus
from riffle.lambada.embedding import FrozenWords, LearnedWords
from riffle.lambada.placing import Examples, Placed
from riffle.lambada.pointing import point, pointer_loss
from riffle.lambada.table import Vectors, write_vectors
from riffle.lambada.vectors import load_vectors
from riffle.lambada.vocabulary import choose_words
from riffle.lambada.words import Words
from riffle.models.build import build
from riffle.models.pointer import PointerModel
from riffle.train.precision import arithmetic
from riffle.train.subject import Count

WORDS = "words.safetensors"
"""The file of a run with the words its model knows."""
EVALUATED = 4096
"""Passages of the validation split in an evaluation during training."""


class _Pointer(NamedTuple):
    """A model of one class; words take the place of its symbols."""

    symbols: int = 1
    classes: int = 1
    reach: int = 1


class Passages:
    """The subject of a run on passages.

    Args:
        experiment: The configuration.
        folder: The run's folder, where the words are kept; without one they are taken from the corpus.
        device: Where passages are drawn.
    """

    def __init__(self, experiment: Reading, folder: Path | None = None, device: Any = "cpu") -> None:
        self.experiment, self.folder, self.device = experiment, folder, torch.device(device)
        (self.positions,) = experiment.data.bins

    @cached_property
    def corpus(self) -> Corpus:
        """The prepared corpus."""
        return Corpus(Path(self.experiment.data.corpus))

    @cached_property
    def vectors(self) -> Vectors:
        """The words the model knows, most common first, and their vectors."""
        kept = self.folder / WORDS if self.folder else None
        if kept and kept.exists():
            return load_vectors(kept)
        data = self.experiment.data
        vectors = choose_words(self.corpus, data.words, pretrained=data.table == "frozen")
        if kept:
            write_vectors(kept, vectors)
        return vectors

    @cached_property
    def words(self) -> Words:
        """Their ids."""
        return Words(self.vectors.words, unknowns=self.positions)

    def build(self, config: ModelConfig, **factory: Any) -> PointerModel:
        """A fresh model."""
        reader = build(config, _Pointer(), **factory)
        embedding: FrozenWords | LearnedWords
        if self.experiment.data.table == "frozen":
            embedding = FrozenWords(self.words, self.vectors, config.features, **factory)
        else:
            embedding = LearnedWords(self.words, config.features, **factory)
        return PointerModel(embedding, reader, word_dropout=self.experiment.data.word_dropout)

    def loss(self, model: PointerModel, generator: torch.Generator) -> tuple[Tensor, Count]:
        """The loss of a fresh batch of passages."""
        placed = self.draw(generator)
        with arithmetic(self.experiment.train.precision, generator.device):
            score_BN = model(placed.ids)
        loss = pointer_loss(score_BN, placed, self.experiment.train.label_smoothing)
        score_BN = score_BN.detach().masked_fill(~placed.inside, -torch.inf)

        def count() -> tuple[Tensor, Tensor]:
            right_B1 = placed.right.gather(1, score_BN.argmax(dim=1, keepdim=True))
            return right_B1.sum(), placed.right.any(dim=1).sum()

        return loss, count

    def draw(self, generator: torch.Generator) -> Placed:
        """Random passages, some of which end inside a sentence."""
        data = self.experiment.data
        inside = round(data.within * data.batch)
        drawn = [
            self.examples(split, data.flatten).draw(count, forget=data.forget, generator=generator)
            for split, count in (("train", data.batch - inside), ("within", inside))
            if count
        ]
        return Placed(*(torch.cat(column) for column in zip(*drawn, strict=True)))

    def evaluate(self, model: PointerModel) -> dict[str, float]:
        """Share of right answers in the validation split and the evaluation sets, by position."""
        return {
            split: point(model, self.examples(split)).accuracy["position"]
            for split in self.corpus.splits
            if split not in ("train", "within") and self.corpus.about["splits"][split]
        }

    def examples(self, split: str, flatten: float = 0.0) -> Examples:
        """The examples of a split, on the device."""
        if (split, flatten) not in self._examples:
            examples = self.corpus.examples(split)
            if not len(examples):
                raise ValueError(f"{self.corpus.folder} has no passages in {split!r}: prepare it with other filters")
            if split == "validation":
                examples = examples[:: max(1, len(examples) // EVALUATED)]
            self._examples[split, flatten] = Examples(
                self._stream, examples, self.words, self._lookup, self.positions, flatten=flatten
            )
        return self._examples[split, flatten]

    @cached_property
    def _examples(self) -> dict[tuple[str, float], Examples]:
        return {}

    @cached_property
    def _stream(self) -> Tensor:
        return torch.from_numpy(self.corpus.tokens.copy()).to(self.device)

    @cached_property
    def _lookup(self) -> Tensor:
        return self.words.lookup(self.corpus.words).to(self.device)
