"""The network inside a Hugging Face model, trained by `transformers.Trainer`.

    pip install transformers accelerate
    python examples/with_transformers.py

A `PreTrainedModel` is saved, loaded and pushed like any other. `post_init()` draws the layers of the model anew and
leaves the network's own initialisation alone. The task: tag the tokens of a row that equal its first one.
"""

from __future__ import annotations

import tempfile
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments

from riffle import ShuffleExchange


class TaggerConfig(PretrainedConfig):
    """Sizes of the model."""

    model_type = "riffle-tagger"

    def __init__(self, tokens: int = 4, features: int = 32, tags: int = 2, **kwargs: Any) -> None:
        self.tokens, self.features, self.tags = tokens, features, tags
        super().__init__(**kwargs)


class Tagger(PreTrainedModel):
    """Embedding, network, output layer."""

    config_class = TaggerConfig

    def __init__(self, config: TaggerConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(config.tokens, config.features)
        self.network = ShuffleExchange(config.features)
        self.output = nn.Linear(config.features, config.tags)
        self.post_init()

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        """Scores of every token, and the loss where labels are given; padding is on the right."""
        cells_BND = torch.tanh(30 * self.embedding(input_ids))  # drawn from N(0, 0.02); cells lie between -1 and 1
        logits_BNT = self.output(self.network(cells_BND, key_padding_mask=attention_mask == 0))
        if labels is None:
            return {"logits": logits_BNT}
        return {"loss": F.cross_entropy(logits_BNT.flatten(0, 1), labels.flatten()), "logits": logits_BNT}


def sample(rows: int) -> list[dict[str, Tensor]]:
    """Rows of 9 to 16 tokens, padded to 16; labels of padding are ignored."""
    tokens_RN, lengths_R = torch.randint(0, 4, (rows, 16)), torch.randint(9, 17, (rows, 1))
    mask_RN = torch.arange(16) < lengths_R
    labels_RN = torch.where(mask_RN, tokens_RN == tokens_RN[:, :1], -100).long()
    columns = zip(tokens_RN, mask_RN.long(), labels_RN, strict=True)
    return [{"input_ids": ids, "attention_mask": mask, "labels": labels} for ids, mask, labels in columns]


def main(steps: int = 400) -> float:
    """Train, and return the loss on new rows."""
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as folder:
        options = {"max_steps": steps, "learning_rate": 6e-3, "lr_scheduler_type": "constant", "report_to": "none"}
        options |= {"per_device_train_batch_size": 32, "save_strategy": "no", "dataloader_pin_memory": False}
        arguments = TrainingArguments(folder, **options, use_cpu=True, disable_tqdm=True)
        trainer = Trainer(Tagger(TaggerConfig()), arguments, train_dataset=sample(32 * steps), eval_dataset=sample(200))
        trainer.train()
        loss = float(trainer.evaluate()["eval_loss"])
    print(f"loss on new rows: {loss:.4f}")
    return loss


if __name__ == "__main__":
    main()
