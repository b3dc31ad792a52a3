"""Can the state be read at every iteration, and does it hold? Decoded values against the oracle's, and change when done.

For methods that carry hidden vectors, the state is what they decode to: it may be right while the vectors drift. Cost: a
roll-out of 64 problems to a few iterations past their depth.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray

from latentloop.interpret.ablation import ablation_problems
from latentloop.interpret.nodes import at_nodes, node_values
from latentloop.interpret.subject import Subject
from latentloop.model.recurrence import Fixed, iterate
from latentloop.task.oracle import solve, trace
from latentloop.tokens.state import encode_state

BEYOND = 16
"""Iterations past the deepest problem."""


@dataclass(frozen=True, kw_only=True)
class Drift:
    """What is decoded after 1, 2, 3, ... iterations."""

    right: Float[ndarray, "iteration"]
    """Share of right-hand sides that decode to what the layer-by-layer algorithm has then, empty ones included."""
    known_right: Float[ndarray, "iteration"]
    """The same among values that are known by then."""
    change: Float[ndarray, "later"]
    """Mean relative change of the vector at right-hand sides, |h(t) - h(t - 1)| / |h(t - 1)|, from the second iteration on."""
    margin: Float[ndarray, "iteration"]
    """Median distance of the largest logit from the next, at values that are known."""
    deepest: int
    """Iterations that the deepest problem needs."""
    carries: str


@torch.inference_mode()
def analyze(subject: Subject) -> Drift:
    """Follow problems past their solution."""
    problems = ablation_problems(subject)
    model, device = subject.model, subject.model.norm.weight.device
    depths = solve(problems).depths
    states = trace(problems)
    state, layout = encode_state(problems, subject.vocabulary)
    state, layout = state.to(device), layout.to(device)
    exists = problems.exists
    right, known_right, change, margin = [], [], [], []
    before = None
    total = model.method.iterations or int(depths.max()) + BEYOND
    for number, (reached, output) in enumerate(iterate(model, state, layout, Fixed(total)), 1):
        said = node_values(reached, layout, problems.modulus)
        truth = states[min(number, len(states) - 1)]
        known = exists & (depths <= number)
        right.append(float((said == truth)[exists].mean()))
        known_right.append(float((said == truth)[known].mean()))
        hidden = at_nodes(output.hidden, layout)
        top = at_nodes(output.logits["value"], layout).topk(2).values.cpu().numpy()
        margin.append(float(np.median((top[..., 0] - top[..., 1])[known])))
        if before is not None:
            moved = (hidden - before).norm(dim=-1) / before.norm(dim=-1)
            change.append(float(moved.cpu().numpy()[exists].mean()))
        before = hidden
    return Drift(
        right=np.array(right),
        known_right=np.array(known_right),
        change=np.array(change),
        margin=np.array(margin),
        deepest=int(depths.max()),
        carries=model.method.row.carries,
    )
