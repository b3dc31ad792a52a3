"""Checkpoints of models that nobody has trained, with as much noise as a test wants."""

from typing import Any

import numpy as np

from latentloop.config import RunConfig
from latentloop.model.build import build_model, weights_of
from latentloop.train.checkpoint import Checkpoint


def untrained(run: RunConfig, *, noise: float = 0.0) -> Checkpoint:
    random = np.random.default_rng(3)
    weights = {name: _disturbed(weight, noise, random) for name, weight in weights_of(build_model(run)).items()}
    return Checkpoint(run=run, weights=weights, metrics={})


def _disturbed(weight: Any, noise: float, random: np.random.Generator) -> Any:
    added = (noise * random.standard_normal(tuple(weight.shape))).astype(np.float32)
    if isinstance(weight, np.ndarray):
        return weight + added
    import torch

    return weight + torch.from_numpy(added)
