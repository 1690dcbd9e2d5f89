"""Tag the tokens of a row that equal its first one, such as the later mentions of a name.

    python examples/tag_tokens.py

The first token has to reach every other cell, at any distance. Training sees rows of 16 tokens; the same weights then
tag rows of 128, since only the length decides how often a layer is applied.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from riffle import ShuffleExchange

TOKENS = 4


class Tagger(nn.Module):
    """Tokens to cells, the network, and a tag from every cell."""

    def __init__(self, features: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, features)
        nn.init.uniform_(self.embedding.weight, -1, 1)  # the network's cells lie between -1 and 1
        self.network = ShuffleExchange(features)
        self.output = nn.Linear(features, 2)

    def forward(self, tokens_BN: Tensor) -> Tensor:
        """Scores of the two tags of every token, [B, N, 2]."""
        return self.output(self.network(self.embedding(tokens_BN)))


def sample(batch: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random tokens, and whether each equals the first of its row."""
    tokens_BN = torch.randint(0, TOKENS, (batch, length), generator=generator)
    return tokens_BN, (tokens_BN == tokens_BN[:, :1]).long()


def main(steps: int = 300) -> float:
    """Train, and return the accuracy on new rows of the trained length."""
    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(1)
    model = Tagger()
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-3)
    for step in range(steps):
        tokens_BN, tags_BN = sample(32, 16, generator)
        loss = F.cross_entropy(model(tokens_BN).flatten(0, 1), tags_BN.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.3f}")
    model.eval()
    accuracies = []
    for length in (16, 128):
        tokens_BN, tags_BN = sample(100, length, generator)
        with torch.no_grad():
            accuracies.append((model(tokens_BN).argmax(2) == tags_BN).float().mean().item())
        print(f"length {length}: {accuracies[-1]:.1%} of the tags right")
    return accuracies[0]


if __name__ == "__main__":
    main()
