"""From probabilities of notes to times of beats: by a threshold, or as the best steady pulse and the bars on it."""

# N = notes, M = moments (the notes of a chord are one), I = ways from an earlier moment, B = beats, S = places in bars
from __future__ import annotations

from itertools import product

import numpy as np

GAP, BACK = 0.06, 12  # seconds between the notes of a moment, and moments between two beats, at most
SURE, STEADY, JUMP, SILENT = 1.5, 7.0, 8.0, 2.5  # gain of a beat; costs: of a tempo, of any, of a beat without notes
METRES, OTHER_METRE, CUT = (2, 3, 4), 1.0, 1.0  # beats of a bar; costs: of another metre, of a bar that ends early


def moments(onset_N: np.ndarray, p_N: np.ndarray) -> np.ndarray:
    """The most probable note of each moment: of those at 0, 0.02 and 0.5 seconds the last, and one of the others."""
    moment_N = np.cumsum(np.diff(onset_N, prepend=-np.inf) > GAP)
    return np.lexsort((p_N, moment_N))[np.diff(moment_N, append=-1) != 0]


def pick(onset_N: np.ndarray, p_N2: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The times of beats and of downbeats by the network alone: of notes that are more probable than not."""
    beat, downbeat = ((onset_N[p_N > 0.5], p_N[p_N > 0.5]) for p_N in p_N2.T)
    return beat[0][moments(*beat)], downbeat[0][moments(*downbeat)]


def track(onset_N: np.ndarray, p_N2: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The times of beats and of downbeats as the most probable pulse whose tempo changes little, and its bars."""
    chosen_M = moments(onset_N, p_N2[:, 0])
    chosen_M = chosen_M[p_N2[chosen_M, 0] > 0.02]  # the others would cost too much
    time_M, p_M2 = onset_N[chosen_M], np.clip(p_N2[chosen_M], 1e-3, 1 - 1e-3)
    if len(time_M) < 2:
        return time_M, time_M
    path_B, silent_B = pulse(time_M, np.log(p_M2[:, 0] / (1 - p_M2[:, 0])) + SURE)
    beat_B, p_down_B, between = time_M[path_B], p_M2[path_B, 1] / p_M2[path_B, 0], np.flatnonzero(silent_B)
    beat_B = np.insert(beat_B, between, (beat_B[between - 1] + beat_B[between]) / 2)
    return beat_B, beat_B[bars(np.insert(p_down_B, between, p_down_B.mean()))]


def pulse(time_M: np.ndarray, gain_M: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The moments of the best pulse, and before which of them lies a beat without a note."""
    back_I, beats_I = np.array(list(product(range(1, BACK + 1), (1, 2)))).T
    early_MI = np.arange(len(time_M))[:, None] - back_I
    exists_MI, early_MI = early_MI >= 0, np.maximum(early_MI, 0)
    tempo_MI = np.log(np.maximum(time_M[:, None] - time_M[early_MI], 0.05) / beats_I)
    score_MI, from_MI = np.full(early_MI.shape, -np.inf), np.zeros(early_MI.shape, int)
    for m, early_I in enumerate(early_MI):
        change_II = np.abs(tempo_MI[m][:, None] - tempo_MI[early_I])
        before_II = score_MI[early_I] - np.minimum(STEADY * change_II, JUMP)
        before_I, gain_I = before_II.max(1), gain_M[early_I]
        from_MI[m] = np.where(gain_I > before_I, -1, before_II.argmax(1))  # -1: the pulse begins there
        score_I = np.maximum(before_I, gain_I) + gain_M[m] - SILENT * (beats_I - 1)
        score_MI[m] = np.where(exists_MI[m], score_I, -np.inf)
    m, i = divmod(int(score_MI.argmax()), len(back_I))
    path, silent = [m], []
    while i >= 0:
        silent.append(beats_I[i] == 2)
        m, i = early_MI[m, i], from_MI[m, i]
        path.append(m)
    return np.array(path[::-1]), np.array([False, *silent[::-1]])


def bars(p_B: np.ndarray) -> np.ndarray:
    """Which beats begin the most probable bars, given the probability of each that it does."""
    metre_S, place_S = np.array([(metre, place) for metre in METRES for place in range(metre)]).T
    is_next_SS = (metre_S[:, None] == metre_S) & (place_S[:, None] + 1 == place_S)
    begin_SS = OTHER_METRE * (metre_S[:, None] != metre_S) + CUT * (place_S + 1 < metre_S)[:, None]
    cost_SS = np.where(is_next_SS, 0, np.where(place_S == 0, begin_SS, np.inf))
    p_B1 = np.clip(p_B, 0.01, 0.99)[:, None]
    gain_BS, back = np.where(place_S == 0, np.log(p_B1), np.log(1 - p_B1)), []
    score_S = gain_BS[0]
    for gain_S in gain_BS[1:]:
        back.append((score_S[:, None] - cost_SS).argmax(0))
        score_S = (score_S[:, None] - cost_SS).max(0) + gain_S
    path = [int(score_S.argmax())]
    for from_S in back[::-1]:
        path.append(int(from_S[path[-1]]))
    return place_S[path[::-1]] == 0
