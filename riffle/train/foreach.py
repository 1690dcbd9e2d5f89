"""What hand-written optimisers have in common: all weights of a group at once, all state on their device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim import Optimizer


class Foreach(Optimizer):
    """An optimiser whose step can be part of a CUDA graph: no number of it is ever read by the host."""

    buffers: ClassVar[tuple[str, ...]]
    """Names of what is kept for each weight, in its shape and 0 at first, beside a ``count`` of steps."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Make one step from the gradients that are there."""
        assert closure is None, "a closure is for optimisers that evaluate the loss themselves"
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            for weight in weights:
                if not self.state[weight]:
                    kept = {name: torch.zeros_like(weight) for name in self.buffers}
                    self.state[weight] = {"count": torch.zeros((), device=weight.device), **kept}
            if weights:
                self.move(weights, [weight.grad for weight in weights], group)
                torch._foreach_add_(self.kept("count", weights), 1)

    def kept(self, name: str, weights: list[Tensor]) -> list[Tensor]:
        """A buffer of each weight."""
        return [self.state[weight][name] for weight in weights]

    def move(self, weights: list[Tensor], gradients: list[Tensor], group: dict[str, Any]) -> None:
        """Change the weights, which have made ``count`` steps before this one."""
        raise NotImplementedError
