"""Padded batches: an attention mask, a key-padding mask and `lengths=` say the same.

    python examples/mask_to_lengths.py

Tokenizers give an `attention_mask` with 1 for tokens; attention layers of torch take a `key_padding_mask` with True for
padding; the network takes either the latter or the lengths. Padding must follow the tokens (`padding_side="right"`),
since a cell's address decides which cells it meets.
"""

from __future__ import annotations

import torch

from riffle import ShuffleExchange


def main() -> float:
    """Run the same batch three times, and return the largest difference."""
    torch.manual_seed(1)
    net = ShuffleExchange(16).eval()
    attention_mask_BN = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0]])
    x_BND = torch.rand(3, 6, 16)
    with torch.no_grad():
        by_mask_BND = net(x_BND, key_padding_mask=attention_mask_BN == 0)
        by_lengths_BND = net(x_BND, lengths=attention_mask_BN.sum(dim=1))
        alone_1ND = net(x_BND[1:2, :3])
    print("row 1 in the batch and alone:", torch.allclose(by_mask_BND[1, :3], alone_1ND[0], atol=1e-6))
    print(
        "padding, and the row without tokens, come out as zeros:",
        not by_mask_BND[1, 3:].any(),
        not by_mask_BND[2].any(),
    )
    try:
        net(x_BND, key_padding_mask=attention_mask_BN.flip(1) == 0)
    except ValueError as error:
        print("left padding:", error)
    return (by_mask_BND - by_lengths_BND).abs().max().item()


if __name__ == "__main__":
    main()
