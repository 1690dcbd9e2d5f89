"""Classify sequences of different length: does the last token of a row equal its first?

    python examples/classify_rows.py

The answer depends on two cells that are as far apart as the row is long. The rows of a batch have 2 to 32 tokens, and
`lengths=` makes each independent of the padding behind it. `pool` says what the answer of a row is made of.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from riffle import Encoder

TOKENS, LONGEST = 8, 32


def sample(batch: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens, lengths and classes of random rows, half of which end as they begin."""
    tokens_BN = torch.randint(0, TOKENS, (batch, LONGEST), generator=generator)
    lengths_B = torch.randint(2, LONGEST + 1, (batch,), generator=generator)
    rows_B, last_B = torch.arange(batch), lengths_B - 1
    same_B = torch.rand(batch, generator=generator) < 0.5
    tokens_BN[rows_B, last_B] = torch.where(same_B, tokens_BN[:, 0], tokens_BN[rows_B, last_B])
    return tokens_BN, lengths_B, (tokens_BN[:, 0] == tokens_BN[rows_B, last_B]).long()


def main(steps: int = 400) -> float:
    """Train, and return the accuracy on new rows."""
    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(1)
    model = Encoder(32, symbols=TOKENS, outputs=2, pool="first")
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-3)
    for step in range(steps):
        tokens_BN, lengths_B, classes_B = sample(64, generator)
        loss = F.cross_entropy(model(tokens_BN, lengths_B), classes_B)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.3f}")
    model.eval()
    tokens_BN, lengths_B, classes_B = sample(1000, generator)
    with torch.no_grad():
        accuracy = (model(tokens_BN, lengths_B).argmax(1) == classes_B).float().mean().item()
    print(f"{accuracy:.1%} of 1000 new rows right")
    return accuracy


if __name__ == "__main__":
    main()
