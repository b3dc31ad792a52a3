"""States to learn one update from: random ones, or those that the algorithm goes through."""

import numpy as np
from jaxtyping import Int8
from numpy import ndarray

from latentloop.methods import Stable
from latentloop.task.graph import EMPTY, Problems
from latentloop.task.oracle import Solution

EMPTIES = 0.2
"""Share of values that are empty in a random state."""
MOST_EQUAL = 0.8
"""In a skewed state, up to this share of values is 0 (or 1 where products occur)."""


def sample_states(
    problems: Problems, solution: Solution, method: Stable, rng: np.random.Generator, *, products: bool
) -> Int8[ndarray, "state batch node"]:
    """Sample states for every problem; their targets are the oracle's ``update`` of them."""
    shape = (method.states, *problems.names.shape)
    per_state = (*shape[:2], 1)
    random = _random_values(problems, method, rng, shape, products)
    if not method.true_states:
        return random
    reached = rng.integers(0, solution.depths.max(1)[:, None] + 1, per_state)
    true = np.where(solution.depths <= reached, solution.values, np.int8(EMPTY))
    return np.where(rng.random(per_state) < method.true_states, true, random)


def _random_values(
    problems: Problems, method: Stable, rng: np.random.Generator, shape: tuple[int, ...], products: bool
) -> Int8[ndarray, "state batch node"]:
    """Sample values uniformly, then make many of them equal in some states, and some of them empty.

    Sums show nothing of one operand while another is unknown to the model. In a skewed state many operands are 0, which
    leaves the others visible. Which values are empty is drawn for each by itself: were there states with many and states with
    few, an equation's own empty value would tell that its operands may be empty.
    """
    per_state = (*shape[:2], 1)
    values = rng.integers(0, problems.modulus, shape, dtype=np.int8)
    equal = (rng.random(per_state) < method.skew) & (rng.random(shape) < MOST_EQUAL * rng.random(per_state))
    values = np.where(equal, rng.integers(0, 1 + products, shape, dtype=np.int8), values)
    return np.where(rng.random(shape) < EMPTIES, np.int8(EMPTY), values)
