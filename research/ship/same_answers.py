"""Whether all shipped weights answer bit for bit as before on the CPU: ``python -m research.ship.same_answers FILE``.

The first run, with the code before a change, writes the answers to FILE; the next one compares.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor

from riffle.lambada.evaluate import TrainedReader, find_reader, read_question
from riffle.tasks import get_task
from riffle.train.shipped import SHIPPED, load_trained

PASSAGE = "Mirra gave Osha the key. At the gate Osha asked for it, and thanked ___"


@torch.inference_mode()
def answers() -> dict[str, Tensor]:
    """Scores of every shipped network for inputs of a fixed seed, and of the reader for a passage."""
    scores = {}
    for name in sorted(folder.name for folder in SHIPPED.iterdir() if folder.is_dir() and folder.name != "lambada"):
        model, task = load_trained(name), get_task(name)
        for length in (9, 64, 200):
            inputs = task.sample_inputs(4, length, generator=torch.Generator().manual_seed(length))
            scores[f"{name} {length}"] = model(inputs)
    probabilities = TrainedReader(find_reader(SHIPPED / "lambada")).next_word_probabilities(read_question(PASSAGE))
    return scores | {"lambada": torch.tensor(list(probabilities.values()))}


if __name__ == "__main__":
    path, now = Path(sys.argv[1]), answers()
    before = torch.load(path) if path.exists() else now
    torch.save(before, path)
    changed = [name for name in before if not torch.equal(before[name], now[name])]
    print(f"{len(before)} answers, {len(changed)} changed", *changed)
    sys.exit(bool(changed))
