"""Does attention stay sharp as problems grow? Its entropy by size, and what happens when it is made sharper still.

Entropies are means over right-hand sides and over operands, in nats, each at the iteration at which its equation is computed
(where the number of iterations is fixed: all of them at the last one). A layer that looks things up should not mind if all
scores are multiplied by a large number; one that mixes on purpose does. Cost: a few problems of every size, and a roll-out for
each layer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from latentloop.interpret.ablation import ablation_problems, solved_share
from latentloop.interpret.nodes import at_nodes, computed_everywhere
from latentloop.interpret.subject import SIZES, Subject
from latentloop.model.capture import capture, patch
from latentloop.model.recurrence import Fixed, iterate, update
from latentloop.task.graph import Problems
from latentloop.task.oracle import solve, trace
from latentloop.task.splits import published_problems
from latentloop.tokens.state import Layout, encode_state, with_values

PROBLEMS = 4
"""Of each size."""
SHARPER = 100.0
"""What scores are multiplied by."""


@dataclass(frozen=True, kw_only=True)
class Sharpness:
    """Entropy of every head, and the share of problems solved with sharper attention."""

    sizes: list[int]
    at_rhs: list[Float[ndarray, "size _head"]]
    """For each layer: at right-hand sides ..."""
    at_operands: list[Float[ndarray, "size _head"] | None]
    """... and at operands; None where the layer is computed at right-hand sides alone."""
    solved: float
    sharpened: list[float]
    """Share of problems solved when one layer's scores are multiplied, for each layer."""
    nodes: int


def entropy(pattern: Float[Tensor, "*rows key"]) -> Float[Tensor, "*rows"]:
    """Return the entropy of attention, in nats."""
    return torch.special.entr(pattern).sum(-1)


@torch.inference_mode()
def analyze(subject: Subject) -> Sharpness:
    """Measure every size that the model has names for."""
    sizes = sorted(size for size in SIZES if 8 <= size <= max(subject.size.nodes, 8) and size <= subject.task.names)
    layers = len(subject.model.layers)
    found = [[_problem(subject, size, number) for number in range(PROBLEMS)] for size in sizes]
    problems = ablation_problems(subject)
    sharpened = []
    for layer in range(layers):
        with patch(subject.model, "scores", lambda scores: scores * SHARPER, layer=layer):
            sharpened.append(solved_share(subject, problems)[0])
    return Sharpness(
        sizes=sizes,
        at_rhs=[_means([[one[layer][0] for one in some] for some in found]) for layer in range(layers)],
        at_operands=[
            None if found[0][0][layer][1] is None else _means([[one[layer][1] for one in some] for some in found])
            for layer in range(layers)
        ],
        solved=solved_share(subject, problems)[0],
        sharpened=sharpened,
        nodes=problems.width,
    )


def _means(found: Sequence[Sequence[Any]]) -> Float[ndarray, "size head"]:
    """Return the mean over the problems of each size."""
    return np.stack([np.mean(some, axis=0) for some in found])


def _problem(subject: Subject, size: int, number: int) -> list[tuple[ndarray, ndarray | None]]:
    """Return the entropy of every head of every layer, at right-hand sides and, if computed, at operands, in one problem."""
    model = subject.model
    problems = published_problems(subject.task, size, 1, skip=number)
    depths = torch.from_numpy(solve(problems).depths[0].astype(np.int64))
    sums: list[dict[str, list[Tensor]]] = [{"rhs": [], "operands": []} for _ in model.layers]
    for iteration, seen, layout in _iterations(subject, problems, int(depths.max())):
        nodes = torch.arange(len(depths)) if not model.method.row.adaptive else (depths == iteration).nonzero()[:, 0]
        operands = layout.operand[0, nodes]
        for layer, found in enumerate(sums):
            by_query = entropy(seen[layer]).transpose(1, 2)  # [1, query, head]
            found["rhs"].append(at_nodes(by_query, layout)[0, nodes].cpu())
            if computed_everywhere(by_query, layout):
                found["operands"].append(by_query[0, operands[operands > 0]].cpu())
    return [(_mean(found["rhs"]), _mean(found["operands"]) if found["operands"] else None) for found in sums]


def _mean(parts: Sequence[Tensor]) -> Float[ndarray, "head"]:
    return torch.cat(list(parts)).mean(0).numpy()


def _iterations(subject: Subject, problems: Problems, deepest: int) -> Iterator[tuple[int, list[Tensor], Layout]]:
    """Yield each iteration with the attention of every layer, from the true state before it where states can be given.

    Methods that have a fixed number of iterations are looked at in the last one.
    """
    model, device = subject.model, subject.model.norm.weight.device
    state, layout = encode_state(problems, subject.vocabulary)
    state, layout = state.to(device), layout.to(device)
    times = model.method.iterations or deepest
    if model.method.row.carries == "state":
        for iteration, values in enumerate(trace(problems)[:deepest], 1):
            given = with_values(state, layout, values, subject.vocabulary)
            with capture(model, ["pattern"]) as seen:
                update(model, given, layout)
            yield iteration, [seen[0, layer, "pattern"] for layer in range(len(model.layers))], layout
        return
    with capture(model, ["pattern"]) as seen:
        for _ in iterate(model, state, layout, Fixed(times)):
            pass
    for iteration in range(1, times + 1) if model.method.row.adaptive else (times,):
        yield iteration, [seen[iteration - 1, layer, "pattern"] for layer in range(len(model.layers))], layout
