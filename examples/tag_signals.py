"""Tag the samples of a measured signal that exceed its first one, in rows of different length.

    python examples/tag_signals.py

The inputs are numbers of any scale, here a temperature in kelvin and a pressure in pascal; the encoder standardises
them. The threshold has to reach every other sample, at any distance. `riffle.collate` pads rows and gives their
lengths, and batches have rows of similar length, since a row costs the next power of two.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader

from riffle import Encoder, collate

Row = tuple[Tensor, Tensor]


def sample(rows: int, longest: int = 32) -> list[Row]:
    """Rows of samples with their tags, the longest last."""
    lengths = sorted(torch.randint(2, longest + 1, (rows,)).tolist())
    signals_N2 = [torch.tensor([290.0, 1e5]) + torch.tensor([5.0, 300.0]) * torch.randn(size, 2) for size in lengths]
    return [(x_N2, (x_N2[:, 0] > x_N2[0, 0]).long()) for x_N2 in signals_N2]


def batches(rows: list[Row], size: int = 32) -> DataLoader[Row]:
    """A loader of batches of similar lengths, in random order."""
    groups = [list(range(first, min(first + size, len(rows)))) for first in range(0, len(rows), size)]
    order = [groups[index] for index in torch.randperm(len(groups))]
    return DataLoader(rows, batch_sampler=order, collate_fn=collate)  # type: ignore[arg-type]


def main(steps: int = 300) -> float:
    """Train, and return the accuracy on new rows."""
    torch.manual_seed(1)
    model = Encoder(32, inputs=2, outputs=2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for step, (x_BNF, tags_BN, lengths) in enumerate(batches(sample(32 * steps))):
        loss = F.cross_entropy(model(x_BNF, lengths=lengths).flatten(0, 1), tags_BN.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.3f}")
    model.eval()
    right = tagged = 0
    with torch.no_grad():
        for x_BNF, tags_BN, lengths in batches(sample(1000)):
            mask_BN = tags_BN == -100  # what collate puts where a row has ended; a mask says the same as lengths
            right += int((model(x_BNF, key_padding_mask=mask_BN).argmax(2) == tags_BN).sum())
            tagged += sum(lengths)
    print(f"{right / tagged:.1%} of the samples of 1000 new rows tagged right")
    return right / tagged


if __name__ == "__main__":
    main()
