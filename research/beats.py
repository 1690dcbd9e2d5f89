"""Rivals of examples/beats, and many trainings at once on one device: ``python -m research.beats --help``.

A rival has the inputs, the first and the last layer, the loss and the training of the example's network, and as many
weights. A job is a kind of model and what is not as in the example: ``"gru fold=1 rate=1e-3"``, ``window=512``. For
each one a JSON file has what was trained and how fast, an .npz file the probabilities of the notes held out, in bytes.
"""

# B = batch, N = notes, D = features, H = heads, K = notes of a chunk
from __future__ import annotations

import json
import multiprocessing
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import typer
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from research.baselines.transformers import apply_rotary, rotary_angles
from riffle.nn.switch import UNITS

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "beats"))

import data as beats_data
import train as beats_train

HEAD, FURTHER = 48, 8
"""Features of an attention head, and those for the mask."""


class Body(nn.Module):
    """What takes the place of the shuffle-exchange network in an encoder."""

    def forward(self, x_BND: Tensor, lengths: list[int], *_: Any, **__: Any) -> Tensor:
        """Cells of the same shape; those past the end of a row do not matter."""
        place_N, length_B = torch.arange(x_BND.shape[1]), torch.tensor(lengths)
        inside_BN = (place_N < length_B[:, None]).to(x_BND.device)
        return self.run(x_BND * inside_BN[..., None], inside_BN, lengths)

    def run(self, x_BND: Tensor, inside_BN: Tensor, lengths: list[int]) -> Tensor:
        """The same for cells that are zeros past the end of a row."""
        raise NotImplementedError


class Recurrent(Body):
    """Three layers of cuDNN in both directions."""

    def __init__(self, kind: type[nn.GRU] | type[nn.LSTM], features: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.layers = kind(features, hidden, 3, batch_first=True, bidirectional=True, dropout=dropout)
        self.out = nn.Linear(2 * hidden, features)

    def run(self, x_BND: Tensor, inside_BN: Tensor, lengths: list[int]) -> Tensor:
        packed = pack_padded_sequence(x_BND, torch.tensor(lengths), batch_first=True, enforce_sorted=False)
        return self.out(pad_packed_sequence(self.layers(packed)[0], batch_first=True, total_length=x_BND.shape[1])[0])


class Convolutions(Body):
    """Residual layers of dilated convolutions, the widest of which reach 512 notes to both sides."""

    def __init__(self, features: int, layers: int, dropout: float) -> None:
        super().__init__()
        dilations = [2 ** (layer % 10) for layer in range(layers)]
        self.norms = nn.ModuleList(nn.LayerNorm(features) for _ in dilations)
        self.near = nn.ModuleList(nn.Conv1d(features, features, 3, padding=d, dilation=d) for d in dilations)
        self.mix = nn.ModuleList(nn.Linear(features, features) for _ in dilations)
        self.dropout, self.norm = nn.Dropout(dropout), nn.LayerNorm(features)

    def run(self, x_BND: Tensor, inside_BN: Tensor, lengths: list[int]) -> Tensor:
        for norm, near, mix in zip(self.norms, self.near, self.mix, strict=True):
            y_BND = near((norm(x_BND) * inside_BN[..., None]).mT).mT
            x_BND = x_BND + self.dropout(mix(F.gelu(y_BND)))
        return self.norm(x_BND)


class Attention(nn.Module):
    """Attention of a row's notes to each other with rotary positions, by FlashAttention on a GPU.

    That takes no mask. So each head has further features, by which notes past the end of a row score next to nothing.
    """

    def __init__(self, features: int) -> None:
        super().__init__()
        self.into = nn.Linear(features, 3 * features, bias=False)

    def forward(self, x_BND: Tensor, inside_BN: Tensor) -> Tensor:
        """What each note attends to."""
        heads = self.into(x_BND).unflatten(-1, (3, -1, HEAD)).transpose(1, 3).unbind(2)
        rotation = rotary_angles(x_BND.shape[1], HEAD, x_BND.device)
        query, key = (F.pad(apply_rotary(part, rotation), (0, FURTHER), value=1) for part in heads[:2])
        key[..., HEAD:] = torch.where(inside_BN[:, None, :, None], 0, -1e3)
        value = F.pad(heads[2], (0, FURTHER))
        result = F.scaled_dot_product_attention(query, key, value, scale=HEAD**-0.5)
        return result[..., :HEAD].transpose(1, 2).flatten(2)


class LinearAttention(nn.Module):
    """Gated linear attention, half of the heads from left to right and half from right to left, in chunks.

    A head's state S fades by a gate of each note: S = exp(-g) S + key value. Its answer is query S.
    """

    def __init__(self, features: int, chunk: int = 64) -> None:
        super().__init__()
        self.heads, self.chunk = features // HEAD, chunk
        self.into, self.gate = nn.Linear(features, 4 * features, bias=False), nn.Linear(features, self.heads)
        self.norm = nn.LayerNorm(HEAD)

    def forward(self, x_BND: Tensor, inside_BN: Tensor) -> Tensor:
        """The answers of both directions, gated."""
        length, half = x_BND.shape[1], self.heads // 2
        *parts, out_BND = self.into(x_BND).chunk(4, dim=-1)
        fade_BHN = F.logsigmoid(self.gate(x_BND).float() + 3).masked_fill(~inside_BN[..., None], 0).mT
        heads = [(p * inside_BN[..., None]).unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in parts]
        both = [torch.cat([p[:, :half], p[:, half:].flip(2)], 1) for p in (*heads, fade_BHN[..., None])]
        query, key, value, fade = (
            F.pad(p, (0, 0, 0, -length % self.chunk)).unflatten(2, (-1, self.chunk)) for p in both
        )
        fade = fade.squeeze(-1).cumsum(-1)  # [B, H, chunks, K]: how far all before has faded within its chunk
        later = torch.ones(self.chunk, self.chunk, dtype=torch.bool, device=x_BND.device).tril()
        weight = torch.exp((fade[..., :, None] - fade[..., None, :]).masked_fill(~later, -torch.inf)).to(query.dtype)
        near = (query @ key.mT * weight) @ value
        added = (key * torch.exp(fade[..., -1:] - fade)[..., None].to(key.dtype)).mT @ value
        state, states = torch.zeros_like(added[:, :, 0]), []
        for new, kept in zip(added.unbind(2), fade[..., -1].exp().to(key.dtype).unbind(2), strict=True):
            states.append(state)
            state = kept[..., None, None] * state + new
        far = (query * fade.exp()[..., None].to(query.dtype)) @ torch.stack(states, 2)
        y = self.norm((near + far).flatten(2, 3)[:, :, :length])
        y = torch.cat([y[:, :half], y[:, half:].flip(2)], 1).transpose(1, 2).flatten(2)
        return y * F.silu(out_BND)


class Layer(nn.Module):
    """An attention and a feed-forward part, which add to what they read, normalised."""

    def __init__(self, kind: type[nn.Module], features: int, dropout: float) -> None:
        super().__init__()
        self.before, self.attention, self.after = nn.LayerNorm(features), kind(features), nn.LayerNorm(features)
        self.out = nn.Linear(features, features, bias=False)
        self.wide, self.narrow = nn.Linear(features, 4 * features), nn.Linear(4 * features, features)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_BND: Tensor, inside_BN: Tensor) -> Tensor:
        """Both parts added."""
        x_BND = x_BND + self.dropout(self.out(self.attention(self.before(x_BND), inside_BN)))
        return x_BND + self.dropout(self.narrow(F.gelu(self.wide(self.after(x_BND)))))


class Residual(Body):
    """Layers of attention."""

    def __init__(self, kind: type[nn.Module], features: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(kind, features, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(features)

    def run(self, x_BND: Tensor, inside_BN: Tensor, lengths: list[int]) -> Tensor:
        for layer in self.layers:
            x_BND = layer(x_BND, inside_BN)
        return self.norm(x_BND)


def build(kind: str, features: int = 192, dropout: float = 0.1, compiled: int = 0, **options: Any) -> nn.Module:
    """An encoder of about three million weights, where ``features`` are 192: riffle's, or with a rival's body."""
    if kind in UNITS:
        return beats_train.network(features, unit=kind, dropout=dropout, **options)
    encoder = beats_train.network(features)
    bodies: dict[str, Callable[[], Body]] = {
        "gru": lambda: Recurrent(nn.GRU, features, features * 31 // 24, dropout),
        "lstm": lambda: Recurrent(nn.LSTM, features, features * 10 // 9, dropout),
        "convolutions": lambda: Convolutions(features, 20, dropout),
        "transformer": lambda: Residual(Attention, features, 7, dropout),
        "linear": lambda: Residual(LinearAttention, features, 6, dropout),
    }
    encoder.network = bodies[kind]()  # type: ignore[assignment]
    if compiled:
        encoder.network.compile(dynamic=True)
    return encoder


def run(job: str, data: Path, out: Path, end: float) -> dict[str, Any]:
    """Train what a job names, and write what it says of the pieces held out."""
    torch.set_num_threads(1)
    kind, *settings = job.split()
    spec = {name: json.loads(value) for name, value in (setting.split("=") for setting in settings)}
    options = {name: spec.pop(name) for name in ("rate", "epochs", "notes", "seed") if name in spec}
    fold, augment, place = spec.pop("fold", 0), spec.pop("augment", 1), spec.pop("place", 0)
    most, hidden, trained = spec.pop("seconds", 1e9), range(*spec.pop("without", [0])), 0

    def change(notes: np.ndarray, label_N: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        nonlocal trained
        notes, label_N = beats_data.augment(notes, label_N, random) if augment else (notes, label_N)
        trained += len(notes)
        room = (1 << (len(notes) - 1).bit_length()) - len(notes)
        blank = int(random.integers(room + 1)) if place else 0
        return np.pad(notes, ((blank, 0), (0, 0))), np.pad(label_N, (blank, 0), constant_values=-100)

    performances = beats_data.read_arrays(data)
    if size := spec.pop("window", 0):
        windows = ((p, p.notes[first : first + size]) for p in performances for first in range(0, len(p.notes), size))
        performances = [replace(performance, notes=notes) for performance, notes in windows]
    inside, outside = beats_data.split(performances, fold)
    torch.manual_seed(options.get("seed", 0))
    model = build(kind, **spec).to(beats_train.DEVICE)
    hide = torch.tensor(hidden, dtype=torch.long, device=beats_train.DEVICE)
    model.register_forward_pre_hook(lambda _, inputs: (inputs[0].index_fill(2, hide, 0), *inputs[1:]))
    times = [time.time()]
    if end - times[0] < 12:
        return {"job": job, "left out": True}
    beats_train.train(model, inside, seconds=min(most, end - times[0]), change=change, **options)
    times.append(time.time())
    p_N2 = np.concatenate(beats_train.probabilities(model, outside))
    times.append(time.time())
    found_N2, true_N2 = p_N2 > 0.5, np.concatenate([p.labels() for p in outside])[:, None] > [0, 1]
    record = {
        "job": job,
        "weights": sum(weight.numel() for weight in model.parameters()),
        "seconds of training and predicting": np.diff(times).tolist(),
        "notes": trained,
        "note F1": (2 * (found_N2 & true_N2).sum(0) / (found_N2.sum(0) + true_N2.sum(0))).tolist(),
    }
    path = f"{out}/{job.replace(' ', '_').replace('=', '-')}"
    Path(f"{path}.json").write_text(json.dumps(record))
    np.savez_compressed(f"{path}.npz", p=(p_N2 * 255).round().astype(np.uint8))
    return record


def main(
    jobs: list[str], data: beats_train.Given, out: beats_train.Given, at_once: int = 1, seconds: float = 1e9
) -> None:
    """Train all jobs, several at once; what the seconds do not suffice for ends early or is left out."""
    out.mkdir(parents=True, exist_ok=True)
    end = time.time() + seconds
    with ProcessPoolExecutor(at_once, multiprocessing.get_context("spawn")) as pool:
        for done in as_completed([pool.submit(run, job, data, out, end) for job in jobs]):
            print(done.exception() or json.dumps(done.result()), flush=True)


if __name__ == "__main__":
    typer.run(main)
