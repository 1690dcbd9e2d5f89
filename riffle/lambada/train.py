"""The objective of runs on LAMBADA: point at the missing last word of a passage."""

# S = steps, B = passages, N = positions
from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from riffle.config import MODELS, BaseModelConfig, LambadaRunConfig
from riffle.lambada.corpus import POSITIONS, Corpus
from riffle.lambada.pointing import (
    PassageBatch,
    PassageDataset,
    Predictions,
    context_probabilities,
    pointer_loss,
    predict_answers,
    predict_by_pointing,
)
from riffle.lambada.vectors import WordVectors, load_vectors, write_vectors
from riffle.lambada.vocabulary import FrozenWords, Vocabulary, choose_vocabulary, nearest_words
from riffle.models.build import Alphabets, build_reader
from riffle.models.pointer import MentionCounts, PointerModel, WordModel
from riffle.registry import load
from riffle.train.distributed import SINGLE_PROCESS, RankGroup
from riffle.train.objective import CountCorrect, Examples, autocast

VOCABULARY_FILE = "words.safetensors"
"""The file of a run with its vocabulary and word vectors."""


class PointerObjective:
    """Point at an earlier occurrence of a passage's last word; the vocabulary is kept in the run's ``folder``."""

    model: type[WordModel] = PointerModel

    def __init__(
        self, config: LambadaRunConfig, folder: Path | None = None, device: Any = "cpu", ranks: RankGroup | None = None
    ) -> None:
        self.config, self.folder, self.device = config, folder, torch.device(device)
        self.ranks = ranks or SINGLE_PROCESS
        bins = config.data.bins
        if len(bins) != 1:
            raise ValueError(f"data.bins must be one number of positions where passages are read, got {list(bins)}")
        self.positions = bins[0]
        self._datasets: dict[str, PassageDataset] = {}

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
        vectors = choose_vocabulary(self.corpus, self.config.data.words)
        if path:
            write_vectors(path, vectors)
        return vectors

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The ids of the words, the same for up to 128 positions: such runs can start with each other's weights."""
        return Vocabulary(self.vectors.words, oov_ids=max(self.positions, POSITIONS))

    def build(self, config: BaseModelConfig, **factory: Any) -> WordModel:
        """A model with initial weights."""
        data, alphabets = self.config.data, Alphabets(classes=self.classes)
        reader = build_reader(config, alphabets, **factory)
        words = FrozenWords(self.vocabulary, self.vectors, config.features, **factory)
        mentions = MentionCounts(config.features, **factory) if data.mentions else None
        return self.model(words, reader, word_dropout=data.word_dropout, mentions=mentions)

    @property
    def classes(self) -> int:
        """The scores of the reader, here one at each position."""
        return 1

    def draw(self, steps: int, generator: torch.Generator) -> Examples:
        """Random passages, a fraction of which end inside a sentence: a :class:`PassageBatch`, and weights in the loss.

        Passages that have a target have equal weight. Every rank draws the passages of all ranks and keeps its own.
        """
        data, size = self.config.data, self.ranks.size
        rows = data.batch * size
        inside = round(data.within * rows)
        parts = []
        for split, count in (("train", rows - inside), ("within", inside)):
            if count:
                drawn = self.dataset(split).sample(
                    steps * count, forget=data.forget, rename=data.rename, generator=generator
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
        loss_B = pointer_loss(logits_BN, batch, self.config.train.label_smoothing, self.config.data.label)
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
        dataset = self.dataset_from_tokens([[*tokens, ""]])
        _, _, by_word_BN, _ = context_probabilities(model, dataset, row_B, placements)
        # Counted back from the end, as far as the network has positions.
        return dict(zip(reversed(tokens), by_word_BN[0].tolist(), strict=False))

    def dataset_from_tokens(self, passages: Sequence[Sequence[str]]) -> PassageDataset:
        """Passages given as tokens, the answer last, on the device."""
        return PassageDataset.from_tokens(passages, self.vocabulary, self.positions, self.device)

    def dataset(self, split: str) -> PassageDataset:
        """The passages of a split, on the device; of those that are trained on, the share that the run uses."""
        if split not in self._datasets:
            data, examples = self.config.data, self.corpus.examples(split)
            trained = split not in self.corpus.held_out
            if trained:
                examples = examples[: math.ceil(data.share * len(examples))]
            if not len(examples):
                raise ValueError(f"{self.corpus.folder} has no passages in {split!r}: prepare it with other filters")
            if split == "validation":  # some 4096 passages in an evaluation during training
                examples = examples[:: max(1, len(examples) // 4096)]
            words = self.vocabulary, self.lookup, self.positions
            flatten, similar_VS = data.flatten if trained else 0.0, self._similar if trained and data.rename else None
            dataset = PassageDataset(self._stream, examples, *words, flatten=flatten, similar_VS=similar_VS)
            self._datasets[split] = dataset
        return self._datasets[split]

    @cached_property
    def _stream(self) -> Tensor:
        return torch.from_numpy(self.corpus.tokens).to(self.device)

    @cached_property
    def _similar(self) -> Tensor:
        known_VT = torch.from_numpy(self.vectors.table).to(self.device)
        first = self.vocabulary.first_known
        return F.pad(first + nearest_words(known_VT, 8), (0, 0, first, 0), value=-1)

    @cached_property
    def lookup(self) -> Tensor:
        """The id of every word of the corpus, on the device."""
        return self.vocabulary.lookup(self.corpus.words).to(self.device)


def make_lambada_objective(
    config: LambadaRunConfig, folder: Path | None = None, device: Any = "cpu", ranks: RankGroup | None = None
) -> PointerObjective:
    """The objective of a run on LAMBADA, by the kind of its model."""
    make = MODELS[config.model.kind].passage_objective
    if make is None:
        raise ValueError(f"the model {config.model.kind!r} cannot point at a word, whose cell would not see the end")
    objective: PointerObjective = load(make)(config, folder, device, ranks)
    return objective
