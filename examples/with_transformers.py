"""An encoder inside a Hugging Face model, trained by `transformers.Trainer` on rows of different length.

    pip install transformers accelerate
    python examples/with_transformers.py

Rows of similar length are batched together, and the collator gives lengths. The task: tag the tokens of a row that
equal its first one.
"""

from __future__ import annotations

import tempfile
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments

from riffle import Encoder, collate


class TaggerConfig(PretrainedConfig):
    """Sizes of the model."""

    model_type = "riffle-tagger"

    def __init__(self, tokens: int = 4, features: int = 32, tags: int = 2, **kwargs: Any) -> None:
        self.tokens, self.features, self.tags = tokens, features, tags
        super().__init__(**kwargs)


class Tagger(PreTrainedModel):
    """The encoder and its loss."""

    config_class = TaggerConfig

    def __init__(self, config: TaggerConfig) -> None:
        super().__init__(config)
        self.encoder = Encoder(config.features, symbols=config.tokens, outputs=config.tags)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None: ...  # where post_init() would draw them otherwise

    def forward(self, input_ids: Tensor, lengths: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        """Scores of every token, and the loss where labels are given."""
        logits_BNT = self.encoder(input_ids, lengths)  # with an attention_mask: key_padding_mask=attention_mask == 0
        loss = {} if labels is None else {"loss": F.cross_entropy(logits_BNT.mT, labels)}
        return loss | {"logits": logits_BNT}


def sample(rows: int) -> list[dict[str, Tensor]]:
    """Rows of 9 to 16 tokens with their labels."""
    rows_N = [torch.randint(0, 4, (int(torch.randint(9, 17, ())),)) for _ in range(rows)]
    return [{"input_ids": tokens_N, "labels": (tokens_N == tokens_N[0]).long()} for tokens_N in rows_N]


def pad(rows: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """A batch of rows; labels of padding are ignored."""
    input_ids, labels, lengths = collate([(row["input_ids"], row["labels"]) for row in rows])
    return {"input_ids": input_ids, "labels": labels, "lengths": torch.tensor(lengths)}


def main(steps: int = 400) -> float:
    """Train, and return the loss on new rows."""
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as folder:
        options = {"max_steps": steps, "learning_rate": 6e-3, "lr_scheduler_type": "constant", "report_to": "none"}
        options |= {"per_device_train_batch_size": 32, "save_strategy": "no", "dataloader_pin_memory": False}
        options |= {"train_sampling_strategy": "group_by_length"}
        arguments = TrainingArguments(folder, **options, use_cpu=True, disable_tqdm=True)
        trainer = Trainer(Tagger(TaggerConfig()), arguments, pad, sample(32 * steps), sample(200))
        trainer.train()
        loss = float(trainer.evaluate()["eval_loss"])
    print(f"loss on new rows: {loss:.4f}")
    return loss


if __name__ == "__main__":
    main()
