"""What research adds to riffle's registries, as any user's package could."""

from __future__ import annotations


def register() -> None:
    """Add the rivals and the tasks of other benchmarks; a process that reads their runs calls it once."""
    from research.baselines.models import BASELINE_MODELS
    from research.baselines.word_objective import WordObjective
    from research.tasks import RESEARCH_TASKS
    from riffle.lambada.train import READER_OBJECTIVES
    from riffle.models.build import MODELS
    from riffle.tasks import TASKS

    MODELS.update(BASELINE_MODELS)
    READER_OBJECTIVES["universal-reader"] = WordObjective
    TASKS.update({task.name: task for task in RESEARCH_TASKS})
