"""Is what one iteration writes what the next one reads? Patch a value between two iterations.

When a problem's node is computed, the residual stream at its right-hand side is replaced by one from another problem that
holds another value. If that vector is the state, the node's value becomes the other one, and at the next iteration every node
that uses it is what the arithmetic says of it. Cost: two roll-outs of 64 problems.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from latentloop.interpret.ablation import ablation_problems
from latentloop.interpret.subject import INTERPRET, Subject
from latentloop.model.capture import capture, patch
from latentloop.model.recurrence import Fixed, iterate
from latentloop.task.graph import ABSENT, EMPTY, Problems
from latentloop.task.oracle import solve
from latentloop.task.oracle import update as true_update
from latentloop.task.splits import generator
from latentloop.tokens.state import Layout, State, encode_state


@dataclass(frozen=True, kw_only=True)
class BetweenIterations:
    """What becomes of a patched value."""

    patched: int
    """Nodes patched, one a problem."""
    taken: float
    """Share of them that decode to the other value."""
    children: int
    """Nodes that use them and are computed at the next iteration."""
    follow: float
    """Share of these that are what the arithmetic gives with the other value."""
    unmoved: float
    """Share that is what it would be without the patch."""
    restored: float
    """Share of patched nodes that have their true value again one iteration later."""
    kept: float
    """Share that still has the other value then."""


@torch.inference_mode()
def analyze(subject: Subject) -> BetweenIterations:
    """Patch one node of every problem, when it is computed."""
    problems = ablation_problems(subject)
    depths = solve(problems).depths
    rng = generator(subject.settings.seed, INTERPRET, 12)
    model, device = subject.model, subject.model.norm.weight.device
    state, layout = encode_state(problems, subject.vocabulary)
    state, layout = state.to(device), layout.to(device)
    halt, last = int(depths.max()) + 1, len(model.layers) - 1
    with capture(model, ["resid_post"], layers=[last]) as seen:
        plain = [_values(reached, layout, problems) for reached, _ in iterate(model, state, layout, Fixed(halt))]
    nodes = torch.arange(layout.rhs.shape[1], device=device).expand(layout.rhs.shape)
    query = nodes if model.method.pin_static else layout.rhs  # where each node is computed
    vectors = [
        seen[t, last, "resid_post"].gather(1, query[..., None].expand(-1, -1, model.config.width)) for t in range(halt)
    ]
    swaps = [_Swap(*chosen, vectors) for chosen in _choose(problems, depths, plain, rng)]
    with ExitStack() as stack:
        for swap in swaps:
            place = int(query[swap.row, swap.node])
            replaced = swap.at(place)
            stack.enter_context(patch(model, "resid_post", replaced, layer=last, iterations=[swap.iteration]))
        moved = [_values(reached, layout, problems) for reached, _ in iterate(model, state, layout, Fixed(halt))]
    return _count(problems, depths, plain, moved, swaps)


class _Swap:
    """One node whose vector is replaced by another node's, of another problem."""

    def __init__(self, row: int, node: int, iteration: int, donor: tuple[int, int, int], vectors: list[Tensor]) -> None:
        self.row, self.node, self.iteration = row, node, iteration
        self.vector = vectors[donor[2]][donor[0], donor[1]]
        self.donor = donor

    def at(self, place: int) -> Callable[[Tensor], Tensor]:
        """Return the function that puts the vector in."""

        def replaced(x: Tensor) -> Tensor:
            x = x.clone()
            x[self.row, place] = self.vector
            return x

        return replaced


def _choose(
    problems: Problems, depths: ndarray, plain: list[ndarray], rng: np.random.Generator
) -> Iterator[tuple[int, int, int, tuple[int, int, int]]]:
    """Choose for each problem a node that the next iteration uses, and a node of another problem with another value."""
    for row in range(len(problems)):
        parents = problems.parents[row]
        used = [
            int(parent)
            for node in range(problems.sizes[row])
            for parent in parents[node]
            if parent != ABSENT and depths[row, node] == depths[row, parent] + 1
        ]
        if not used:
            continue
        node = int(rng.choice(used))
        iteration = int(depths[row, node]) - 1
        other = int(rng.choice(np.setdiff1d(np.arange(len(problems)), [row])))
        for donor in rng.permutation(int(problems.sizes[other])).tolist():
            when = int(depths[other, donor]) - 1
            if plain[when][other, donor] not in (EMPTY, plain[iteration][row, node]):
                yield row, node, iteration, (other, donor, when)
                break


def _count(
    problems: Problems, depths: ndarray, plain: list[ndarray], moved: list[ndarray], swaps: list[_Swap]
) -> BetweenIterations:
    taken, restored, kept, follow, unmoved = [], [], [], [], []
    for swap in swaps:
        row, node, when = swap.row, swap.node, swap.iteration
        value = plain[swap.donor[2]][swap.donor[0], swap.donor[1]]
        taken.append(moved[when][row, node] == value)
        restored.append(moved[when + 1][row, node] == plain[when][row, node])
        kept.append(moved[when + 1][row, node] == value)
        expected = true_update(problems[row : row + 1], moved[when][row : row + 1, : problems.sizes[row]])[0]
        uses = (problems.parents[row] == node).any(-1) & (depths[row] == depths[row, node] + 1)
        for child in np.flatnonzero(uses):
            if expected[child] != plain[when + 1][row, child]:  # a product with 0 does not move
                follow.append(moved[when + 1][row, child] == expected[child] and taken[-1])
                unmoved.append(moved[when + 1][row, child] == plain[when + 1][row, child])
    return BetweenIterations(
        patched=len(taken),
        taken=_mean(taken),
        children=len(follow),
        follow=_mean(follow),
        unmoved=_mean(unmoved),
        restored=_mean(restored),
        kept=_mean(kept),
    )


def _mean(holds: Sequence[Any]) -> float:
    return float(np.mean(holds)) if holds else 0.0


def _values(state: State, layout: Layout, problems: Problems) -> ndarray:
    symbols = layout.read(state.value).cpu().numpy()
    return np.where((symbols < problems.modulus) & problems.exists, symbols, EMPTY).astype(np.int8)
