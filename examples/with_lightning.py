"""An encoder inside a LightningModule.

    pip install lightning
    python examples/with_lightning.py

The task: tag the tokens of a row that equal its first one, which has to reach every other cell.
"""

from __future__ import annotations

import lightning
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from riffle import Encoder

TOKENS, LENGTH = 4, 16


class Tagger(lightning.LightningModule):
    """An encoder, and how it is trained."""

    def __init__(self, features: int = 32) -> None:
        super().__init__()
        self.encoder = Encoder(features, symbols=TOKENS, outputs=2)

    def forward(self, tokens_BN: Tensor) -> Tensor:
        """Scores of the two tags of every token, [B, N, 2]."""
        return self.encoder(tokens_BN)

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        """The loss of a batch."""
        tokens_BN, tags_BN = batch
        return F.cross_entropy(self(tokens_BN).flatten(0, 1), tags_BN.flatten())

    def validation_step(self, batch: tuple[Tensor, Tensor], index: int) -> None:
        """Log the share of right tags."""
        tokens_BN, tags_BN = batch
        self.log("accuracy", (self(tokens_BN).argmax(2) == tags_BN).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW."""
        return torch.optim.AdamW(self.parameters(), lr=6e-3)


def rows(number: int) -> DataLoader[tuple[Tensor, ...]]:
    """Random rows and their tags."""
    tokens_RN = torch.randint(0, TOKENS, (number, LENGTH))
    return DataLoader(TensorDataset(tokens_RN, (tokens_RN == tokens_RN[:, :1]).long()), batch_size=32)


def main(steps: int = 300) -> float:
    """Train, and return the accuracy on new rows."""
    lightning.seed_everything(1, verbose=False)
    trainer = lightning.Trainer(
        max_steps=steps,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Tagger()
    trainer.fit(model, rows(32 * steps))
    (result,) = trainer.validate(model, rows(320), verbose=False)
    print(f"{result['accuracy']:.1%} of the tags right")
    return result["accuracy"]


if __name__ == "__main__":
    main()
