"""Export a model to one ONNX file for all lengths, with and without a mask, and run it in onnxruntime, without torch.

    pip install 'riffle-nn[export]' onnxruntime
    python examples/export_onnx.py

`riffle export RUN` does the same for a run of the command line. A model of your own with `ShuffleExchange` inside is
exported alike; what `torch.onnx.export` writes by itself serves the lengths of one power of two.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import onnxruntime
import torch

import riffle

LENGTHS = (1, 2, 7, 64, 65, 1000, 1025, 20_000)


def main() -> float:
    """Export, run in both, and return the largest difference of the scores."""
    torch.manual_seed(1)
    model = riffle.Encoder(8, symbols=100, outputs=5).eval()
    tokens_BN, lengths_B = torch.zeros(2, 4, dtype=torch.int64), torch.tensor([4, 3])
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tagger.onnx"
        riffle.export_onnx(model, (tokens_BN, lengths_B), file, input_names=["tokens", "lengths"])
        print(f"{file.name}: {file.stat().st_size / 1e3:.0f} kB for all lengths")
        session = onnxruntime.InferenceSession(file.read_bytes(), providers=["CPUExecutionProvider"])
    worst = 0.0
    for length in LENGTHS:
        for lengths in ([length], [length, length // 2, 0]):
            tokens_BN, lengths_B = torch.randint(100, (len(lengths), length)), torch.tensor(lengths)
            (scores_BNT,) = session.run(None, {"tokens": tokens_BN.numpy(), "lengths": lengths_B.numpy()})
            with torch.no_grad():
                exact_BNT = model(tokens_BN, lengths_B) if len(lengths) > 1 else model(tokens_BN)
            difference = (exact_BNT - torch.from_numpy(scores_BNT)).abs().max().item()
            print(f"{len(lengths)} rows of up to {length} tokens: scores differ by at most {difference:.1e}")
            worst = max(worst, difference)
    return worst


if __name__ == "__main__":
    main()
