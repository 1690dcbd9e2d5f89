"""Training, evaluation, checkpoints and the record of a run."""

from __future__ import annotations
