"""What a run costs, before it is started."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from latentloop.config import Distribution, RunConfig
from latentloop.model.build import outline
from latentloop.model.transformer import Transformer
from latentloop.task.graph import sample
from latentloop.task.splits import train_generator
from latentloop.tokens.vocabulary import Vocabulary
from latentloop.train.targets import LatentBatch, make_batch

TWO_CORES = 1e11
"""Floating-point operations a second that two CPU cores do in practice, to turn work into time."""
STARTUP, PER_STEP, PER_PASS, PER_SAVE = 8.0, 0.006, 0.006, 0.2
"""Rough seconds beside the operations, on two cores: to load torch and Fabric, to draw a batch and apply AdamW, to start the
kernels of one pass through the block and back, and to validate and write a checkpoint. They are most of a tiny run."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Work of a run."""

    parameters: int
    tokens_per_step: int
    """Tokens that pass through the block in a step, once for every iteration."""
    flops_per_step: float
    steps: int
    hours_on_two_cores: float


def estimate(run: RunConfig) -> Cost:
    """Count the parameters, and the tokens of a step, those of the curriculum included; estimate the rest.

    A token costs two operations for each weight of the block, and attention two for each pair of positions and unit of
    width, twice (five times for DeBERTa); a backward pass costs twice the forward one. Where only values are read, the last
    layer needs keys and values of all tokens, and everything else only at right-hand sides.
    """
    model = outline(run)
    parts = [(one.share, _step(run, one, model)) for one in run.distributions]
    tokens, flops, passes = (sum(share * numbers[which] for share, numbers in parts) for which in range(3))
    saves = run.train.steps // min(run.train.validate_every, run.train.checkpoint_every)
    seconds = STARTUP + saves * PER_SAVE + run.train.steps * (PER_STEP + passes * PER_PASS + flops / TWO_CORES)
    return Cost(
        parameters=sum(p.numel() for p in model.parameters()),
        tokens_per_step=round(tokens),
        flops_per_step=flops,
        steps=run.train.steps,
        hours_on_two_cores=seconds / 3600,
    )


def _step(run: RunConfig, given: Distribution, model: Transformer) -> tuple[float, float, float]:
    """Return the tokens, the operations and the passes through the block of a step on such problems."""
    problems = sample(run.task, given.graph, given.batch, train_generator(run.train.seed, 0))
    batch = make_batch(problems, run, Vocabulary(task=run.task), torch.Generator().manual_seed(0))
    if isinstance(batch, LatentBatch):
        lengths, read, iterations = batch.layout.mask.sum(1), batch.layout.exists.sum(1), batch.iterations
    else:
        lengths, read, iterations = batch.lengths, batch.lengths, run.method.iterations or 1
    forward = forward_operations(run, model, lengths.double(), read.double())
    passes = iterations * math.ceil(len(batch) / run.train.micro_batch)
    return float(lengths.sum()) * iterations, 3 * iterations * forward, float(passes)


def forward_operations(run: RunConfig, model: Transformer, lengths: Tensor, read: Tensor) -> float:
    """Return the operations of one application of the block to sequences of these lengths, with so many right-hand sides."""
    products, width = (5 if run.model.positions.name == "deberta" else 2), run.model.width
    keys, forward = 2 * width * width, 0.0
    for number, layer in enumerate(model.layers):
        asked = read if run.method.pin_static and number == len(model.layers) - 1 else lengths
        weights = sum(p.numel() for p in layer.parameters())
        window = model.positions.window_of(number)
        seen = lengths if window is None else lengths.clamp(max=window.shape[-1])
        forward += 2 * float((keys * lengths + (weights - keys) * asked + products * width * asked * seen).sum())
    return forward
