"""Learning to read: passages of a corpus in each step, a pointer to the word that was left out.

Learning to read where a model names the missing word out of all it knows, in place of pointing at one.
"""

# B = passages, N = positions
# B = passages, N = positions, V = known words, W = words of the examples' stream
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from riffle.config import LambadaRunConfig, ModelConfig
from riffle.lambada.corpus import Corpus
from riffle.lambada.pointing import (
    PassageBatch,
    PassageDataset,
    Predictions,
    context_probabilities,
    pointer_loss,
    predict,
)
from riffle.lambada.vectors import WordVectors, load_vectors, write_vectors
from riffle.lambada.vocabulary import FrozenWords, LearnedWords, Vocabulary, choose_vocabulary
from riffle.models.build import build_reader
from riffle.models.pointer import PointerModel, WordModel
from riffle.train.distributed import SINGLE_PROCESS, World
from riffle.train.objective import Count, autocast

WORDS = "words.safetensors"
"""The file of a run with the words its model knows."""
EVALUATED = 4096
"""Passages of the validation split in an evaluation during training."""


class PassageAlphabet(NamedTuple):
    """What a reader has to know: words take the place of its symbols, and a position's score is its one class."""

    symbols: int = 1
    classes: int = 1
    reach: int = 1


class PointerObjective:
    """The subject of a run on passages.

    Args:
        experiment: The configuration.
        folder: The run's folder, where the words are kept; without one they are taken from the corpus.
        device: Where passages are drawn.
        world: The processes that train together.
    """

    def __init__(
        self, config: LambadaRunConfig, folder: Path | None = None, device: Any = "cpu", world: World = SINGLE_PROCESS
    ) -> None:
        self.config, self.folder, self.device, self.world = config, folder, torch.device(device), world
        bins = config.data.bins
        if len(bins) != 1:
            raise ValueError(f"data.bins must be one number of positions where passages are read, got {list(bins)}")
        self.positions = bins[0]

    @cached_property
    def corpus(self) -> Corpus:
        """The prepared corpus."""
        return Corpus(Path(self.config.data.corpus))

    @cached_property
    def vectors(self) -> WordVectors:
        """The words the model knows, most common first, and their vectors."""
        kept = self.folder / WORDS if self.folder else None
        if kept and kept.exists():
            return load_vectors(kept)
        data = self.config.data
        vectors = choose_vocabulary(self.corpus, data.words, pretrained=data.table == "frozen")
        if kept:
            write_vectors(kept, vectors)
        return vectors

    @cached_property
    def words(self) -> Vocabulary:
        """Their ids."""
        return Vocabulary(self.vectors.words, oov_ids=self.positions)

    def build(self, config: ModelConfig, **factory: Any) -> WordModel:
        """A fresh model."""
        reader = build_reader(config, PassageAlphabet(), **factory)
        return PointerModel(self.cells(config, **factory), reader, word_dropout=self.config.data.word_dropout)

    def cells(self, config: ModelConfig, **factory: Any) -> FrozenWords | LearnedWords:
        """From words to the cells of a fresh model."""
        if self.config.data.table == "frozen":
            return FrozenWords(self.words, self.vectors, config.features, **factory)
        return LearnedWords(self.words, config.features, **factory)

    def loss(self, model: WordModel, generator: torch.Generator) -> tuple[Tensor, Count]:
        """The loss of a fresh batch of passages."""
        batch, weights_B = self.draw(generator)
        with autocast(self.config.train.precision, generator.device):
            score_BN = model(batch.ids)
        smoothing, label = self.config.train.label_smoothing, self.config.data.label
        # A passage without weight has no answer to point at, and its loss may be any number.
        loss_B = pointer_loss(score_BN, batch, smoothing, label)
        loss = torch.where(weights_B > 0, loss_B * weights_B, 0).sum()
        score_BN = score_BN.detach().masked_fill(~batch.pointable, -torch.inf)

        def count() -> tuple[Tensor, Tensor]:
            right_B1 = batch.is_answer.gather(1, score_BN.argmax(dim=1, keepdim=True))
            return right_B1.sum(), (weights_B > 0).sum()

        return loss, count

    def draw(self, generator: torch.Generator) -> tuple[PassageBatch, Tensor]:
        """Random passages, some of which end inside a sentence, and their weights in the step's loss, ``[B]``.

        Passages that teach something count alike. Every rank draws the passages of all and keeps its own.
        """
        data, ranks = self.config.data, self.world.size
        rows = data.batch * ranks
        inside = round(data.within * rows)
        drawn = [
            self.examples(split, data.flatten).sample(count, forget=data.forget, generator=generator)
            for split, count in (("train", rows - inside), ("within", inside))
            if count
        ]
        batch = PassageBatch(*(torch.cat(column) for column in zip(*drawn, strict=True)))
        taught_B = self.teaches(batch).float()
        *own, weights_B = self.world.shard_rows(*batch, taught_B * ranks / taught_B.sum().clamp(min=1))
        return PassageBatch(*own), weights_B

    def teaches(self, batch: PassageBatch) -> Tensor:
        """Which passages have an answer that can be pointed at; a few have it too far back to be read."""
        return batch.is_answer.any(dim=1)

    def evaluate(self, model: WordModel) -> dict[str, float]:
        """Share of right answers in the validation split and the evaluation sets, by position."""
        with autocast(self.config.train.precision, self.device):
            splits = {split: self.examples(split) for split in self.corpus.held_out}
            return {split: self.point(model, examples).accuracy["position"] for split, examples in splits.items()}

    def point(
        self,
        model: WordModel,
        examples: PassageDataset,
        *,
        placements: int = 1,
        on_progress: Callable[[int], None] = lambda examples: None,
    ) -> Predictions:
        """What a model answers to examples, see :func:`riffle.lambada.pointing.predict`."""
        return predict(model, examples, placements=placements, on_progress=on_progress)

    @torch.inference_mode()
    def likely(self, model: WordModel, tokens: Sequence[str], placements: int = 1) -> dict[str, float]:
        """How likely a model finds the words of a passage to follow it."""
        examples = self.examples_of([[*tokens, ""]])
        found = context_probabilities(
            model, examples, torch.zeros(1, dtype=torch.int64, device=self.device), placements
        )
        return dict(zip(reversed(tokens), found.by_word[0].tolist(), strict=False))  # those read, the last first

    def examples_of(self, passages: Sequence[Sequence[str]]) -> PassageDataset:
        """Passages given as words, the answer last, on the device."""
        return PassageDataset.from_tokens(passages, self.words, self.positions, self.device)

    def examples(self, split: str, flatten: float = 0.0) -> PassageDataset:
        """The examples of a split, on the device."""
        if (split, flatten) not in self._examples:
            examples = self.corpus.examples(split)
            if split not in self.corpus.held_out:
                examples = examples[: math.ceil(self.config.data.share * len(examples))]
            if not len(examples):
                raise ValueError(f"{self.corpus.folder} has no passages in {split!r}: prepare it with other filters")
            if split == "validation":
                examples = examples[:: max(1, len(examples) // EVALUATED)]
            self._examples[split, flatten] = PassageDataset(
                self._stream, examples, self.words, self._lookup, self.positions, flatten=flatten
            )
        return self._examples[split, flatten]

    @cached_property
    def _examples(self) -> dict[tuple[str, float], PassageDataset]:
        return {}

    @cached_property
    def _stream(self) -> Tensor:
        return torch.from_numpy(self.corpus.tokens.copy()).to(self.device)

    @cached_property
    def _lookup(self) -> Tensor:
        return self.words.lookup(self.corpus.words).to(self.device)


WORD_CLASSIFIERS = frozenset({"universal-reader"})
"""The kinds of model that do."""
_UNKNOWN = -100
"""The class of an answer that is none of the known words; nothing is learned from it."""


class WordObjective(PointerObjective):
    """The subject of a run whose model scores all known words; see :class:`~riffle.lambada.train.PointerObjective`."""

    def build(self, config: ModelConfig, **factory: Any) -> WordModel:
        """A fresh model."""
        reader = build_reader(config, PassageAlphabet(classes=len(self.words.known)), **factory)
        return WordModel(self.cells(config, **factory), reader, word_dropout=self.config.data.word_dropout)

    def loss(self, model: WordModel, generator: torch.Generator) -> tuple[Tensor, Count]:
        """Cross entropy over the known words, meaned over the passages whose answer is one."""
        batch, weights_B = self.draw(generator)
        with autocast(self.config.train.precision, generator.device):
            score_BV = model(batch.ids)
        class_B = self._classes(self._lookup)[batch.answers.long()]
        smoothing = self.config.train.label_smoothing
        loss_B = F.cross_entropy(score_BV.float(), class_B, label_smoothing=smoothing, reduction="none")
        right_B = score_BV.detach().argmax(dim=1) == class_B
        return (loss_B * weights_B).sum(), lambda: (right_B.sum(), (weights_B > 0).sum())

    def teaches(self, batch: PassageBatch) -> Tensor:
        """Which passages have an answer that can be named."""
        return self._lookup[batch.answers.long()] >= 0

    def point(
        self,
        model: nn.Module,
        examples: PassageDataset,
        *,
        placements: int = 1,
        on_progress: Callable[[int], None] = lambda examples: None,
    ) -> Predictions:
        """What a model answers to examples; both ways to choose are the same here."""
        class_W = self._classes(examples.lookup_V)
        # Which word of the stream a class is; most are none.
        word_V = class_W.new_full((len(self.words.known),), _UNKNOWN)
        known_W = (class_W != _UNKNOWN).nonzero()[:, 0]
        word_V[class_W[known_W]] = known_W

        def answer(model: nn.Module, examples: PassageDataset, rows_B: Tensor, placements: int) -> Predictions:
            batch = examples.batch(rows_B)
            probability_BV = self._probability(model, examples, rows_B, placements)
            named_B = word_V[probability_BV.argmax(dim=1)]
            class_B1 = class_W[batch.answers.long()][:, None]
            right_B1 = probability_BV.gather(1, class_B1.clamp(min=0)) * (class_B1 != _UNKNOWN)
            last_B = (batch.is_answer * torch.arange(1, self.positions + 1, device=rows_B.device)).amax(dim=1)
            distance_B = torch.where(last_B > 0, batch.mask_position + 1 - last_B, 0)
            return Predictions(batch.answers, named_B, named_B, right_B1[:, 0], distance_B)

        return predict(model, examples, placements=placements, on_progress=on_progress, answer=answer)

    @torch.inference_mode()
    def likely(self, model: nn.Module, tokens: Sequence[str], placements: int = 1) -> dict[str, float]:
        """How likely a model finds each known word to follow a passage."""
        row_B = torch.zeros(1, dtype=torch.int64, device=self.device)
        probability_BV = self._probability(model, self.examples_of([[*tokens, ""]]), row_B, placements)
        return dict(zip(self.words.known, probability_BV[0].tolist(), strict=True))

    def _probability(self, model: nn.Module, examples: PassageDataset, rows_B: Tensor, placements: int) -> Tensor:
        """The probability of every known word, averaged over places among the positions."""
        shares = [(number + 0.5) / placements for number in range(placements)]
        scores = [model(examples.batch(rows_B, share).ids).float().softmax(dim=1) for share in shares]
        return torch.stack(scores).mean(dim=0)

    def _classes(self, lookup_W: Tensor) -> Tensor:
        """The class of every word of a stream."""
        return torch.where(lookup_W < 0, _UNKNOWN, lookup_W - self.words.first_known)
