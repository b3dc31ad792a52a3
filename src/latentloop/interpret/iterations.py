"""Is what one iteration writes what the next one reads? Patch a value between two iterations.

When a problem's node is computed, the residual stream at its right-hand side is replaced by what it is at the same node and
iteration when the problem's leaves have other numbers: names stay, values change. If that vector is the state, the node's
value becomes the other one, and at the next iteration every node that uses it is what the arithmetic says of it. Nodes that
the model computes wrong without any patch say nothing, and are left out. Cost: three roll-outs of 64 problems.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from latentloop.interpret.ablation import ablation_problems
from latentloop.interpret.nodes import at_nodes, node_values, with_nodes
from latentloop.interpret.subject import INTERPRET, Subject
from latentloop.model.capture import capture, patch
from latentloop.model.recurrence import Fixed, iterate
from latentloop.task.graph import ABSENT, EMPTY, Problems
from latentloop.task.oracle import solve
from latentloop.task.oracle import update as true_update
from latentloop.task.splits import generator
from latentloop.tokens.state import encode_state


@dataclass(frozen=True, kw_only=True)
class BetweenIterations:
    """What becomes of a patched value."""

    patched: int
    """Nodes patched, one a problem."""
    taken: float
    """Share of them that decode to the other value."""
    children: int
    """Nodes that use them, are computed at the next iteration, and are what the arithmetic gives when nothing is patched."""
    left_out: int
    """Nodes that use them and are wrong without a patch."""
    follow: float
    """Share of the children that are what the arithmetic gives with the other value."""
    unmoved: float
    """Share that is what it would be without the patch."""
    restored: float
    """Share of patched nodes that have their true value again one iteration later."""
    kept: float
    """Share that still has the other value then."""


@dataclass(frozen=True, kw_only=True)
class _Swap:
    """One node, at the iteration that computes it."""

    row: int
    node: int
    iteration: int


@torch.inference_mode()
def analyze(subject: Subject) -> BetweenIterations:
    """Patch one node of every problem, when it is computed."""
    problems = ablation_problems(subject)
    depths = solve(problems).depths
    rng = generator(subject.settings.seed, INTERPRET, 12)
    halt, last = int(depths.max()) + 1, len(subject.model.layers) - 1
    plain = _roll_out(subject, problems, halt)
    with capture(subject.model, ["resid_post"], layers=[last]) as seen:
        others = _roll_out(subject, _other_leaves(problems, rng), halt)
    vectors = [seen[iteration, last, "resid_post"] for iteration in range(halt)]
    swaps = list(_choose(problems, depths, plain, others, rng))
    moved = _roll_out(subject, problems, halt, swaps, vectors)
    return _count(problems, depths, plain, others, moved, swaps)


def _other_leaves(problems: Problems, rng: np.random.Generator) -> Problems:
    """Return the same problems with another number in every leaf."""
    constants = problems.constants
    shifted = (constants + rng.integers(1, problems.modulus, constants.shape)) % problems.modulus
    return replace(problems, constants=np.where(constants == EMPTY, EMPTY, shifted).astype(constants.dtype))


def _roll_out(
    subject: Subject, problems: Problems, halt: int, swaps: Sequence[_Swap] = (), vectors: Sequence[Tensor] = ()
) -> list[ndarray]:
    """Return the values [batch, node] after each iteration; ``vectors`` take the place of those at the nodes to swap."""
    model, device = subject.model, subject.model.norm.weight.device
    state, layout = encode_state(problems, subject.vocabulary)
    state, layout = state.to(device), layout.to(device)

    def swapped(x: Tensor, iteration: int) -> Tensor:
        chosen = [(swap.row, swap.node) for swap in swaps if swap.iteration == iteration]
        rows, nodes = torch.tensor(chosen, device=device).T
        mine = at_nodes(x, layout).clone()
        mine[rows, nodes] = at_nodes(vectors[iteration], layout)[rows, nodes]
        return with_nodes(x, layout, mine)

    with ExitStack() as stack:
        for iteration in sorted({swap.iteration for swap in swaps}):
            new = partial(swapped, iteration=iteration)
            stack.enter_context(patch(model, "resid_post", new, layer=len(model.layers) - 1, iterations=[iteration]))
        return [
            node_values(reached, layout, problems.modulus) for reached, _ in iterate(model, state, layout, Fixed(halt))
        ]


def _choose(
    problems: Problems, depths: ndarray, plain: list[ndarray], others: list[ndarray], rng: np.random.Generator
) -> Iterator[_Swap]:
    """Choose for each problem a node that the next iteration uses, and whose value is another one with other leaves."""
    for row in range(len(problems)):
        parents = problems.parents[row]
        used = [
            int(parent)
            for node in range(problems.sizes[row])
            for parent in parents[node]
            if parent != ABSENT and depths[row, node] == depths[row, parent] + 1
        ]
        for node in rng.permutation(used).astype(int).tolist():
            iteration = int(depths[row, node]) - 1
            mine, other = plain[iteration][row, node], others[iteration][row, node]
            if EMPTY not in (mine, other) and mine != other:
                yield _Swap(row=row, node=node, iteration=iteration)
                break


def _count(
    problems: Problems,
    depths: ndarray,
    plain: list[ndarray],
    others: list[ndarray],
    moved: list[ndarray],
    swaps: list[_Swap],
) -> BetweenIterations:
    taken, restored, kept, follow, unmoved = [], [], [], [], []
    left_out = 0
    for swap in swaps:
        row, node, when = swap.row, swap.node, swap.iteration
        value = others[when][row, node]
        taken.append(moved[when][row, node] == value)
        restored.append(moved[when + 1][row, node] == plain[when][row, node])
        kept.append(moved[when + 1][row, node] == value)
        expected, unpatched = (
            true_update(problems[row : row + 1], state[when][row : row + 1, : problems.sizes[row]])[0]
            for state in (moved, plain)
        )
        uses = (problems.parents[row] == node).any(-1) & (depths[row] == depths[row, node] + 1)
        for child in np.flatnonzero(uses):
            if unpatched[child] != plain[when + 1][row, child]:
                left_out += 1
            elif expected[child] != plain[when + 1][row, child]:  # a product with 0 does not move
                follow.append(moved[when + 1][row, child] == expected[child] and taken[-1])
                unmoved.append(moved[when + 1][row, child] == plain[when + 1][row, child])
    return BetweenIterations(
        patched=len(taken),
        taken=_mean(taken),
        children=len(follow),
        left_out=left_out,
        follow=_mean(follow),
        unmoved=_mean(unmoved),
        restored=_mean(restored),
        kept=_mean(kept),
    )


def _mean(holds: Sequence[Any]) -> float:
    return float(np.mean(holds)) if holds else 0.0
