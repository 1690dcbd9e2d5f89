"""What research adds to riffle's registries, as any user's package could."""

from __future__ import annotations


def register() -> None:
    """Add the rivals and the tasks of other benchmarks; a process that reads their runs calls it once."""
    from research.baselines.models import BASELINE_MODELS
    from research.tasks import RESEARCH_TASKS
    from riffle.models.build import MODELS
    from riffle.tasks import TASKS

    MODELS.update(BASELINE_MODELS)
    TASKS.update({task.name: task for task in RESEARCH_TASKS})
