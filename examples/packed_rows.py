"""Rows of different length in every form: padded with lengths or a mask, and packed one after the other.

    python examples/packed_rows.py

Tokenizers give an `attention_mask` with 1 for tokens; attention layers of torch take a `key_padding_mask` with True
for padding, which encoders call `src_key_padding_mask`; attention on packed rows takes `cu_seqlens`. All say the
same. Padding must follow the cells of a row (`padding_side="right"`), since a cell's address decides which cells it
meets.
"""

from __future__ import annotations

import torch

from riffle import ShuffleExchange


def main() -> float:
    """Run the same rows in each form, and return the largest difference."""
    torch.manual_seed(1)
    net = ShuffleExchange(16).eval()
    attention_mask_BN = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0]])
    x_BND, is_cell_BN = torch.rand(3, 6, 16), attention_mask_BN == 1
    starts = torch.tensor([0, 6, 9, 9])  # where the rows begin in the packed cells, and how many cells there are
    packed_CD = x_BND[is_cell_BN]
    nested = torch.nested.nested_tensor_from_jagged(packed_CD, starts)
    with torch.no_grad():
        by_lengths_BND = net(x_BND, lengths=attention_mask_BN.sum(dim=1))
        results_CD = {
            "key_padding_mask": net(x_BND, key_padding_mask=~is_cell_BN)[is_cell_BN],
            "cu_seqlens": net(packed_CD, cu_seqlens=starts),
            "nested tensor": net(nested).values(),
            "one by one": torch.cat([net(x_BND[:1])[0], net(x_BND[1:2, :3])[0]]),
        }
    print("padding, and the row without cells, come out as zeros:", not by_lengths_BND[~is_cell_BN].any())
    differences = {how: (y_CD - by_lengths_BND[is_cell_BN]).abs().max().item() for how, y_CD in results_CD.items()}
    for how, difference in differences.items():
        print(f"{how}: differs from lengths by {difference:.1e}")
    try:
        net(x_BND, key_padding_mask=~is_cell_BN.flip(1))
    except ValueError as error:
        print("left padding:", error)
    return max(differences.values())


if __name__ == "__main__":
    main()
