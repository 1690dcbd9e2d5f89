"""The objective of runs on a file of text: the next byte from those before it."""

# S = steps, B = windows, N = bytes of a window
from __future__ import annotations

import math
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from riffle.config import MODELS, BaseModelConfig, TextRunConfig
from riffle.models.base import SymbolModel
from riffle.models.build import Alphabets, build
from riffle.tasks.task import BLANK
from riffle.train.distributed import SINGLE_PROCESS, RankGroup
from riffle.train.evaluate import count_correct_symbols, symbol_loss
from riffle.train.objective import CountCorrect, Examples, autocast

BYTES = 256
HELD_OUT = 20
"""One byte in this many, at the end of the file, is not trained on."""
EVALUATION_WINDOWS = 256
"""Windows of the held-out part that are tested, evenly spread over it."""


def encode(text: bytes) -> Tensor:
    """The symbols of a text, int64: its bytes, of which 0 is symbol 1.

    >>> encode(b"ab").tolist()
    [98, 99]
    """
    return torch.frombuffer(bytearray(text), dtype=torch.uint8).long() + 1


def decode(symbols: Tensor) -> bytes:
    """The bytes of symbols, without blanks."""
    return bytes(symbol - 1 for symbol in symbols.tolist() if symbol != BLANK)


class TextObjective:
    """Learn to predict each byte of windows of a text from the bytes before it in the window."""

    def __init__(
        self, config: TextRunConfig, folder: Path | None = None, device: Any = "cpu", ranks: RankGroup | None = None
    ) -> None:
        self.config, self.device, self.ranks = config, torch.device(device), ranks or SINGLE_PROCESS
        if len(config.data.bins) != 1:
            raise ValueError(f"data.bins must be one number of bytes where text is read, got {list(config.data.bins)}")
        if not MODELS[config.model.kind].causal:
            raise ValueError(f"only a causal model predicts the next byte, --model {config.model.kind} sees it")
        self.window = config.data.bins[0]

    def build(self, config: BaseModelConfig, **factory: Any) -> SymbolModel:
        """A model with initial weights."""
        return build(config, Alphabets(symbols=BYTES + 1, classes=BYTES + 1), **factory)

    @cached_property
    def parts(self) -> tuple[Tensor, Tensor]:
        """The bytes that are trained on and those held out, on the device."""
        file = Path(self.config.data.file)
        content = bytearray(file.read_bytes())
        held_out = len(content) // HELD_OUT
        if held_out <= self.window:
            raise ValueError(
                f"{file} has {len(content):,} bytes, too few to hold out more than {self.window}: "
                f"give at least {HELD_OUT * (self.window + 1):,}, or set a smaller data.bins"
            )
        text = torch.frombuffer(content, dtype=torch.uint8).to(self.device)
        return text[:-held_out], text[-held_out:]

    def draw(self, steps: int, generator: torch.Generator) -> Examples:
        """Random windows and the byte after each, ``[S, B, N + 1]``; every rank keeps its own of those of all."""
        text, rows = self.parts[0], self.config.data.batch * self.ranks.size
        shape, high = (steps, rows, 1), len(text) - self.window
        first = torch.randint(0, high, shape, generator=generator, device=generator.device)
        return (self.ranks.shard(text[first + torch.arange(self.window + 1, device=text.device)], dim=1),)

    def loss(self, model: SymbolModel, examples: Examples) -> tuple[Tensor, CountCorrect]:
        """The mean loss of all bytes of a batch of windows."""
        symbols_BN = examples[0].long() + 1
        with autocast(self.config.train.precision, symbols_BN.device):
            logits_BNC = model(symbols_BN[:, :-1])
        targets_BN = symbols_BN[:, 1:]
        loss = symbol_loss(logits_BNC, targets_BN, self.config.train.label_smoothing).mean()
        return loss, lambda: count_correct_symbols(logits_BNC.detach().argmax(dim=-1), targets_BN)

    def evaluate(self, model: SymbolModel) -> dict[str, float]:
        """How many held-out bytes are right, and as score the geometric mean of their probabilities."""
        nats, accuracy = self.held_out(model)
        return {"score": math.exp(-nats), "the end of the text": accuracy}

    def bits_per_byte(self, model: SymbolModel) -> float:
        """The mean information content of a byte of the held-out part."""
        return self.held_out(model)[0] / math.log(2)

    @torch.inference_mode()
    def held_out(self, model: SymbolModel) -> tuple[float, float]:
        """Mean loss and accuracy of the bytes of held-out windows."""
        was_training, text = model.training, self.parts[1]
        model.eval()
        count = min(EVALUATION_WINDOWS, len(text) // (self.window + 1))
        first = torch.linspace(0, len(text) - self.window - 1, count, device=text.device).long()
        windows_BN = text[first[:, None] + torch.arange(self.window + 1, device=text.device)].long() + 1
        loss, right, total = (torch.zeros((), dtype=torch.float64, device=text.device) for _ in range(3))
        for batch_BN in windows_BN.split(self.config.data.batch):
            with autocast(self.config.train.precision, text.device):
                logits_BNC = model(batch_BN[:, :-1])
            loss += symbol_loss(logits_BNC, batch_BN[:, 1:]).sum()
            right += (logits_BNC.argmax(-1) == batch_BN[:, 1:]).sum()
            total += batch_BN[:, 1:].numel()
        model.train(was_training)
        return float(loss / total), float(right / total)
