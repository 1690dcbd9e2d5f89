"""To a folder or the Hugging Face Hub and back: safetensors only, nothing missing, nothing left over."""

from __future__ import annotations

import contextlib
import functools
import io
from pathlib import Path
from typing import Any, ClassVar, Self

PAPER = "https://papers.nips.cc/paper/8889-neural-shuffle-exchange-networks-sequence-processing-in-on-log-n-time"
MODEL_CARD = """---
{{ card_data }}
---

A neural shuffle-exchange network ([the paper]({{ paper_url }})), for the PyTorch library riffle. After
`pip install riffle-nn`:

    from {{ package }} import {{ kind }}
    model = {{ kind }}.from_pretrained("this repository's name")
"""


class HubMixin:
    """``save_pretrained``, ``from_pretrained`` and ``push_to_hub`` for our modules.

    They are those of ``huggingface_hub.PyTorchModelHubMixin``. It takes 0.16 seconds to import, so that a class gets it
    when one of them is called. Keywords of a class statement, such as ``license="mit"``, are facts for the model card.
    """

    _card_facts: ClassVar[dict[str, Any]] = {}
    _arguments: tuple[tuple[Any, ...], dict[str, Any]]

    def __init_subclass__(cls, **facts: Any) -> None:
        super().__init_subclass__()
        cls._card_facts = {**cls._card_facts, **facts}

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Keep the arguments, which are what config.json holds."""
        module = super().__new__(cls)
        module._arguments = args, kwargs
        return module

    def save_pretrained(self, save_directory: str | Path, **options: Any) -> str | None:
        """Write config.json, model.safetensors and a model card; see ``huggingface_hub.ModelHubMixin``."""
        saved: str | None = self._on_hub().save_pretrained(save_directory, **options)
        return saved

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Upload what :meth:`save_pretrained` writes; see ``huggingface_hub.ModelHubMixin``."""
        url: str = self._on_hub().push_to_hub(repo_id, **options)
        return url

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
        options = {"strict": strict, "device": device, "dtype": dtype, **kwargs}
        hub: Any = _hub_class(cls)  # type: ignore[arg-type]  # mypy takes its objects' hash for the class's
        with contextlib.redirect_stdout(io.StringIO()):  # it says so where it reads a folder
            module = hub.from_pretrained(pretrained_model_name_or_path, **options)
        module.__class__ = cls
        return module

    def _on_hub(self) -> Any:
        """The same module as an object of the class that can be saved."""
        args, kwargs = self._arguments
        hub = _hub_class(type(self))  # type: ignore[arg-type]
        module = hub.__new__(hub, *args, **kwargs)
        vars(module).update(vars(self))
        return module

    @classmethod
    def _load_as_pickle(cls, model: Any, model_file: str, map_location: str, strict: bool) -> Any:
        raise ValueError(f"{model_file} is a pickle, which could run any code: only safetensors are loaded")


def package_of(kind: type) -> str:
    """From where a class is imported: ``riffle``, where that has it, or else its own module."""
    import riffle

    return "riffle" if getattr(riffle, kind.__name__, None) is kind else kind.__module__


@functools.cache
def _hub_class(ours: Any) -> Any:
    """A class of ours with the methods of huggingface_hub before its own."""
    from huggingface_hub import PyTorchModelHubMixin

    facts = {name: list(fact) if isinstance(fact, list) else fact for name, fact in ours._card_facts.items()}

    class Hub(PyTorchModelHubMixin, ours, model_card_template=MODEL_CARD, paper_url=PAPER, **facts):
        _load_as_pickle = ours._load_as_pickle

        def generate_model_card(self, *args: Any, **kwargs: Any) -> Any:
            return super().generate_model_card(*args, **kwargs, kind=ours.__name__, package=package_of(ours))

    return Hub
