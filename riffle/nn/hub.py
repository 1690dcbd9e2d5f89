"""To a folder or the Hugging Face Hub and back: safetensors only, nothing missing, nothing left over."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from huggingface_hub import ModelCard, PyTorchModelHubMixin

PAPER = "https://papers.nips.cc/paper/8889-neural-shuffle-exchange-networks-sequence-processing-in-on-log-n-time"
MODEL_CARD = """---
{{ card_data }}
---

A neural shuffle-exchange network ([the paper]({{ paper_url }})), for the PyTorch library riffle. After
`pip install riffle-nn`:

    from riffle import {{ kind }}
    model = {{ kind }}.from_pretrained("this repository's name")
"""


class HubMixin(PyTorchModelHubMixin, model_card_template=MODEL_CARD, paper_url=PAPER):
    """``save_pretrained``, ``from_pretrained`` and ``push_to_hub`` for our modules."""

    def generate_model_card(self, *args: Any, **kwargs: Any) -> ModelCard:
        """The card that is saved beside the weights, README.md."""
        return super().generate_model_card(*args, **kwargs, kind=type(self).__name__)

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | Path,
        *,
        strict: bool = True,
        device: Any = None,
        dtype: Any = None,
        **kwargs: Any,
    ) -> Self:
        """The module that ``save_pretrained`` wrote to a folder or a Hub repository, in evaluation mode.

        Args:
            pretrained_model_name_or_path: The folder, or the repository's name.
            strict: Whether weights that are missing or left over are an error.
            device: Where to put the module, whatever device it was saved from.
            dtype: What to convert the weights to, torch's default where None.
            **kwargs: See ``huggingface_hub.ModelHubMixin.from_pretrained``.
        """
        return super().from_pretrained(
            pretrained_model_name_or_path, strict=strict, device=device, dtype=dtype, **kwargs
        )

    @classmethod
    def _load_as_pickle(cls, model: Any, model_file: str, map_location: str, strict: bool) -> Any:
        raise ValueError(f"{model_file} is a pickle, which could run any code: only safetensors are loaded")
