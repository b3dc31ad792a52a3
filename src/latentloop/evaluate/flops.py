"""What an answer costs: floating-point operations for each problem, so that methods are compared at equal compute."""

from typing import Any

import torch

from latentloop.evaluate.pretrained import LatentLoop
from latentloop.methods import ChainOfThought
from latentloop.task.splits import published_problems
from latentloop.train.cost import forward_operations

SAMPLED = 64
"""Problems whose lengths are averaged."""


def operations_per_problem(trained: LatentLoop, row: dict[str, Any]) -> dict[str, float]:
    """Estimate the operations of one problem, given the row of its size: iterations or tokens written.

    A latent method pays for the whole problem at every iteration, and a chain of thought for each of its tokens once, with
    the keys and values of earlier ones kept.
    """
    run = trained.run
    problems = published_problems(run.task, row["nodes"], SAMPLED)
    lengths = torch.from_numpy(problems.lengths.astype(float))
    nodes = torch.full_like(lengths, row["nodes"])
    if isinstance(run.method, ChainOfThought):
        lengths = lengths + row["iterations"]
        once = forward_operations(run, trained.model, lengths, lengths)
        return {"operations": once / SAMPLED * run.method.iterations}
    once = forward_operations(run, trained.model, lengths, nodes)
    return {"operations": once / SAMPLED * row["iterations"]}
