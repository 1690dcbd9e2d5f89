"""The program of examples/beats, on pieces that are made up."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

mido = pytest.importorskip("mido")
mir_eval = pytest.importorskip("mir_eval")
BEAT, BAR = 0.6, 3


@pytest.fixture
def beats(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The modules of the example, which lie in no package."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "examples" / "beats"))
    names = ("data", "decode", "train", "evaluate", "track")
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)  # tests/train has one of these names
    modules = SimpleNamespace(**{name: __import__(name) for name in names})
    for name in names:
        del sys.modules[name]
    return modules


def onsets(beats: int, seed: int = 0) -> np.ndarray:
    """Three notes a beat, the first two of which are a chord; one of them comes a little late."""
    notes = BEAT * np.arange(beats)[:, None] + [0, 0.01, BEAT / 2]
    return notes.flatten() + np.random.default_rng(seed).uniform(0, 0.004, 3 * beats)


def write_arrays(path: Path, pieces: int = 5, beats: int = 12) -> None:
    onset = np.concatenate([onsets(beats, seed) for seed in range(pieces)])
    columns = {"onset": onset, "duration": np.full(len(onset), 0.2, np.float16)}
    columns |= {"pitch": np.full(len(onset), 60, np.uint8), "velocity": np.full(len(onset), 64, np.uint8)}
    columns |= {"offsets": np.arange(pieces + 1) * 3 * beats, "beat_offsets": np.arange(pieces + 1) * beats}
    columns |= {"beats": np.tile(BEAT * np.arange(beats), pieces), "kind": np.tile(np.arange(beats) % BAR == 0, pieces)}
    np.savez(path, piece=np.array([f"piece {number}" for number in range(pieces)]), **columns)


def test_train_evaluate_and_track(
    beats: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, run = tmp_path / "data.npz", tmp_path / "run"
    write_arrays(file)
    monkeypatch.setattr(beats.train, "network", partial(beats.train.network, features=8, blocks=1))
    beats.train.main(file, run, fold=0, epochs=1, device="cpu")
    capsys.readouterr()
    for fold, performances in ((None, 5), (0, 1)):
        beats.evaluate.main(file, run, fold=fold, device="cpu")
        figures = json.loads(capsys.readouterr().out)
        assert (figures["performances"], figures["notes"]) == (performances, 36 * performances)
        assert 0 <= figures["time F, network"]["beat"] <= 1

    midi, annotated = tmp_path / "piece.mid", tmp_path / "piece.txt"
    track = mido.MidiTrack([mido.MetaMessage("set_tempo", tempo=1_000_000)])
    for _ in range(12):
        track += [mido.Message("note_on", note=60, time=48), mido.Message("note_off", note=60, time=48)]
    mido.MidiFile(ticks_per_beat=96, tracks=[track]).save(midi)
    annotated.write_text("0.5\t0.5\tdb,3/4\n1.5\t1.5\tb\n")
    performance = beats.track.read_midi(midi, annotated)
    assert performance.notes[:2].tolist() == [[0.5, 0.5, 60, 64], [1.5, 0.5, 60, 64]]
    assert performance.labels().tolist() == [2, 1] + [0] * 10
    mido.MidiFile(tracks=[track[:1]]).save(tmp_path / "silent.mid")
    with pytest.raises(ValueError, match="has no notes"):
        beats.track.read_midi(tmp_path / "silent.mid", None)
    found = performance.notes[:, 0], performance.notes[:, 0][1::3]
    monkeypatch.setattr(beats.track, "track", lambda onsets, p: found)
    beats.track.main(midi, run, annotated, tmp_path / "out")
    rows = [line.split("\t") for line in (tmp_path / "out" / "piece.beats.txt").read_text().splitlines()]
    assert [kind for _, kind in rows[:5]] == ["b", "db", "b", "b", "db"]
    clicks = [message for message in mido.MidiFile(tmp_path / "out" / "piece.click.mid") if message.type == "note_on"]
    assert sum(message.channel == 9 for message in clicks) == 12
    assert (tmp_path / "out" / "piece.png").stat().st_size > 1000


@pytest.mark.parametrize("silent", [None, 7])
def test_a_pulse_and_its_bars_are_found_in_noise(beats: SimpleNamespace, silent: int | None) -> None:
    random, onset_N = np.random.default_rng(1), onsets(24)
    beat_N = np.arange(len(onset_N)) // 3
    p_N2 = np.where(np.arange(len(onset_N)) % 3 < 2, 0.9, 0.1)[:, None] * np.where(beat_N % BAR == 0, 0.8, 0.2)[
        :, None
    ] ** [0, 1]
    p_N2[beat_N == 4] = p_N2[beat_N == 5][::-1]  # a beat in the wrong place
    p_N2 = p_N2 * random.uniform(0.8, 1, p_N2.shape)
    kept_N = beat_N != silent
    found, downbeats = beats.decode.track(onset_N[kept_N], p_N2[kept_N])
    assert found == pytest.approx(BEAT * np.arange(24), abs=0.03)
    assert downbeats == pytest.approx(BEAT * np.arange(0, 24, BAR), abs=0.03)


def test_labels_and_changes(beats: SimpleNamespace, tmp_path: Path) -> None:
    write_arrays(tmp_path / "data.npz")
    performances = beats.data.read_arrays(tmp_path / "data.npz")
    assert performances[0].labels()[:12].tolist() == [2, 2, 0, 1, 1, 0, 1, 1, 0, 2, 2, 0]
    folds = [beats.data.split(performances, fold) for fold in range(5)]
    assert sorted(p.piece for _, held_out in folds for p in held_out) == [p.piece for p in performances]
    assert all(len(kept) == 4 for kept, _ in folds)
    notes, label_N = beats.data.augment(performances[0].notes, performances[0].labels(), np.random.default_rng(2))
    assert len(notes) == len(label_N) <= 36
    assert (np.diff(notes[:, 0]) >= 0).all()
    assert performances[0].notes[0, 2] == 60
