"""Export a model with the network inside to ONNX, and run it without torch in onnxruntime.

    pip install 'riffle-nn[export]' onnxruntime
    python examples/export_onnx.py

The length decides the number of layers, so a file serves the lengths of one power of two, here 17 to 32, and any batch.
`riffle export RUN` does the same for a run of the command line.
"""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

import onnxruntime
import torch
from torch import Tensor, nn
from torch.export import Dim

from riffle import ShuffleExchange

SHORTEST, LONGEST = 17, 32


class Tagger(nn.Module):
    """Tokens to cells, the network, and scores from every cell."""

    def __init__(self, tokens: int = 100, features: int = 32, tags: int = 5) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, features)
        nn.init.uniform_(self.embedding.weight, -1, 1)
        self.network = ShuffleExchange(features)
        self.output = nn.Linear(features, tags)

    def forward(self, tokens_BN: Tensor) -> Tensor:
        """Scores, [B, N, tags]."""
        return self.output(self.network(self.embedding(tokens_BN)))


def main() -> float:
    """Export, run in both, and return the largest difference of the scores."""
    torch.manual_seed(1)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    model = Tagger().eval()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tagger.onnx"
        example_BN = torch.zeros(2, LONGEST, dtype=torch.int64)
        free = {0: Dim("batch", min=1, max=1024), 1: Dim("length", min=SHORTEST, max=LONGEST)}
        torch.onnx.export(
            model,
            (example_BN,),
            file,
            dynamo=True,
            input_names=["tokens"],
            output_names=["scores"],
            dynamic_shapes={"tokens_BN": free},
            external_data=False,
            verbose=False,
        )
        session = onnxruntime.InferenceSession(file.read_bytes(), providers=["CPUExecutionProvider"])
    worst = 0.0
    for batch, length in ((7, SHORTEST), (1, 25), (3, LONGEST)):
        tokens_BN = torch.randint(0, 100, (batch, length))
        (scores_BNT,) = session.run(None, {"tokens": tokens_BN.numpy()})
        with torch.no_grad():
            difference = (model(tokens_BN) - torch.from_numpy(scores_BNT)).abs().max().item()
        print(f"{batch} rows of {length} tokens: scores differ by at most {difference:.1e}")
        worst = max(worst, difference)
    return worst


if __name__ == "__main__":
    main()
