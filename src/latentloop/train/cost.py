"""What a run costs, before it is started."""

from dataclasses import dataclass

import torch

from latentloop.config import GraphConfig, RunConfig
from latentloop.model.build import build_model
from latentloop.model.transformer import Transformer
from latentloop.task.graph import sample
from latentloop.task.splits import train_generator
from latentloop.tokens.vocabulary import Vocabulary
from latentloop.train.targets import LatentBatch, make_batch

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
    """Count the parameters, and the tokens of a step, those of the curriculum included; estimate the rest.

    A token costs two operations for each weight of the block, and attention two for each pair of positions and unit of
    width, twice (five times for DeBERTa); a backward pass costs twice the forward one. Where only values are read, the last
    layer needs keys and values of all tokens, and everything else only at right-hand sides.
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
    """Return the tokens and the operations of a step on such graphs."""
    problems = sample(run.task, graph, run.train.batch, train_generator(run.train.seed, 0))
    batch = make_batch(problems, run, Vocabulary(task=run.task), torch.Generator().manual_seed(0))
    if isinstance(batch, LatentBatch):
        lengths, read, iterations = batch.layout.mask.sum(1), batch.layout.exists.sum(1), batch.iterations
    else:
        lengths, read, iterations = batch.lengths, batch.lengths, run.method.iterations or 1
    lengths = lengths.double()
    products, width = (5 if run.model.positions.name == "deberta" else 2), run.model.width
    keys, forward = 2 * width * width, 0.0
    for number, layer in enumerate(model.layers):
        asked = read if run.method.pin_static and number == len(model.layers) - 1 else lengths
        weights = sum(p.numel() for p in layer.parameters())
        forward += 2 * float((keys * lengths + (weights - keys) * asked + products * width * asked * lengths).sum())
    return float(lengths.sum()) * iterations, 3 * iterations * forward
