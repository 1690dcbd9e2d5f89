"""Fine-tune a network of the package on a task that it never saw: from ascending to descending order.

    python examples/fine_tune.py

`riffle.load_trained` gives a network that comes with the package; here the one that sorts. A new network of the same
size, trained just as long, shows what the start is worth.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

import riffle
from riffle import SequenceModel

SYMBOLS = 12  # 0 is the blank


def sample(batch: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random symbols, and the same in descending order."""
    symbols_BN = torch.randint(1, SYMBOLS, (batch, length), generator=generator)
    return symbols_BN, symbols_BN.sort(dim=1, descending=True).values


def train(model: SequenceModel, steps: int) -> float:
    """Train a model at length 16, and return the share of symbols that it gets right there."""
    generator = torch.Generator().manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model.train()
    for step in range(steps):
        symbols_BN, sorted_BN = sample(16, 16, generator)
        loss = F.cross_entropy(model(symbols_BN).flatten(0, 1), sorted_BN.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step}: loss {loss.item():.3f}")
    model.eval()
    symbols_BN, sorted_BN = sample(200, 16, generator)
    with torch.no_grad():
        return (model(symbols_BN).argmax(2) == sorted_BN).float().mean().item()


def main(steps: int = 60) -> float:
    """Fine-tune, compare with a new network, and return the accuracy of the fine-tuned one."""
    torch.manual_seed(1)
    trained = riffle.load_trained("sort")
    fresh = SequenceModel(SYMBOLS, SYMBOLS, features=trained.network.features)
    tuned, new = train(trained, steps), train(fresh, steps)
    print(f"symbols right after {steps} steps: {tuned:.1%} fine-tuned, {new:.1%} by a new network")
    return tuned


if __name__ == "__main__":
    main()
