"""Does the model recompute what it has computed? Put wrong values into a solved state, and apply the block once.

A wrong value whose operands are right is restored if the model computes it again, and kept if it only carries values on. A
right value with a wrong operand follows that operand if it is recomputed. Cost: one iteration of 64 problems.
"""

from dataclasses import dataclass

import numpy as np
import torch

from latentloop.interpret.ablation import ablation_problems
from latentloop.interpret.subject import INTERPRET, Subject
from latentloop.model.recurrence import update
from latentloop.task.graph import ABSENT, EMPTY
from latentloop.task.oracle import solve
from latentloop.task.oracle import update as true_update
from latentloop.task.splits import generator
from latentloop.tokens.state import encode_state, with_values

SHARE = 0.1
"""Of computed values, those that are made wrong."""


@dataclass(frozen=True, kw_only=True)
class Recomputation:
    """What one iteration makes of a solved state with wrong values."""

    wrong: int
    """Values made wrong, with operands that are right: ..."""
    restored: float
    """... the share that becomes right,"""
    kept: float
    """the share that stays as it was; the rest becomes something else."""
    affected: int
    """Right values that have a wrong operand: ..."""
    follow: float
    """... the share that becomes what the wrong operand gives,"""
    stay: float
    """the share that stays right."""
    undisturbed: float
    """Share of all other computed values that stay right."""


@torch.inference_mode()
def analyze(subject: Subject) -> Recomputation:
    """Disturb solved states and look one iteration ahead."""
    problems = ablation_problems(subject)
    truth = solve(problems).values
    rng = generator(subject.settings.seed, INTERPRET, 11)
    computed = problems.exists & (problems.parents[..., 0] != ABSENT)
    wrong = computed & (rng.random(truth.shape) < SHARE)
    shift = rng.integers(1, problems.modulus, truth.shape)
    values = np.where(wrong, (truth + shift) % problems.modulus, truth).astype(np.int8)
    state, layout = encode_state(problems, subject.vocabulary)
    state = with_values(state, layout, values, subject.vocabulary)
    device = subject.model.norm.weight.device
    following, _ = update(subject.model, state.to(device), layout.to(device))
    said = layout.read(following.value.cpu()).numpy()
    local = true_update(problems, values)
    rows = np.arange(len(problems))[:, None, None]
    misled = ((problems.parents != ABSENT) & wrong[rows, problems.parents]).any(-1)
    alone, affected = wrong & ~misled, computed & ~wrong & misled & (local != truth)
    rest = computed & ~wrong & ~misled
    assert (local[alone] == truth[alone]).all()
    assert (truth[computed] != EMPTY).all()
    return Recomputation(
        wrong=int(alone.sum()),
        restored=_share(said == truth, alone),
        kept=_share(said == values, alone),
        affected=int(affected.sum()),
        follow=_share(said == local, affected),
        stay=_share(said == truth, affected),
        undisturbed=_share(said == truth, rest),
    )


def _share(holds: np.ndarray, among: np.ndarray) -> float:
    return float(holds[among].mean()) if among.any() else 0.0
