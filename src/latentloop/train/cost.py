"""What a run costs, before it is started."""

from dataclasses import dataclass

import torch

from latentloop.config import RunConfig
from latentloop.task.graph import sample
from latentloop.task.splits import train_generator
from latentloop.tokens.vocabulary import Vocabulary
from latentloop.train.loop import build_model
from latentloop.train.targets import Lesson, make_lesson

TWO_CORES = 1e11
"""Floating-point operations a second that two CPU cores do in practice, to turn work into time."""


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
    """Count the parameters, and the tokens of one step's lesson; estimate the rest.

    A token costs two operations for each weight of the block, and attention two for each pair of positions and unit of
    width, twice (five times for DeBERTa); a backward pass costs twice the forward one.
    """
    model = build_model(run)
    rng = train_generator(run.train.seed, 0)
    problems = sample(run.task, run.graph, run.train.batch, rng)
    lesson = make_lesson(problems, run, Vocabulary(task=run.task), torch.Generator().manual_seed(0))
    latent = isinstance(lesson, Lesson)
    lengths = (lesson.mask.sum(1) if latent else lesson.lengths).double()
    iterations = lesson.iterations if latent else run.model.iterations or 1
    block = sum(p.numel() for p in model.layers.parameters())
    products = 5 if run.model.positions == "deberta" else 2
    attention = products * 2 * run.model.width * run.model.layers * float((lengths**2).sum())
    flops = 3 * iterations * (2 * block * float(lengths.sum()) + attention)
    return Cost(
        parameters=sum(p.numel() for p in model.parameters()),
        tokens_per_step=int(lengths.sum()) * iterations,
        flops_per_step=flops,
        steps=run.train.steps,
        hours_on_two_cores=flops * run.train.steps / TWO_CORES / 3600,
    )
