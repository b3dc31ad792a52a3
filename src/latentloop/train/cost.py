"""What a run costs, before it is started."""

from dataclasses import dataclass

import torch

from latentloop.config import GraphConfig, RunConfig
from latentloop.model.build import build_model
from latentloop.model.transformer import Transformer
from latentloop.task.graph import sample
from latentloop.task.splits import train_generator
from latentloop.tokens.vocabulary import Vocabulary
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
    """Count the parameters, and the tokens of one step's lesson, smaller graphs that come first included; estimate the rest.

    A token costs two operations for each weight of the block, and attention two for each pair of positions and unit of
    width, twice (five times for DeBERTa); a backward pass costs twice the forward one. A focused last layer needs keys and
    values of all tokens, and everything else only where values are read.
    """
    model, share = build_model(run), run.train.small_share
    parts = [_step(run, graph, model) for graph in (run.small_graph, run.graph)]
    tokens, flops = (share * small + (1 - share) * full for small, full in zip(*parts, strict=True))
    return Cost(
        parameters=sum(p.numel() for p in model.parameters()),
        tokens_per_step=round(tokens),
        flops_per_step=flops,
        steps=run.train.steps,
        hours_on_two_cores=flops * run.train.steps / TWO_CORES / 3600,
    )


def _step(run: RunConfig, graph: GraphConfig, model: Transformer) -> tuple[float, float]:
    """Give the tokens and the operations of a step on such graphs."""
    problems = sample(run.task, graph, run.train.batch, train_generator(run.train.seed, 0))
    lesson = make_lesson(problems, run, Vocabulary(task=run.task), torch.Generator().manual_seed(0))
    if isinstance(lesson, Lesson):
        lengths, read, iterations = lesson.mask.sum(1), lesson.start.targets().sum(1), lesson.iterations
    else:
        lengths, read, iterations = lesson.lengths, lesson.lengths, run.model.iterations or 1
    lengths = lengths.double()
    products, width = (5 if run.model.positions == "deberta" else 2), run.model.width
    keys, forward = 2 * width * width, 0.0
    for number, layer in enumerate(model.layers):
        asked = read if run.model.focus and number == len(model.layers) - 1 else lengths
        weights = sum(p.numel() for p in layer.parameters())
        forward += 2 * float((keys * lengths + (weights - keys) * asked + products * width * asked * lengths).sum())
    return float(lengths.sum()) * iterations, 3 * iterations * forward
