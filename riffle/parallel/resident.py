"""A sequence that fills a GPU, in one buffer: ``python -m riffle.parallel.resident --log2 28 --maps 96 --out FILE``.

Three things are measured or checked. At 2^16 cells the network that overwrites its input is compared with the
definition in float32. At the asked length it is timed. Then it runs once more, and of every layer some pairs all over
the buffer are computed anew from their cells before the layer, whose places are found by the address bit alone.
"""

# B = 1 sequence, N = 2**k cells, D = features per cell, S = pairs that are looked at
from __future__ import annotations

import argparse
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from riffle import ShuffleExchange
from riffle.bench.check import TOLERANCE, relative_error
from riffle.bench.definition import definition
from riffle.bench.timing import peak_bytes
from riffle.nn.in_place import overwrite_layer
from riffle.nn.layer import switch_of
from riffle.train.checkpoint import write_json
from riffle.train.record import environment

COMPARED_BITS = 16
"""Address bits at which the whole result is compared with the definition."""
WARM_UP_BITS = 20
"""Address bits of a run that compiles the kernels, at the sizes of chunk that longer sequences have."""
PAIRS = 64
"""Pairs that are looked at in every layer."""
FILLED_ROWS = 2**20
"""Cells drawn at once: no second buffer beside the sequence."""
