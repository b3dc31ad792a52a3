"""What breaks without a part? Problems fully solved when a head group, or an MLP, gives its mean.

Means are over tokens of one kind (operands, right-hand sides, operations, ..) of problems half way to their solution. Names,
operations and given numbers are put back after every iteration: a model that writes all of them anew would lose these first,
and what is asked for is values. Cost: a roll-out of 64 problems for each part.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int, Int8
from numpy import ndarray
from torch import Tensor

from latentloop.evaluate.rollout import roll_out
from latentloop.interpret.groups import OTHERS, Heads
from latentloop.interpret.nodes import node_values
from latentloop.interpret.subject import Subject
from latentloop.model.capture import capture, patch
from latentloop.model.recurrence import update
from latentloop.task.graph import EMPTY, Problems
from latentloop.task.oracle import solve, trace
from latentloop.task.splits import published_problems
from latentloop.tokens.state import Layout, State, encode_state, with_values
from latentloop.tokens.vocabulary import SYNTAX

NODES = 32
"""Problems to solve have up to so many nodes."""
MEANS = 16
"""Problems that means are taken over."""


@dataclass(frozen=True, kw_only=True)
class Ablated:
    """The model without one part."""

    part: str
    layer: int
    heads: list[int]
    """Empty for an MLP."""
    solved: float
    """Share of problems fully solved."""
    values: float
    """Share of values right."""


@dataclass(frozen=True, kw_only=True)
class Ablations:
    """The model as it is, and without each part."""

    nodes: int
    problems: int
    solved: float
    values: float
    parts: list[Ablated]


def ungrouped(found: Ablations, layer: int) -> list[Ablated]:
    """Return the parts that are one head of a layer each, of those without a group."""
    mine = [part for part in found.parts if part.layer == layer and part.heads]
    others = next((part.heads for part in mine if part.part == OTHERS), [])
    return [part for part in mine if len(part.heads) == 1 and part.heads[0] in others]


def solved_share(subject: Subject, problems: Problems) -> tuple[float, float]:
    """Return the share of problems solved after as many iterations as they are deep, and the share of values right."""
    solution = solve(problems)
    depths, fixed = solution.depths.max(1).astype(np.int64), subject.model.method.iterations
    if subject.model.method.row.carries == "state":
        reached = _values_after(subject, problems, depths)
    else:
        limits = depths if fixed is None else np.full(len(problems), fixed)
        rollouts = roll_out(subject.model, problems, limits, halt_at_fixpoint=fixed is None)
        reached = np.full(solution.values.shape, EMPTY, np.int8)
        for row, rollout in enumerate(rollouts):
            reached[row, : rollout.states.shape[1]] = rollout.states[-1]
    right = (reached == solution.values) | ~problems.exists
    return float(right.all(1).mean()), float(right[problems.exists].mean())


@torch.inference_mode()
def _values_after(
    subject: Subject, problems: Problems, iterations: Int[ndarray, "batch"]
) -> Int8[ndarray, "batch node"]:
    """Return the values after so many iterations, each of which changes the values of right-hand sides alone."""
    device = subject.model.norm.weight.device
    state, layout = encode_state(problems, subject.vocabulary)
    state, layout = state.to(device), layout.to(device)
    found = np.full(problems.exists.shape, EMPTY, np.int8)
    for done in range(1, int(iterations.max()) + 1):
        following, _ = update(subject.model, state, layout)
        value = layout.write(state.value, layout.read(following.value))
        state = replace(state, value=value, iteration=following.iteration)
        ready = iterations == done
        found[ready] = node_values(state, layout, problems.modulus)[ready]
    return found


def ablation_problems(subject: Subject) -> Problems:
    """Return the problems that an ablated model is asked to solve."""
    nodes = min(NODES, subject.size.nodes)
    return published_problems(subject.task, nodes, subject.settings.rollouts)


def analyze(subject: Subject, heads: Heads) -> Ablations:
    """Take out every group, every head and every MLP, one at a time."""
    problems = ablation_problems(subject)
    solved, values = solved_share(subject, problems)
    means = mean_outputs(subject, problems)
    parts = []
    for part, layer, chosen, patches in _parts(subject, heads, means):
        with patches:
            less, fewer = solved_share(subject, problems)
        parts.append(Ablated(part=part, layer=layer, heads=chosen, solved=less, values=fewer))
    return Ablations(nodes=problems.width, problems=len(problems), solved=solved, values=values, parts=parts)


def roles(state: State, layout: Layout) -> Int[Tensor, "batch pos"]:
    """Return the kind of every token: that of its syntax, and one more for right-hand sides."""
    return torch.where(layout.at_rhs(torch.ones_like(layout.rhs)) == 1, len(SYNTAX), state.syntax)


@torch.inference_mode()
def mean_outputs(subject: Subject, problems: Problems) -> dict[tuple[int | None, str], Float[Tensor, "batch ..."]]:
    """Return by layer and name what each head and each MLP adds on average to tokens of the same kind, wherever it is computed.

    Means are of some problems that are half solved, and laid out for all problems.
    """
    model, device = subject.model, subject.model.norm.weight.device
    state, layout = encode_state(problems, subject.vocabulary)
    state = with_values(state, layout, _half_solved(problems), subject.vocabulary).to(device)
    layout = layout.to(device)
    kinds, some = roles(state, layout), slice(0, MEANS)
    with capture(model, ["head_out", "mlp_out"]) as seen:
        update(model, state[some], layout[some])
    found: dict[tuple[int | None, str], Tensor] = {}
    for iteration, layer, name in seen:
        outputs = seen[iteration, layer, name]
        outputs = outputs.transpose(1, 2) if name == "head_out" else outputs  # [batch, pos, ..]
        at_nodes = outputs.shape[1] == layout.rhs.shape[1]
        own = torch.full_like(layout.rhs, len(SYNTAX)) if at_nodes else kinds
        real = layout.exists if at_nodes else layout.mask
        flat, table = outputs.flatten(2), outputs.new_zeros(len(SYNTAX) + 1, outputs[0, 0].numel())
        for kind in range(len(table)):
            chosen = (own[some] == kind) & real[some]
            table[kind] = flat[chosen].mean(0) if chosen.any() else 0.0
        means = table[own].unflatten(2, outputs.shape[2:])
        found[layer, name] = means.transpose(1, 2) if name == "head_out" else means
    return found


def _half_solved(problems: Problems) -> Int8[ndarray, "batch node"]:
    states = trace(problems)
    return states[len(states) // 2]


def _parts(
    subject: Subject, heads: Heads, means: dict[tuple[int | None, str], Tensor]
) -> Iterator[tuple[str, int, list[int], AbstractContextManager]]:
    model = subject.model
    for number, layer in enumerate(heads.layers):
        groups = heads.groups(number)
        mean = means[number, "head_out"]
        for name, chosen in groups.items():
            yield name, number, chosen, patch(model, "head_out", mean, layer=number, heads=chosen)
        count = layer.norm.shape[1]
        alone = [head for head in range(count) if [head] not in groups.values()]
        for head in alone:
            yield f"head {head}", number, [head], patch(model, "head_out", mean, layer=number, heads=[head])
        for mlp in range(len(model.layers[number].mlps)):  # pyrefly: ignore
            name = f"mlp_out.{mlp}" if mlp else "mlp_out"
            yield f"MLP {mlp + 1}", number, [], patch(model, name, means[number, name], layer=number)
