"""States to learn one update from: those of the algorithm, damaged ones, and wholly random ones."""

import numpy as np
from jaxtyping import Int8
from numpy import ndarray

from latentloop.methods import Stable
from latentloop.task.graph import EMPTY, Problems
from latentloop.task.oracle import Solution

MOST_EQUAL = 0.8
"""In a skewed state, up to this share of values is 0 (or 1 where products occur)."""


def sample_states(
    problems: Problems, solution: Solution, method: Stable, rng: np.random.Generator, *, products: bool
) -> Int8[ndarray, "state batch node"]:
    """Sample states for every problem; their targets are the oracle's ``update`` of them.

    Sums show nothing of one operand while another is unknown to the model. In a skewed state many operands are 0, which
    leaves the others visible.
    """
    shape = (method.states, *problems.names.shape)
    per_state = (*shape[:2], 1)
    random = _random_values(problems, method, rng, shape, products)
    reached = rng.integers(0, solution.depths.max(1)[:, None] + 1, per_state)
    true = np.where(solution.depths <= reached, solution.values, np.int8(EMPTY))
    damaged = np.where(rng.random(shape) < rng.random(per_state), random, true)
    kind = rng.random(per_state)
    chosen = np.where(kind < method.true_states + method.damaged_states, damaged, random)
    return np.where(kind < method.true_states, true, chosen)


def _random_values(
    problems: Problems, method: Stable, rng: np.random.Generator, shape: tuple[int, ...], products: bool
) -> Int8[ndarray, "state batch node"]:
    """Sample values uniformly, then make many of them equal in some states, and some of them empty."""
    per_state = (*shape[:2], 1)
    values = rng.integers(0, problems.modulus, shape, dtype=np.int8)
    equal = (rng.random(per_state) < method.skew) & (rng.random(shape) < MOST_EQUAL * rng.random(per_state))
    values = np.where(equal, rng.integers(0, 1 + products, shape, dtype=np.int8), values)
    empty = rng.random(shape) < 0.5 * rng.random(per_state) * (rng.random(per_state) < 0.5)
    return np.where(empty, np.int8(EMPTY), values)
