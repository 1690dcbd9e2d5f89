"""Learning to read: passages of a corpus in each step, a pointer to the word that was left out."""

# B = passages, N = positions
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from riffle.config import ModelConfig, Reading
from riffle.lambada.corpus import Corpus
from riffle.lambada.embedding import FrozenWords, LearnedWords
from riffle.lambada.placing import Examples, Placed
from riffle.lambada.pointing import Pointed, point, pointer_loss, spread
from riffle.lambada.table import Vectors, write_vectors
from riffle.lambada.vectors import load_vectors
from riffle.lambada.vocabulary import choose_words
from riffle.lambada.words import Words
from riffle.models.build import build_reader
from riffle.models.pointer import PointerModel, ReadingModel
from riffle.train.distributed import ALONE, World
from riffle.train.precision import arithmetic
from riffle.train.subject import Count

WORDS = "words.safetensors"
"""The file of a run with the words its model knows."""
EVALUATED = 4096
"""Passages of the validation split in an evaluation during training."""


class Answers(NamedTuple):
    """What a reader has to know: words take the place of its symbols, and a position's score is its one class."""

    symbols: int = 1
    classes: int = 1
    reach: int = 1


class Passages:
    """The subject of a run on passages.

    Args:
        experiment: The configuration.
        folder: The run's folder, where the words are kept; without one they are taken from the corpus.
        device: Where passages are drawn.
        world: The processes that train together.
    """

    def __init__(
        self, experiment: Reading, folder: Path | None = None, device: Any = "cpu", world: World = ALONE
    ) -> None:
        self.experiment, self.folder, self.device, self.world = experiment, folder, torch.device(device), world
        bins = experiment.data.bins
        if len(bins) != 1:
            raise ValueError(f"data.bins must be one number of positions where passages are read, got {list(bins)}")
        self.positions = bins[0]

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

    def build(self, config: ModelConfig, **factory: Any) -> ReadingModel:
        """A fresh model."""
        reader = build_reader(config, Answers(), **factory)
        return PointerModel(self.cells(config, **factory), reader, word_dropout=self.experiment.data.word_dropout)

    def cells(self, config: ModelConfig, **factory: Any) -> FrozenWords | LearnedWords:
        """From words to the cells of a fresh model."""
        if self.experiment.data.table == "frozen":
            return FrozenWords(self.words, self.vectors, config.features, **factory)
        return LearnedWords(self.words, config.features, **factory)

    def loss(self, model: ReadingModel, generator: torch.Generator) -> tuple[Tensor, Count]:
        """The loss of a fresh batch of passages."""
        placed, weights_B = self.draw(generator)
        with arithmetic(self.experiment.train.precision, generator.device):
            score_BN = model(placed.ids)
        smoothing, label = self.experiment.train.label_smoothing, self.experiment.data.label
        # A passage without weight has no answer to point at, and its loss may be any number.
        loss_B = pointer_loss(score_BN, placed, smoothing, label)
        loss = torch.where(weights_B > 0, loss_B * weights_B, 0).sum()
        score_BN = score_BN.detach().masked_fill(~placed.inside, -torch.inf)

        def count() -> tuple[Tensor, Tensor]:
            right_B1 = placed.right.gather(1, score_BN.argmax(dim=1, keepdim=True))
            return right_B1.sum(), (weights_B > 0).sum()

        return loss, count

    def draw(self, generator: torch.Generator) -> tuple[Placed, Tensor]:
        """Random passages, some of which end inside a sentence, and their weights in the step's loss, ``[B]``.

        Passages that teach something count alike. Every rank draws the passages of all and keeps its own.
        """
        data, ranks = self.experiment.data, self.world.size
        rows = data.batch * ranks
        inside = round(data.within * rows)
        drawn = [
            self.examples(split, data.flatten).draw(count, forget=data.forget, generator=generator)
            for split, count in (("train", rows - inside), ("within", inside))
            if count
        ]
        placed = Placed(*(torch.cat(column) for column in zip(*drawn, strict=True)))
        taught_B = self.teaches(placed).float()
        *own, weights_B = self.world.rows(*placed, taught_B * ranks / taught_B.sum().clamp(min=1))
        return Placed(*own), weights_B

    def teaches(self, placed: Placed) -> Tensor:
        """Which passages have an answer that can be pointed at; a few have it too far back to be read."""
        return placed.right.any(dim=1)

    def evaluate(self, model: ReadingModel) -> dict[str, float]:
        """Share of right answers in the validation split and the evaluation sets, by position."""
        with arithmetic(self.experiment.train.precision, self.device):
            splits = {split: self.examples(split) for split in self.corpus.held_out}
            return {split: self.point(model, examples).accuracy["position"] for split, examples in splits.items()}

    def point(
        self,
        model: ReadingModel,
        examples: Examples,
        *,
        placements: int = 1,
        on_progress: Callable[[int], None] = lambda examples: None,
    ) -> Pointed:
        """What a model answers to examples, see :func:`riffle.lambada.pointing.point`."""
        return point(model, examples, placements=placements, on_progress=on_progress)

    @torch.inference_mode()
    def likely(self, model: ReadingModel, tokens: Sequence[str], placements: int = 1) -> dict[str, float]:
        """How likely a model finds the words of a passage to follow it."""
        examples = self.examples_of([[*tokens, ""]])
        found = spread(model, examples, torch.zeros(1, dtype=torch.int64, device=self.device), placements)
        return dict(zip(reversed(tokens), found.by_word[0].tolist(), strict=False))  # those read, the last first

    def examples_of(self, passages: Sequence[Sequence[str]]) -> Examples:
        """Passages given as words, the answer last, on the device."""
        return Examples.of(passages, self.words, self.positions, self.device)

    def examples(self, split: str, flatten: float = 0.0) -> Examples:
        """The examples of a split, on the device."""
        if (split, flatten) not in self._examples:
            examples = self.corpus.examples(split)
            if split not in self.corpus.held_out:
                examples = examples[: math.ceil(self.experiment.data.share * len(examples))]
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
