"""Optimizers, parameter groups, learning-rate schedule, and the moving average of weights."""

import copy
import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from latentloop.config import TrainConfig
from latentloop.model.products import times_transposed
from latentloop.model.transformer import Transformer


class MuonAdamW(torch.optim.AdamW):
    """Muon for groups that say so, AdamW for the others.

    Muon moves a matrix along its momentum made orthogonal: all directions that gradients point to count the same. The
    iteration that does it (Newton-Schulz, of the fifth order) runs in single precision, in which CPUs are quick.
    """

    MOMENTUM, ROUNDS = 0.95, 5
    COEFFICIENTS = (3.4445, -4.7750, 2.0315)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyrefly: ignore
        """Take a step."""
        matrices = []
        for group in self.param_groups:
            for parameter in group["params"] if group["muon"] else ():
                matrices.append((group, parameter, parameter.grad))
                parameter.grad = None  # so that AdamW passes over it
        super().step()
        alike: dict[Any, list[Any]] = {}
        for group, parameter, gradient in matrices:
            if gradient is not None:
                alike.setdefault((group["parts"], parameter.shape), []).append((group, parameter, gradient))
        for (parts, _), same in alike.items():
            for (group, parameter, _), direction in zip(same, self._directions(same, parts), strict=True):
                parameter.mul_(1 - group["lr"] * group["weight_decay"]).add_(direction, alpha=-group["lr"])

    def _directions(self, same: list[Any], parts: int) -> Tensor:
        """Return where to move matrices of one shape [matrix, row, column], each made of so many, one below the other."""
        gradients = torch.stack([gradient for _, _, gradient in same])
        for (_, parameter, _), gradient in zip(same, gradients, strict=True):
            state = self.state[parameter]
            if not state:
                state["momentum"] = torch.zeros_like(parameter)
            state["momentum"].lerp_(gradient, 1 - self.MOMENTUM)
        momentum = torch.stack([self.state[parameter]["momentum"] for _, parameter, _ in same])
        update = gradients.lerp(momentum, self.MOMENTUM)  # Nesterov's
        update = update.unflatten(1, (parts, -1)).flatten(0, 1)
        update = orthogonalized(update, self.ROUNDS, self.COEFFICIENTS)
        return update.unflatten(0, (-1, parts)).flatten(1, 2)


def orthogonalized(
    matrices: Float[Tensor, "matrix row column"], rounds: int, coefficients: tuple[float, float, float]
) -> Float[Tensor, "matrix row column"]:
    """Bring all singular values near one, and scale tall matrices up."""
    a, b, c = coefficients
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-12)
    for _ in range(rounds):
        square = times_transposed(x, x)
        both = square.mul(b).add_(times_transposed(square, square), alpha=c)
        x = times_transposed(both, x.mT).add_(x, alpha=a)
    x = x.mT if tall else x
    return x * max(1.0, x.shape[1] / x.shape[2]) ** 0.5


def make_optimizer(model: nn.Module, train: TrainConfig) -> torch.optim.AdamW:
    """Return the optimizer of a run, with groups of parameters that decay and that do not."""
    muon: dict[int, list[nn.Parameter]] = {1: [], 3: []}
    decaying, others = [], []
    for name, parameter in model.named_parameters():
        if train.optimizer == "muon" and uses_muon(name, parameter.ndim):
            parts = 3 if name.endswith("attention.project.weight") else 1  # queries, keys and values are in one
            muon[parts].append(parameter)
        elif parameter.ndim >= 2 or train.decay == "all":
            decaying.append(parameter)
        else:
            others.append(parameter)
    groups: list[dict[str, Any]] = [
        {"params": decaying, "weight_decay": train.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    if train.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=train.lr, betas=(0.9, train.beta2))
    groups = [group | {"muon": False} for group in groups]
    about = {"weight_decay": train.weight_decay, "lr": train.muon_lr, "muon": True}
    groups += [{"params": matrices, "parts": parts} | about for parts, matrices in muon.items()]
    return MuonAdamW(groups, lr=train.lr, betas=(0.9, train.beta2), fused=True)


def uses_muon(name: str, dimensions: int) -> bool:
    """Return whether Muon moves a parameter: the matrices of the layers."""
    return dimensions == 2 and name.startswith("layers.")


def moments(name: str, dimensions: int, train: TrainConfig) -> tuple[str, ...]:
    """Return the names of what the optimizer remembers of a parameter, its step count aside."""
    if train.optimizer == "muon" and uses_muon(name, dimensions):
        return ("momentum",)
    return ("exp_avg", "exp_avg_sq")


def set_learning_rate(optimizer: torch.optim.Optimizer, step: int, train: TrainConfig) -> float:
    """Set the rate of a step, counted from 0, in all groups; return AdamW's."""
    share = schedule_share(step, train)
    for group in optimizer.param_groups:
        group["lr"] = share * ((train.muon_lr or 0.0) if group.get("muon") else train.lr)
    return share * train.lr


def schedule_share(step: int, train: TrainConfig) -> float:
    """Return the share of its peak that a rate has at a step, counted from 0: linear warm-up, then what the schedule says."""
    if step < train.warmup:
        return (step + 1) / train.warmup
    done = (step - train.warmup) / max(train.steps - train.warmup, 1)
    match train.schedule:
        case "constant":
            return 1.0
        case "linear":
            return 1 - (1 - train.final_lr) * done
        case "cosine":
            return train.final_lr + (1 - train.final_lr) * (1 + math.cos(math.pi * done)) / 2


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
