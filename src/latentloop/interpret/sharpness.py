"""Does attention stay sharp as problems grow? Its entropy by size, and what happens when it is made sharper still.

Entropies are means over right-hand sides and over operands, in nats, each at the iteration at which its equation is computed
(where the number of iterations is fixed: all of them at the last one). Three links between tokens are what circuits are made
of; for each, wherever an equation has such an operand, the head counts that attends to the token in question most, as heads
may share the work out. A layer that looks things up should not mind if all scores are multiplied by a large number; one that
mixes on purpose does. Sizes go up to as many nodes as there are names, also where the model fails: if attention disperses
there, sharper attention changes what it answers. Cost: a few problems of every size, and two roll-outs for each layer.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from latentloop.errors import UserError
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
"""Of each size, at most, and of the largest one to be solved with sharper attention."""
NODES = 256
"""Nodes of each size that entropies are of, at most: of large sizes there are fewer problems."""
LINKS = {
    "look-up": "from an operand to where it is defined",
    "name": "from a right-hand side to an operand",
    "value": "from a right-hand side to where an operand is defined",
}
"""What attention is asked to do: the first in one circuit, the others in the paper's."""
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
    links: dict[str, list[Float[ndarray, "size"] | None]]
    """For each link and layer: of the head that attends most to the link's end; None also where a window hides that."""
    weights: dict[str, list[Float[ndarray, "size"] | None]]
    """That head's attention to it."""
    solved: float
    sharpened: list[float]
    """Share of problems solved when one layer's scores are multiplied, for each layer."""
    nodes: int
    """Nodes of these problems."""
    largest: float
    """Share of values right in problems of the largest size, as the model is: ..."""
    largest_sharpened: list[float]
    """... and when one layer's scores are multiplied."""


def entropy(pattern: Float[Tensor, "*rows key"]) -> Float[Tensor, "*rows"]:
    """Return the entropy of attention, in nats."""
    return torch.special.entr(pattern).sum(-1)


@torch.inference_mode()
def analyze(subject: Subject) -> Sharpness:
    """Measure every size that the model has names, and positions, for."""
    layers = len(subject.model.layers)
    sizes, found = _by_size(subject)

    def by_size(layer: int, what: str) -> Float[ndarray, "size *more"] | None:
        known = [[x for one in some if (x := one[layer][what]) is not None] for some in found]
        return np.stack([np.mean(some, axis=0) for some in known]) if all(known) else None

    problems = ablation_problems(subject)
    largest = published_problems(subject.task, sizes[-1], PROBLEMS)
    sharpened, largest_sharpened = [], []
    for layer in range(layers):
        with patch(subject.model, "scores", lambda scores: scores * SHARPER, layer=layer):
            sharpened.append(solved_share(subject, problems)[0])
            largest_sharpened.append(solved_share(subject, largest)[1])
    return Sharpness(
        sizes=sizes,
        at_rhs=[by_size(layer, "rhs") for layer in range(layers)],  # pyrefly: ignore
        at_operands=[by_size(layer, "operands") for layer in range(layers)],
        links={link: [by_size(layer, link) for layer in range(layers)] for link in LINKS},
        weights={link: [by_size(layer, f"{link} weight") for layer in range(layers)] for link in LINKS},
        solved=solved_share(subject, problems)[0],
        sharpened=sharpened,
        nodes=problems.width,
        largest=solved_share(subject, largest)[1],
        largest_sharpened=largest_sharpened,
    )


def _by_size(subject: Subject) -> tuple[list[int], list[list[list[dict[str, ndarray | None]]]]]:
    """Return the sizes that can be measured, from small to large, and for each of them what its problems give."""
    names = subject.task.names
    sizes, found = [], []
    for size in sorted(size for size in SIZES if size <= names) or [subject.size.nodes]:
        count = max(1, min(PROBLEMS, NODES // size))
        try:
            found.append([_problem(subject, size, number) for number in range(count)])
        except UserError:  # longer than its absolute positions reach, as are all larger ones
            if not sizes:
                raise
            break
        sizes.append(size)
    return sizes, found


def _problem(subject: Subject, size: int, number: int) -> list[dict[str, ndarray | None]]:
    """Return for every layer what one problem gives: entropies at right-hand sides, at operands, and of look-ups."""
    model = subject.model
    problems = published_problems(subject.task, size, 1, skip=number)
    depths = torch.from_numpy(solve(problems).depths[0].astype(np.int64))
    sums: list[defaultdict[str, list[Tensor]]] = [defaultdict(list) for _ in model.layers]
    for iteration, seen, layout in _iterations(subject, problems, int(depths.max())):
        nodes = torch.arange(len(depths)) if not model.method.row.adaptive else (depths == iteration).nonzero()[:, 0]
        there = layout.operand[0, nodes] > 0  # [node, operand]
        operands = layout.operand[0, nodes][there]
        definitions = layout.rhs[0, layout.parent[0, nodes][there]]
        owners = nodes[:, None].expand(there.shape)[there.cpu()].to(operands)
        for layer, found in enumerate(sums):
            pattern = seen[layer]
            by_query = entropy(pattern).transpose(1, 2)  # [1, query, head]
            found["rhs"].append(at_nodes(by_query, layout)[0, nodes].cpu())
            everywhere = computed_everywhere(by_query, layout)
            if everywhere:
                found["operands"].append(by_query[0, operands].cpu())
            if pattern.shape[-1] != layout.mask.shape[1]:  # keys are distances, not tokens
                continue
            sides = layout.rhs[0, owners] if everywhere else owners
            ends = {"name": (sides, operands), "value": (sides, definitions)}
            ends |= {"look-up": (operands, definitions)} if everywhere else {}
            for link, (queries, keys) in ends.items():
                weight, best = pattern[0, :, queries, keys].max(0)  # [operand]
                found[f"{link} weight"].append(weight.cpu())
                found[link].append(by_query[0, queries, best].cpu())
    measures = ("rhs", "operands", *LINKS, *(f"{link} weight" for link in LINKS))
    return [{what: _mean(found[what]) for what in measures} for found in sums]


def _mean(parts: Sequence[Tensor]) -> Float[ndarray, "*head"] | None:
    return torch.cat(list(parts)).mean(0).numpy() if sum(map(len, parts)) else None


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
    steps = iterate(model, state, layout, Fixed(times))
    for iteration in range(1, times + 1):
        with capture(model, ["pattern"]) as seen:  # of one iteration: those of all would fill the memory
            next(steps)
        if model.method.row.adaptive or iteration == times:
            yield iteration, [seen[iteration - 1, layer, "pattern"] for layer in range(len(model.layers))], layout
