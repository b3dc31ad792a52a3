"""Devices: which ones a run uses, and what its processes agree on. Fabric is set up here."""

import os

import torch
from lightning_fabric import Fabric
from lightning_fabric.utilities.exceptions import MisconfigurationException

from latentloop.config import RunConfig
from latentloop.errors import UserError, nearest
from latentloop.train.limits import check_limits, check_memory

ACCELERATORS = ("auto", "cpu", "cuda", "mps")
STRATEGIES = ("auto", "ddp")  # those that leave parameters whole, so that checkpoints hold them by name


def make_fabric(
    run: RunConfig, *, accelerator: str = "cpu", devices: int = 1, machines: int = 1, strategy: str = "auto"
) -> Fabric:
    """Return a Fabric on these devices; raise an error of one line if they cannot be had."""
    for name, choice, choices in (("accelerator", accelerator, ACCELERATORS), ("strategy", strategy, STRATEGIES)):
        if choice not in choices:
            raise UserError(f"unknown {name} {choice!r}: {nearest(choice, choices)}")
    for name, number in (("devices", devices), ("machines", machines)):
        if number < 1:
            raise UserError(f"{name} must be at least 1, got {number}")
    if run.train.batch < devices * machines:
        raise UserError(f"a batch of {run.train.batch} cannot be shared by {devices * machines} devices: raise --batch")
    if accelerator == "auto":
        accelerator = "cuda" if torch.cuda.is_available() else "cpu"
    check_limits(run)
    if accelerator == "cpu" and devices > max(8, os.cpu_count() or 1):
        raise UserError(f"devices must be at most {max(8, os.cpu_count() or 1)} on this CPU, got {devices}")
    check_memory(run, devices if accelerator == "cpu" else 1)
    try:
        return Fabric(
            accelerator=accelerator,
            devices=devices,
            num_nodes=machines,
            strategy=strategy,
            precision=run.train.precision,
        )
    except (RuntimeError, ValueError, MisconfigurationException) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"cannot use {devices} x {accelerator} with {strategy}: {reason}") from error


def any_rank(fabric: Fabric, wish: bool) -> bool:
    """Return whether at least one rank has this wish; all ranks must ask at the same step."""
    if fabric.world_size == 1:
        return wish
    votes = fabric.all_reduce(torch.tensor(float(wish), device=fabric.device), reduce_op="sum")
    return bool(votes > 0)  # pyrefly: ignore


def sum_ranks(fabric: Fabric, counts: dict[str, torch.Tensor]) -> dict[str, float]:
    """Return named counts, each summed over all ranks."""
    names = sorted(counts)
    mine = torch.stack([counts[name].cpu().double() for name in names])  # not every device knows double precision
    merged = mine if fabric.world_size == 1 else fabric.all_reduce(mine.to(fabric.device), reduce_op="sum")
    return dict(zip(names, merged.tolist(), strict=True))  # pyrefly: ignore
