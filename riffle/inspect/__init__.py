"""Looking inside a trained network: its gates layer by layer, which input an output depends on, where errors fall.

>>> import torch
>>> from riffle import ShuffleExchange
>>> net, x = ShuffleExchange(8).double(), torch.rand(1, 16, 8, dtype=torch.float64)
>>> seen = trace(net, x)
>>> torch.allclose(seen.output, net(x))
True
>>> [(layer.layer.unit, layer.layer.bit, tuple(layer.update.shape)) for layer in seen.layers][:2]
[('0_forward', 0, (1, 16, 8)), ('0_forward', 1, (1, 16, 8))]
>>> dependence(net, x).shape
torch.Size([16, 16])
"""

from __future__ import annotations

from riffle.inspect.dependence import dependence, errors_over_length, source_positions, strongest_source
from riffle.inspect.trace import LayerTrace, Trace, trace

__all__ = ["LayerTrace", "Trace", "dependence", "errors_over_length", "source_positions", "strongest_source", "trace"]
