"""What breaks without a part? Problems fully solved when a head group gives its mean, or an MLP gives nothing.

Means are over all tokens of problems half way to their solution. Cost: a roll-out of 64 problems for each part.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from latentloop.evaluate.rollout import roll_out
from latentloop.interpret.heads import Heads
from latentloop.interpret.subject import Subject
from latentloop.model.capture import capture, patch
from latentloop.model.recurrence import update
from latentloop.task.graph import Problems
from latentloop.task.oracle import solve, trace
from latentloop.task.splits import published_problems
from latentloop.tokens.state import encode_state, with_values

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


def solved_share(subject: Subject, problems: Problems) -> tuple[float, float]:
    """Return the share of problems solved after as many iterations as they are deep, and the share of values right."""
    solution = solve(problems)
    fixed = subject.model.method.iterations
    limits = solution.depths.max(1).astype(np.int64) if fixed is None else np.full(len(problems), fixed)
    rollouts = roll_out(subject.model, problems, limits, halt_at_fixpoint=fixed is None)
    right = [
        rollout.states[-1] == solution.values[row, : rollout.states.shape[1]] for row, rollout in enumerate(rollouts)
    ]
    return float(np.mean([each.all() for each in right])), float(np.concatenate(right).mean())


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


@torch.inference_mode()
def mean_outputs(subject: Subject, problems: Problems) -> list[Float[Tensor, "1 head 1 width"]]:
    """Return each head's mean output over the tokens of problems that are half solved."""
    some = problems[: min(MEANS, len(problems))]
    states = trace(some)
    state, layout = encode_state(some, subject.vocabulary)
    state = with_values(state, layout, states[len(states) // 2], subject.vocabulary)
    device = subject.model.norm.weight.device
    with capture(subject.model, ["head_out"]) as seen:
        update(subject.model, state.to(device), layout.to(device))
    found = []
    for layer in range(len(subject.model.layers)):
        outputs = seen[0, layer, "head_out"]  # [batch, head, query, width]
        real = (layout.mask if outputs.shape[2] == layout.mask.shape[1] else layout.exists).to(device)
        total = (outputs * real[:, None, :, None]).sum((0, 2), keepdim=True)
        found.append(total / real.sum())
    return found


def _parts(
    subject: Subject, heads: Heads, means: list[Tensor]
) -> Iterator[tuple[str, int, list[int], AbstractContextManager]]:
    model = subject.model
    for number, layer in enumerate(heads.layers):
        last = number == len(heads.layers) - 1
        groups = layer.groups(last=last)
        for name, chosen in groups.items():
            yield name, number, chosen, patch(model, "head_out", means[number], layer=number, heads=chosen)
        count = layer.norm.shape[1]
        alone = [head for head in range(count) if [head] not in groups.values()]
        for head in alone:
            yield f"head {head}", number, [head], patch(model, "head_out", means[number], layer=number, heads=[head])
        for mlp in range(len(model.layers[number].mlps)):  # pyrefly: ignore
            name = f"mlp_out.{mlp}" if mlp else "mlp_out"
            yield f"MLP {mlp + 1}", number, [], patch(model, name, 0.0, layer=number)
