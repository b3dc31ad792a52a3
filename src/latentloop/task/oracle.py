"""The true answer to every problem: values, depths, the trace of the layer-by-layer algorithm, and one local update.

python -m latentloop.task.oracle
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int8, Int16
from numpy import ndarray

from latentloop.task.arithmetic import table
from latentloop.task.graph import ABSENT, EMPTY, Problems


@dataclass(frozen=True, kw_only=True)
class Solution:
    """What each node is worth and how deep it lies; padding is ``EMPTY`` and 0."""

    values: Int8[ndarray, "batch node"]
    depths: Int16[ndarray, "batch node"]

    @property
    def nbytes(self) -> int:
        """Memory the arrays take."""
        return self.values.nbytes + self.depths.nbytes


def solve(problems: Problems) -> Solution:
    """Compute every node once, in the order in which equations are written."""
    count = len(problems)
    column = np.arange(count)
    # Nodes first, so that each line of the loop works on rows of the whole batch.
    parents = np.ascontiguousarray(np.moveaxis(problems.parents, 0, -1))  # [node, 3, batch]
    operations = np.ascontiguousarray(np.moveaxis(problems.operations, 0, -1))  # [node, 2, batch]
    # One more row, the last, stands for an absent parent: empty, and of depth 0.
    values = np.full((problems.width + 1, count), EMPTY, np.int8)
    depths = np.zeros((problems.width + 1, count), np.int16)
    values[:-1] = problems.constants.T
    depths[:-1] = problems.exists.T
    result = table(problems.modulus)
    first = int((parents[:, 0] != ABSENT).any(-1).argmax()) if problems.width else 0
    for node in range(first, problems.width):
        operands = values[parents[node], column]  # [3, batch]
        value = result[operations[node, 0], operands[0], operands[1]]
        value = result[operations[node, 1], value, operands[2]]
        computed = parents[node, 0] != ABSENT  # [batch]: neither a leaf nor padding
        values[node] = np.where(computed, value, values[node])
        depths[node] += np.where(computed, depths[parents[node], column].max(0), 0)
    return Solution(values=np.ascontiguousarray(values[:-1].T), depths=np.ascontiguousarray(depths[:-1].T))


def update(problems: Problems, state: Int8[ndarray, "batch node"]) -> Int8[ndarray, "batch node"]:
    """Update any state, right or wrong, once: every node is recomputed from its parents' current values.

    A node with an empty parent becomes empty; a leaf gets its given value.
    """
    row = np.arange(len(problems))[:, None, None]
    operands = state[row, problems.parents]  # [batch, node, 3]; absent ones are looked up, and ignored by the table
    result = table(problems.modulus)
    value = result[problems.operations[..., 0], operands[..., 0], operands[..., 1]]
    value = result[problems.operations[..., 1], value, operands[..., 2]]
    return np.where(problems.parents[..., 0] == ABSENT, problems.constants, value)


def initial_state(problems: Problems) -> Int8[ndarray, "batch node"]:
    """Return the state before the first iteration: nothing is known."""
    return np.full(problems.names.shape, EMPTY, np.int8)


def trace(problems: Problems) -> Int8[ndarray, "iteration batch node"]:
    """Return the states of the layer-by-layer algorithm: entry t is that after t iterations, the last one the solution."""
    states = [initial_state(problems)]
    for _ in range(int(solve(problems).depths.max(initial=0))):
        states.append(update(problems, states[-1]))
    return np.stack(states)


if __name__ == "__main__":
    from latentloop.config import GraphConfig, TaskConfig
    from latentloop.task.graph import sample

    problems = sample(TaskConfig.named("all"), GraphConfig(nodes=12), 1, np.random.default_rng(0))
    print(trace(problems)[:, 0])  # noqa: T201
