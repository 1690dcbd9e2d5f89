"""Training, evaluation, checkpoints and the record of a run."""
