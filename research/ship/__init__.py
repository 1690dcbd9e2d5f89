"""Trained runs as small folders with a model card, and the programs that choose and measure them.

``python -m research.ship.trials`` trains many runs and scores each to choose one, ``python -m research.ship`` puts runs
into the package, and ``python -m research.ship.accuracy`` measures shipped or other runs.
"""
