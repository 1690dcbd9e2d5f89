"""Performances of an .npz file, in folds and batches, and changed at random for training.

A note is a row of four numbers: onset and duration in seconds, pitch and velocity as in MIDI. N are all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

Change = Callable[[np.ndarray, np.ndarray, np.random.Generator], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Performance:
    """The notes of a performance in the order of their onsets, and its beats in seconds, as far as they are known."""

    piece: str
    notes: np.ndarray
    beats: np.ndarray
    downbeats: np.ndarray

    def labels(self) -> np.ndarray:
        """For each note 1 where a beat, 2 where a downbeat lies within 50 ms, else 0."""
        onset_N, label_N = self.notes[:, 0].astype(float), np.zeros(len(self.notes), int)
        for label, times in ((1, self.beats), (2, self.downbeats)):
            first_N, end_N = (np.searchsorted(times, onset_N + step) for step in (-0.05, 0.05))
            label_N[first_N < end_N] = label
        return label_N


def read_arrays(path: Path) -> list[Performance]:
    """The performances of an .npz file: columns of all notes and all beats, and where those of each one begin."""
    data = dict(np.load(path))
    notes = np.stack([data[name] for name in ("onset", "duration", "pitch", "velocity")], axis=1).astype(np.float32)
    performances = []
    for row, piece in enumerate(data["piece"]):
        (note, end), (beat, last) = data["offsets"][row : row + 2], data["beat_offsets"][row : row + 2]
        beats, kinds = data["beats"][beat:last], data["kind"][beat:last]
        performances.append(Performance(str(piece), notes[note:end], beats, beats[kinds == 1]))
    return performances


def split(performances: Sequence[Performance], fold: int) -> tuple[list[Performance], list[Performance]]:
    """The performances to train on, and those of a fifth of the pieces."""
    pieces = np.random.default_rng(0).permutation(sorted({p.piece for p in performances}))[fold::5].tolist()
    return [p for p in performances if p.piece not in pieces], [p for p in performances if p.piece in pieces]


def by_length(performances: Sequence[Performance], notes: int) -> list[list[int]]:
    """Batches of performances of similar length, of so many notes at most where there is not one alone."""
    batches: list[list[int]] = [[]]
    for row in np.argsort([len(performance.notes) for performance in performances]).tolist():
        if batches[-1] and (len(batches[-1]) + 1) * len(performances[row].notes) > notes:
            batches.append([])
        batches[-1].append(row)
    return batches


def augment(notes: np.ndarray, label_N: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Another tempo and key, other dynamics, onsets moved a little, some notes left out, at times the start as well."""
    keep_N = random.random(len(notes)) >= random.choice([0, 0.02, 0.1])
    if random.random() < 0.5:
        keep_N[: random.integers(len(notes) // 2 + 1)] = False
    notes, label_N = notes[keep_N], label_N[keep_N]
    notes[:, :2] *= 1.25 ** random.uniform(-1, 1)
    notes[:, 0] += random.normal(0, random.choice([0, 0.005]), len(notes)) + random.uniform(0, 32)
    notes[:, 2:] += random.integers(-6, 7), random.uniform(-16, 16)
    order_N = np.argsort(notes[:, 0], kind="stable")
    return notes[order_N], label_N[order_N]
