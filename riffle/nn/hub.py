"""To a folder or the Hugging Face Hub and back: safetensors only, nothing missing, nothing left over."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from huggingface_hub import PyTorchModelHubMixin


class HubMixin(PyTorchModelHubMixin):
    """``save_pretrained``, ``from_pretrained`` and ``push_to_hub`` for our modules."""

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
