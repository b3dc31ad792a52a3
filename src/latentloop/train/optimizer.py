"""Parameter groups, learning-rate schedule, and the moving average of weights."""

import copy
import math

import torch
from torch import nn

from latentloop.config import TrainConfig
from latentloop.model.transformer import Transformer


def make_optimizer(model: nn.Module, train: TrainConfig) -> torch.optim.AdamW:
    """Return an AdamW that decays matrices only, or everything."""
    matrices = [p for p in model.parameters() if p.ndim >= 2 or train.decay == "all"]
    vectors = [p for p in model.parameters() if p.ndim < 2 and train.decay != "all"]
    groups = [
        {"params": matrices, "weight_decay": train.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=train.lr, betas=(0.9, train.beta2))


def learning_rate(step: int, train: TrainConfig) -> float:
    """Return the rate of a step, counted from 0: linear warm-up, then constant, linear or cosine decay."""
    if step < train.warmup:
        return train.lr * (step + 1) / train.warmup
    done = (step - train.warmup) / max(train.steps - train.warmup, 1)
    match train.schedule:
        case "constant":
            share = 1.0
        case "linear":
            share = 1 - (1 - train.final_lr) * done
        case "cosine":
            share = train.final_lr + (1 - train.final_lr) * (1 + math.cos(math.pi * done)) / 2
    return train.lr * share


class MovingAverage:
    """Exponential moving average of a model's weights, itself a model; its decay grows, so that the start is forgotten."""

    def __init__(self, model: Transformer, decay: float) -> None:
        self.decay = decay
        self.model = copy.deepcopy(model)
        self.model.requires_grad_(False).eval()

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """Move toward the weights after a step, counted from 0."""
        decay = min(self.decay, (1 + step) / (10 + step))
        for average, weight in zip(self.model.parameters(), model.parameters(), strict=True):
            average.lerp_(weight, 1 - decay)
