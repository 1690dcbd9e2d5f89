"""The objectives of runs on LAMBADA: point at the missing last word of a passage, or classify it among all known words.

Importing this module registers them with :mod:`riffle.train`; whatever opens a run on LAMBADA has to import it.
"""

# S = steps, B = passages, N = positions, V = known words, W = distinct words of a dataset
from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from research.lambada.matching import match_weights
from riffle.config import LambadaRunConfig, ModelConfig
from riffle.lambada.corpus import POSITIONS, Corpus
from riffle.lambada.pointing import (
    PassageBatch,
    PassageDataset,
    Predictions,
    context_probabilities,
    distillation_loss,
    placement_divergence,
    pointer_loss,
    predict_answers,
    predict_by_pointing,
)
from riffle.lambada.vectors import WordVectors, load_vectors, write_vectors
from riffle.lambada.vocabulary import FrozenWords, LearnedWords, Vocabulary, choose_vocabulary, nearest_words
from riffle.models.build import build_reader
from riffle.models.pointer import MentionCounts, PointerModel, WordModel
from riffle.train.distributed import SINGLE_PROCESS, RankGroup
from riffle.train.objective import OBJECTIVES, CountCorrect, Examples, autocast
from riffle.train.run import Run

VOCABULARY_FILE = "words.safetensors"
"""The file of a run with its vocabulary and word vectors."""
EVALUATION_PASSAGES = 4096
"""Passages of the validation split in an evaluation during training."""
SIMILAR_WORDS = 8
"""Similar words that a word can be renamed to."""
WORD_CLASSIFIERS = frozenset({"universal-reader"})
"""The kinds of model that score all known words instead of pointing."""
UNKNOWN_CLASS = -100
"""The class of an answer outside the vocabulary, which the loss ignores."""


class ReaderAlphabets(NamedTuple):
    """The sizes a reader is built with: it reads word vectors, not symbols, and has one score per position."""

    symbols: int = 1
    classes: int = 1
    reach: int = 1


class PointerObjective:
    """Point at an earlier occurrence of a passage's last word; the vocabulary is kept in the run's ``folder``."""

    def __init__(
        self,
        config: LambadaRunConfig,
        folder: Path | None = None,
        device: Any = "cpu",
        ranks: RankGroup = SINGLE_PROCESS,
    ) -> None:
        self.config, self.folder, self.device, self.ranks = config, folder, torch.device(device), ranks
        bins = config.data.bins
        if len(bins) != 1:
            raise ValueError(f"data.bins must be one number of positions where passages are read, got {list(bins)}")
        self.positions = bins[0]
        if self.placements > 1 and config.data.batch % 2:
            lever = "consistency" if config.data.consistency else "distillation"
            raise ValueError(f"data.{lever} takes passages in pairs: data.batch={config.data.batch} must be even")
        if config.data.distillation and not config.data.teacher:
            raise ValueError("data.distillation needs the folder of a trained run: set data.teacher, too")
        if config.data.distillation and config.model.kind in WORD_CLASSIFIERS:
            raise ValueError(f"{config.model.kind} does not point at words: set data.distillation=0")
        if config.data.rename and config.data.table != "frozen":
            raise ValueError("data.rename takes words of similar vectors, and learned ones are not: set data.rename=0")
        self._datasets: dict[str, PassageDataset] = {}

    @property
    def placements(self) -> int:
        """Rows of a batch with the same passage, one after the other."""
        return 2 if self.config.data.consistency or self.config.data.distillation else 1

    @cached_property
    def teacher(self) -> WordModel:
        """The trained model whose answers are distilled."""
        run = Run(Path(self.config.data.teacher))
        if run.config.model.kind in WORD_CLASSIFIERS:
            raise ValueError(f"{run.folder} cannot teach this run: it does not point at words")
        if load_vectors(run.folder / VOCABULARY_FILE).words != self.vectors.words:
            raise ValueError(f"{run.folder} cannot teach this run: they do not know the same words")
        model: WordModel = run.model(self.device)
        return model.requires_grad_(False)

    @cached_property
    def corpus(self) -> Corpus:
        """The prepared corpus."""
        return Corpus(Path(self.config.data.corpus))

    @cached_property
    def vectors(self) -> WordVectors:
        """The known words, most common first, and their vectors."""
        path = self.folder / VOCABULARY_FILE if self.folder else None
        if path and path.exists():
            return load_vectors(path)
        data = self.config.data
        vectors = choose_vocabulary(self.corpus, data.words, pretrained=data.table == "frozen")
        if path:
            write_vectors(path, vectors)
        return vectors

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The ids of the words, the same for up to 128 positions: such runs can start with each other's weights."""
        return Vocabulary(self.vectors.words, oov_ids=max(self.positions, POSITIONS))

    def build(self, config: ModelConfig, **factory: Any) -> WordModel:
        """A model with initial weights."""
        reader = build_reader(config, ReaderAlphabets(), **factory)
        return PointerModel(self.build_embedding(config, **factory), reader, **self.word_options(config, **factory))

    def build_embedding(self, config: ModelConfig, **factory: Any) -> FrozenWords | LearnedWords:
        """The word embedding of a model."""
        if self.config.data.table == "frozen":
            return FrozenWords(self.vocabulary, self.vectors, config.features, rank=self.config.data.rank, **factory)
        return LearnedWords(self.vocabulary, config.features, **factory)

    def word_options(self, config: ModelConfig, **factory: Any) -> dict[str, Any]:
        """What the model does to its words besides embedding them."""
        data = self.config.data
        mentions = MentionCounts(config.features, **factory) if data.mentions else None
        return {"word_dropout": data.word_dropout, "mentions": mentions}

    def draw(self, steps: int, generator: torch.Generator) -> Examples:
        """Random passages, a fraction of which end inside a sentence: a :class:`PassageBatch`, and weights in the loss.

        Passages that have a target have equal weight. Every rank draws the passages of all ranks and keeps its own.
        """
        data, size, placements = self.config.data, self.ranks.size, self.placements
        rows = data.batch * size
        inside = round(data.within * rows / placements) * placements
        parts = []
        for split, count in (("train", rows - inside), ("within", inside)):
            if count:
                drawn = self.dataset(split).sample(
                    steps * count,
                    forget=data.forget,
                    rename=data.rename,
                    placements=placements,
                    generator=generator,
                )
                parts.append([column.unflatten(0, (steps, count)) for column in drawn])
        columns = [torch.cat(column, dim=1) for column in zip(*parts, strict=True)]
        trained_SB = self.has_target(PassageBatch(*(column.flatten(0, 1) for column in columns))).float()
        trained_SB = trained_SB.view(steps, rows)
        weights_SB = trained_SB * size / trained_SB.sum(dim=1, keepdim=True).clamp(min=1)
        return tuple(self.ranks.shard(column, dim=1) for column in (*columns, weights_SB))

    def loss(self, model: WordModel, examples: Examples) -> tuple[Tensor, CountCorrect]:
        """The loss of a batch of passages."""
        *columns, weights_B = examples
        batch = PassageBatch(*columns)
        with autocast(self.config.train.precision, weights_B.device):
            logits_BN = model(batch.ids)
        data = self.config.data
        loss_B = pointer_loss(logits_BN, batch, self.config.train.label_smoothing, data.label)
        if data.distillation:
            teacher = self.teacher  # built outside of autocast, which would change the type of its vectors
            with torch.no_grad(), autocast(self.config.train.precision, weights_B.device):
                teacher_logits_BN = teacher(batch.ids)
            loss_B = torch.lerp(loss_B, distillation_loss(logits_BN, teacher_logits_BN, batch), data.distillation)
        if data.consistency:
            divergence_B = placement_divergence(logits_BN, batch).repeat_interleave(2)
            loss_B = loss_B + data.consistency * divergence_B
        # Without an occurrence of the answer the loss may be any number, so a weight of 0 is not enough.
        loss = torch.where(weights_B > 0, loss_B * weights_B, 0).sum()
        logits_BN = logits_BN.detach().masked_fill(~batch.pointable, -torch.inf)

        def count_correct() -> tuple[Tensor, Tensor]:
            right_B1 = batch.is_answer.gather(1, logits_BN.argmax(dim=1, keepdim=True))
            return right_B1.sum(), (weights_B > 0).sum()

        return loss, count_correct

    def has_target(self, batch: PassageBatch) -> Tensor:
        """Which passages can be trained on: those with an occurrence of the answer among the positions."""
        return batch.is_answer.any(dim=1)

    def evaluate(self, model: WordModel) -> dict[str, float]:
        """Accuracy by position on the validation split and the evaluation sets."""
        with autocast(self.config.train.precision, self.device):
            by_split = {
                split: predict_answers(model, self.dataset(split), self.predict_rows) for split in self.corpus.held_out
            }
        return {split: predictions.accuracy["position"] for split, predictions in by_split.items()}

    def predict_rows(self, model: nn.Module, dataset: PassageDataset, rows_B: Tensor, placements: int) -> Predictions:
        """A model's predictions for some passages of a dataset, see :func:`riffle.lambada.pointing.predict_answers`."""
        return predict_by_pointing(model, dataset, rows_B, placements)

    @torch.inference_mode()
    def next_word_probabilities(self, model: WordModel, tokens: Sequence[str], placements: int = 1) -> dict[str, float]:
        """The probability of every word that a model can choose to follow the tokens: these, or all known words."""
        row_B = torch.zeros(1, dtype=torch.int64, device=self.device)
        context = context_probabilities(model, self.dataset_from_tokens([[*tokens, ""]]), row_B, placements)
        # Counted back from the end, as far as the network has positions.
        return dict(zip(reversed(tokens), context.by_word[0].tolist(), strict=False))

    def dataset_from_tokens(self, passages: Sequence[Sequence[str]]) -> PassageDataset:
        """Passages given as tokens, the answer last, on the device."""
        return PassageDataset.from_tokens(passages, self.vocabulary, self.positions, self.device)

    def dataset(self, split: str) -> PassageDataset:
        """The passages of a split, on the device; those that are trained on with their sampling weights."""
        if split not in self._datasets:
            data, examples = self.config.data, self.corpus.examples(split)
            weighted = split not in self.corpus.held_out
            if weighted:
                examples = examples[: math.ceil(data.share * len(examples))]
            if not len(examples):
                raise ValueError(f"{self.corpus.folder} has no passages in {split!r}: prepare it with other filters")
            if split == "validation":
                examples = examples[:: max(1, len(examples) // EVALUATION_PASSAGES)]
            weights_E = None
            if weighted and (data.match or data.likeness):
                weights_E = match_weights(self.corpus, split, examples, self._stream, data.match, data.likeness)
            flatten = data.flatten if weighted else 0.0
            self._datasets[split] = PassageDataset(
                self._stream,
                examples,
                self.vocabulary,
                self._lookup,
                self.positions,
                flatten=flatten,
                weights_E=weights_E,
                similar_VS=self._similar if weighted and data.rename else None,
            )
        return self._datasets[split]

    @cached_property
    def _stream(self) -> Tensor:
        return torch.from_numpy(self.corpus.tokens).to(self.device)

    @cached_property
    def _similar(self) -> Tensor:
        known_VT = torch.from_numpy(self.vectors.table).to(self.device)
        first = self.vocabulary.first_known
        similar_VS = first + nearest_words(known_VT, SIMILAR_WORDS)
        return F.pad(similar_VS, (0, 0, first, 0), value=-1)

    @cached_property
    def _lookup(self) -> Tensor:
        return self.vocabulary.lookup(self.corpus.words).to(self.device)


class WordObjective(PointerObjective):
    """Classify a passage's last word among all known words; see :class:`PointerObjective`."""

    def build(self, config: ModelConfig, **factory: Any) -> WordModel:
        reader = build_reader(config, ReaderAlphabets(classes=len(self.vocabulary.known)), **factory)
        return WordModel(self.build_embedding(config, **factory), reader, **self.word_options(config, **factory))

    def loss(self, model: WordModel, examples: Examples) -> tuple[Tensor, CountCorrect]:
        """Cross entropy over the known words, averaged over the passages whose answer is one of them."""
        *columns, weights_B = examples
        batch = PassageBatch(*columns)
        with autocast(self.config.train.precision, weights_B.device):
            logits_BV = model(batch.ids)
        class_B = self._classes(self._answer_ids(batch))
        smoothing = self.config.train.label_smoothing
        loss_B = F.cross_entropy(logits_BV.float(), class_B, label_smoothing=smoothing, reduction="none")
        right_B = logits_BV.detach().argmax(dim=1) == class_B
        return (loss_B * weights_B).sum(), lambda: (right_B.sum(), (weights_B > 0).sum())

    def has_target(self, batch: PassageBatch) -> Tensor:
        """Which passages can be trained on: those whose answer is a known word."""
        return self._lookup[batch.answers.long()] >= 0

    def predict_rows(self, model: nn.Module, dataset: PassageDataset, rows_B: Tensor, placements: int) -> Predictions:
        """Predictions by position and by word are the same."""
        batch, class_W = dataset.batch(rows_B), self._classes(dataset.lookup_V)
        # The inverse: the dataset's word of each class, which most classes do not have.
        word_V = class_W.new_full((len(self.vocabulary.known),), UNKNOWN_CLASS)
        known_W = (class_W != UNKNOWN_CLASS).nonzero()[:, 0]
        word_V[class_W[known_W]] = known_W
        probability_BV = self._probabilities(model, dataset, rows_B, placements)
        predicted_B = word_V[probability_BV.argmax(dim=1)]
        class_B1 = class_W[batch.answers.long()][:, None]
        right_B1 = probability_BV.gather(1, class_B1.clamp(min=0)) * (class_B1 != UNKNOWN_CLASS)
        last_B = (batch.is_answer * torch.arange(1, self.positions + 1, device=rows_B.device)).amax(dim=1)
        distance_B = torch.where(last_B > 0, batch.mask_position + 1 - last_B, 0)
        return Predictions(batch.answers, predicted_B, predicted_B, right_B1[:, 0], distance_B)

    @torch.inference_mode()
    def next_word_probabilities(self, model: nn.Module, tokens: Sequence[str], placements: int = 1) -> dict[str, float]:
        row_B = torch.zeros(1, dtype=torch.int64, device=self.device)
        probability_BV = self._probabilities(model, self.dataset_from_tokens([[*tokens, ""]]), row_B, placements)
        return dict(zip(self.vocabulary.known, probability_BV[0].tolist(), strict=True))

    def _probabilities(self, model: nn.Module, dataset: PassageDataset, rows_B: Tensor, placements: int) -> Tensor:
        """The probability of every known word, averaged over placements among the positions."""
        probability_BV = torch.zeros(len(rows_B), len(self.vocabulary.known), device=rows_B.device)
        for number in range(placements):  # one at a time: a batch of all of them would take gigabytes
            ids_BN = dataset.batch(rows_B, (number + 0.5) / placements).ids
            probability_BV += model(ids_BN).float().softmax(dim=1) / placements
        return probability_BV

    def _answer_ids(self, batch: PassageBatch) -> Tensor:
        """The ids of the answers, those of their new names where they are renamed; -1 for unknown words."""
        own_B, named_B = self._lookup[batch.answers.long()], torch.where(batch.is_answer, batch.ids, -1).amax(dim=1)
        return torch.where(named_B >= self.vocabulary.first_known, named_B, own_B)

    def _classes(self, lookup_W: Tensor) -> Tensor:
        """The classes of words by their ids."""
        return torch.where(lookup_W < 0, UNKNOWN_CLASS, lookup_W - self.vocabulary.first_known)


def make_lambada_objective(
    config: LambadaRunConfig, folder: Path | None = None, device: Any = "cpu", ranks: RankGroup = SINGLE_PROCESS
) -> PointerObjective:
    """The objective of a run on LAMBADA, by the kind of its model; see :class:`PointerObjective`."""
    kind = WordObjective if config.model.kind in WORD_CLASSIFIERS else PointerObjective
    return kind(config, folder, device, ranks)


OBJECTIVES[LambadaRunConfig] = make_lambada_objective
