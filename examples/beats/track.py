"""Find the beats of a piano performance: as text, as the MIDI file with a click track, and as a picture.

    python examples/beats/track.py piece.mid --run RUN [--beats FILE] [--out FOLDER]

RUN is a run of train.py, FILE a text with what is annotated, as ASAP has it: seconds, ..., "b" or "db" in each line.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import mido
import numpy as np
import typer
from data import Performance
from decode import track
from train import Given, probabilities

import riffle


def timed(path: Path) -> list[tuple[float, mido.Message]]:
    """The messages of a MIDI file and when they come, in seconds."""
    messages = list(mido.MidiFile(path))
    return list(zip(np.cumsum([message.time for message in messages]).tolist(), messages, strict=True))


def read_midi(path: Path, annotation: Path | None) -> Performance:
    """The notes of a MIDI file, and the beats of a text."""
    notes, sounding = [], dict[tuple[int, int], tuple[float, int]]()
    for now, message in timed(path):
        if message.type in ("note_on", "note_off"):
            key = message.channel, message.note
            if key in sounding:
                onset, velocity = sounding.pop(key)
                notes.append((onset, now - onset, message.note, velocity))
            if message.type == "note_on" and message.velocity:
                sounding[key] = now, message.velocity
    if not notes:
        raise ValueError(f"{path} has no notes: give a MIDI file of a performance")
    lines = [line.split("\t") for line in annotation.read_text().splitlines()] if annotation else []
    beats, downbeats = ([float(line[0]) for line in lines if line[-1].startswith(kind)] for kind in (("b", "db"), "db"))
    return Performance(path.stem, np.array(sorted(notes), np.float32), np.array(beats), np.array(downbeats))


def click_track(source: Path, beats: np.ndarray, downbeats: np.ndarray) -> mido.MidiFile:
    """A MIDI file at one tempo with a track of wood blocks, high ones for downbeats."""
    music, clicks = [(time, message) for time, message in timed(source) if message.type != "set_tempo"], []
    for time in beats:
        drum = {"channel": 9, "note": 76 if time in downbeats else 77, "velocity": 100}
        clicks += [(time, mido.Message("note_on", **drum)), (time + 0.05, mido.Message("note_off", **drum))]
    file = mido.MidiFile(ticks_per_beat=480)  # so that a second has 960, at 120 beats a minute
    for events in (music, clicks):
        steps = np.diff([round(time * 960) for time, _ in events], prepend=0).tolist()
        file.tracks.append(mido.MidiTrack(m.copy(time=step) for (_, m), step in zip(events, steps, strict=True)))
    return file


def draw(performance: Performance, beats: np.ndarray, downbeats: np.ndarray, seconds: float = 30) -> plt.Figure:
    """The first notes as a piano roll, beats that were found as lines, annotated ones as marks."""
    figure, axes = plt.subplots(figsize=(12, 4), layout="constrained")
    start_N, long_N, pitch_N, loud_N = performance.notes[performance.notes[:, 0] < performance.notes[0, 0] + seconds].T
    axes.barh(pitch_N, long_N, 0.9, start_N, color=plt.get_cmap("Greys")(0.3 + loud_N / 180))
    for found, true, width, mark in ((beats, performance.beats, 0.6, "|"), (downbeats, performance.downbeats, 2, "^")):
        axes.vlines(found, pitch_N.min() - 1, pitch_N.max() + 1, color="tab:blue", linewidth=width)
        axes.plot(true, np.full(len(true), pitch_N.min() - 2), mark, color="tab:red")
    axes.set(xlim=(start_N[0] - 0.5, start_N[0] + seconds), xlabel="seconds", ylabel="pitch")
    axes.set_title(f"{performance.piece}: beats found (blue), annotated (red)")
    return figure


def main(midi: Path, run: Given, beats: Path | None = None, out: Path = Path()) -> None:
    """Write NAME.beats.txt (seconds and b or db), NAME.click.mid and NAME.png for the MIDI file NAME.mid."""
    performance, name = read_midi(midi, beats), str(out / midi.stem)
    found = track(performance.notes[:, 0], *probabilities(riffle.Encoder.from_pretrained(run), [performance]))
    out.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{time:.3f}\t{'db' if time in found[1] else 'b'}\n" for time in found[0])
    Path(f"{name}.beats.txt").write_text(text)
    click_track(midi, *found).save(f"{name}.click.mid")
    draw(performance, *found).savefig(f"{name}.png", dpi=120)
    print(f"{len(found[0])} beats, {len(found[1])} of them downbeats: {name}.beats.txt, .click.mid, .png")


if __name__ == "__main__":
    typer.run(main)
