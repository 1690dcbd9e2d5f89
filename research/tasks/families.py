"""Families of structured inputs of the tasks of other benchmarks."""

from __future__ import annotations

import torch
from torch import Tensor

from research.tasks.token_tasks import TokenTask
from riffle.tasks.families import Values, families, with_values
from riffle.tasks.rows import columns, row_lengths
from riffle.tasks.task import Split


@families.register
def _(task: TokenTask) -> dict[str, Split]:
    def free(family: Values, rows_BN: Tensor, generator: torch.Generator) -> Tensor:
        lengths_B1, column_BN = row_lengths(rows_BN)[:, None], columns(rows_BN).expand_as(rows_BN)
        return task.replace_free(rows_BN, lambda count: family(count, column_BN, lengths_B1, generator))

    return with_values(free)
