"""A trained reader of LAMBADA as a small folder: weights in int8, word vectors in 4 bits, a card with its accuracy.

Vectors are quantised by GPTQ (Frantar et al. 2022): the numbers of a vector are rounded one after the other, and later
ones compensate for the error that rounding the earlier ones makes in the output of the linear map that follows.
"""

# V = words, D = dimensions of a vector, O = outputs of the linear map that reads the vectors
from __future__ import annotations

import shlex
from dataclasses import asdict, replace
from pathlib import Path
from typing import TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import save

from research.ship.quantize import compress, quantize
from riffle.config import LambadaRunConfig, ModelConfig, PassageDataConfig
from riffle.environment import read_environment
from riffle.files import read_json, write_atomically, write_json
from riffle.lambada.evaluate import PassageScore, TrainedReader
from riffle.lambada.train import VOCABULARY_FILE
from riffle.lambada.vectors import FORMAT, WordVectors
from riffle.lambada.vocabulary import Vocabulary
from riffle.models.pointer import PointerModel
from riffle.quantities import format_percent
from riffle.train.checkpoint import add_prefix, write_checkpoint
from riffle.train.run import Run

BOUND = "bound of choosing a word from the passage"
PUBLISHED = {
    "random word of the passage": 0.016,
    "Gated-Attention Reader": 0.490,
    "Universal Transformer, 6 fixed steps": 0.5216,
    "Shuffle-Exchange, the paper": 0.5228,
    "Residual Shuffle-Exchange, 2021": 0.5434,
    "Dhingra et al., 2018": 0.5569,
    "Universal Transformer, dynamic halting": 0.5625,
    BOUND: 0.81,
    "human": 0.860,
}
"""Published accuracies on LAMBADA's test set, the lowest first."""
CLIP_RATIOS = (1.0, 0.9, 0.8, 0.7, 0.6)
"""Clipping limits that quantisation tries, as shares of a vector's largest number; clipping gives finer steps below."""
DAMPING = 0.01
"""Added to the diagonal of GPTQ's Hessian, as a share of its mean, so that it can be inverted."""
ROWS_AT_ONCE = 4096
_LEVELS = 7  # 4 bits: whole numbers from -7 to 7


def ship_reader(run: Run, folder: Path, words: int | None = None) -> Run:
    """Write a run as a small folder: weights in int8, word vectors in 4 bits, without evaluation and model card.

    Only the most common ``words`` are kept, if given; the others become unknown words, which can still be pointed at.
    """
    reader = TrainedReader(run)
    config, objective = reader.objective.config, reader.objective
    if not isinstance(reader.model, PointerModel):
        raise ValueError(f"{run.folder} has weights for each of its words: only runs that point can be shipped")
    kept = WordVectors(objective.vectors.words[:words], objective.vectors.table[:words])
    vocabulary = Vocabulary(kept.words, oov_ids=objective.vocabulary.oov_ids)
    weights = add_prefix(reader.model.state_dict(), "model.")
    weights["model.words.fingerprint"] = torch.tensor(vocabulary.fingerprint())
    # Paths mean nothing on another machine.
    data = replace(config.data, words=len(kept.words), corpus=PassageDataConfig().corpus)
    folder.mkdir(parents=True, exist_ok=True)
    write_rounded(folder / VOCABULARY_FILE, kept, weights["model.words.map.weight"].cpu().numpy())
    write_checkpoint(folder / run.checkpoint.name, {**quantize(weights), "step": torch.tensor(run.saved_step())})
    write_json(folder / run.config_path.name, asdict(replace(config, data=data)))
    if (run.folder / "environment.json").exists():
        write_atomically(folder / "environment.json", (run.folder / "environment.json").read_bytes())
    return Run(folder)


def reader_model_card(run: Run) -> str:
    """The model card of a run on LAMBADA: its training, accuracy and limits, from the files in its folder."""
    config = run.config
    assert isinstance(config, LambadaRunConfig)
    model, data = config.model, config.data
    unit = f", {model.unit} unit" if model.kind == ModelConfig().kind else ""
    paragraphs = [
        f"# {config.task}",
        f"Weights of a network ({model.kind}{unit}) that finds the last word of a passage by pointing "
        f"at an earlier occurrence of it: {model.features} feature maps, {model.blocks} Beneš "
        f"{'blocks' if model.blocks > 1 else 'block'}, {data.bins[0]} positions, "
        f"{run.saved_step()} steps of {data.batch} passages. Matrices are rounded to int8, the "
        f"vectors of the {data.words:,} most common words to 4 bits.",
    ]
    if record := read_environment(run.folder):
        commit = f"\nCommit: {record['commit']}." if record["commit"] else ""
        paragraphs += [
            f"Trained on: {record['device']}, torch {record['versions']['torch']}.{commit}",
            "Training command:",
            f"```\n{shlex.join(record['command'])}\n```",
        ]
    paragraphs += [
        "Data: passages of English novels and pretrained word vectors, from `python -m research lambada prepare`; "
        f"{format_percent(data.within)} of the examples end inside a sentence."
    ]
    if scores := read_scores(run.folder / "evaluation.json"):
        rows = [
            f"| {split} | {score['passages']} | {format_percent(score['position'])} | {format_percent(score['word'])} |"
            for split, score in scores.items()
        ]
        table = "\n".join(["| set | passages | by position | by word |", "|---|---:|---:|---:|", *rows])
        paragraphs += ["Accuracy of these files, over all passages of each set:", table]
    paragraphs += [
        "Limits:",
        "- Only a word of the passage can be found, among its last "
        f"{data.bins[0] - 1} tokens; about a fifth of LAMBADA's passages end with another.\n"
        "- English novels are all it has seen, in lower case: names are told from words by nothing but their context.\n"
        "- Words beyond the known ones are told apart within a passage, but nothing else is known about them.",
    ]
    return "\n\n".join(paragraphs) + "\n"


class OverallScore(TypedDict):
    """The score of all passages of a split, beside those of some of them."""

    all: PassageScore


class SplitEvaluation(TypedDict):
    """What is measured on a split, see :func:`breakdown`."""

    passages: OverallScore


class ReaderEvaluation(TypedDict):
    """What evaluation.json holds at least."""

    splits: dict[str, SplitEvaluation]


def read_scores(path: Path) -> dict[str, PassageScore]:
    """The scores of all passages of each split in a file that ``riffle lambada eval`` wrote; empty without the file."""
    what, remedy = "evaluation of passages", "make it again with riffle lambada eval"
    evaluation: ReaderEvaluation | None = read_json(path, ReaderEvaluation, what=what, remedy=remedy)
    return {split: parts["passages"]["all"] for split, parts in evaluation["splits"].items()} if evaluation else {}


def write_rounded(path: Path, vectors: WordVectors, weight_OD: NDArray[np.float32]) -> None:
    """Write words and vectors in 4 bits as zlib streams, given the matrix of the linear map that reads the vectors."""
    q_VD, scale_V = quantize_vectors(vectors.table, weight_OD)
    contents = {"words": "\n".join(vectors.words).encode(), "q4": _pack_int4(q_VD).tobytes()}
    streams = {f"{name}.zlib": np.frombuffer(compress(content), np.uint8) for name, content in contents.items()}
    write_atomically(path, save({"scale": scale_V, **streams}, {"format": FORMAT}))


def quantize_vectors(
    table_VD: NDArray[np.float16], weight_OD: NDArray[np.float32]
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Vectors as whole numbers from -7 to 7, int8 ``[V, D]``, and one scale each, float32 ``[V]``, by GPTQ.

    Of several clipping limits, each vector takes the one with the smallest error after multiplication by ``weight_OD``.
    """
    # GPTQ: the Cholesky factor of the inverse Hessian says how later numbers compensate for an earlier one's error.
    hessian_DD = weight_OD.T.astype(np.float64) @ weight_OD
    hessian_DD += DAMPING * np.trace(hessian_DD) / len(hessian_DD) * np.eye(len(hessian_DD))
    upper_DD = np.linalg.cholesky(np.linalg.inv(hessian_DD)).T
    compensation_DD = (upper_DD / np.diagonal(upper_DD)[:, None]).astype(np.float32)
    q_VD, scale_V = np.zeros(table_VD.shape, dtype=np.int8), np.zeros(len(table_VD), dtype=np.float32)
    for start in range(0, len(table_VD), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        values_VD = table_VD[rows].astype(np.float32)
        largest_V, least_error_V = np.abs(values_VD).max(axis=1, initial=0), np.full(len(values_VD), np.inf)
        for ratio in CLIP_RATIOS:
            tried_scale_V = np.maximum(largest_V * np.float32(ratio / _LEVELS), np.finfo(np.float32).tiny)
            tried_VD = _round_gptq(values_VD / tried_scale_V[:, None], compensation_DD)
            error_V = np.square((tried_VD * tried_scale_V[:, None] - values_VD) @ weight_OD.T).sum(axis=1)
            better_V = error_V < least_error_V
            least_error_V = np.where(better_V, error_V, least_error_V)
            scale_V[rows] = np.where(better_V, tried_scale_V, scale_V[rows])
            q_VD[rows][better_V] = tried_VD[better_V]
    return q_VD, scale_V


def _round_gptq(values_VD: NDArray[np.float32], compensation_DD: NDArray[np.float32]) -> NDArray[np.float32]:
    """Round one column after the other; the columns to come are changed to compensate for its rounding error."""
    columns_DV = np.ascontiguousarray(values_VD.T)
    for index, column_V in enumerate(columns_DV):
        rounded_V = np.rint(column_V).clip(-_LEVELS, _LEVELS)
        columns_DV[index + 1 :] -= np.outer(compensation_DD[index, index + 1 :], column_V - rounded_V)
        column_V[:] = rounded_V
    return columns_DV.T


def _pack_int4(q_VD: NDArray[np.int8]) -> NDArray[np.uint8]:
    if q_VD.shape[1] % 2:
        raise ValueError(f"vectors of {q_VD.shape[1]} numbers cannot be kept in 4 bits: their number must be even")
    nibbles_VD = (q_VD + 8).astype(np.uint8)
    return nibbles_VD[:, ::2] | (nibbles_VD[:, 1::2] << np.uint8(4))
