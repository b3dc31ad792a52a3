"""How far a model can be trusted: wrong states, other shapes, larger graphs, more time than it needs."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Int8
from numpy import ndarray

from latentloop.config import FamilyName
from latentloop.errors import UserError
from latentloop.evaluate.metrics import BEYOND, Counts, count_rollouts
from latentloop.evaluate.pretrained import LatentLoop
from latentloop.evaluate.rollout import Advance, default_cap, ignore
from latentloop.families import FAMILIES
from latentloop.task.graph import EMPTY, Problems
from latentloop.task.oracle import Solution, solve
from latentloop.task.splits import PUBLISHED_SEED, TEST, generator, published_problems

FLIPS = (0.01, 0.1, 0.5)
LARGER, STRUCTURED = {256: 2, 512: 4, 1024: 8}, 8
"""By what problems of larger sizes are fewer, and those of structured families once more: a chain takes N iterations."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One kind of trouble."""

    name: str
    nodes: int
    instances: int
    family: FamilyName = "random"
    start: str = "empty"
    """The state it begins with: empty, random, or the model's own half way with a share of its values flipped."""
    flipped: float = 0.0
    skip: int = 0
    """Published problems to leave out, the first ones."""


def scenarios(trained: LatentLoop, nodes: int, instances: int, skip: int = 0, *, larger: bool = True) -> list[Scenario]:
    """List all kinds of trouble that a model's vocabulary allows, with or without graphs of more nodes."""
    found = [Scenario(name="random values", nodes=nodes, instances=instances, start="random")]
    for share in FLIPS:
        name = f"{share:.0%} flipped in the middle"
        found.append(Scenario(name=name, nodes=nodes, instances=instances, start="flipped", flipped=share))
    sizes = {size: divisor for size, divisor in LARGER.items() if larger and nodes < size <= trained.run.task.names}
    for size, divisor in ({nodes: 1} | sizes).items():
        for name in FAMILIES:
            count = instances // divisor // (STRUCTURED if size > nodes and name != "random" else 1)
            found.append(Scenario(name=f"family {name}", nodes=size, instances=max(1, count), family=name))
    return [replace(scenario, skip=skip) for scenario in found]


def stress(
    trained: LatentLoop,
    nodes: int = 128,
    instances: int = 64,
    *,
    skip: int = 0,
    larger: bool = True,
    advance: Advance = ignore,
) -> Iterator[dict[str, Any]]:
    """Put a model through every scenario; yield a row for each."""
    if trained.method.carries != "state":
        raise UserError(f"only methods with a discrete state can be stressed, and {trained.run.method.name} has none")
    for scenario in scenarios(trained, nodes, instances, skip, larger=larger):
        counts = run_scenario(trained, scenario, advance=advance)
        row = {"scenario": scenario.name, "nodes": scenario.nodes} | counts.figures()
        yield row


def run_scenario(trained: LatentLoop, scenario: Scenario, *, advance: Advance = ignore) -> Counts:
    """Roll a model out from the scenario's states and count what happens."""
    task, nodes, skip = trained.run.task, scenario.nodes, scenario.skip
    problems = published_problems(task, nodes, scenario.instances, family=scenario.family, skip=skip)
    solution = solve(problems)
    depths = solution.depths.max(1).astype(np.int64)
    limits = np.maximum(max(BEYOND) * depths, default_cap(nodes))
    rng = generator(PUBLISHED_SEED, TEST, nodes, int(1000 * scenario.flipped), 7, *([skip] if skip else []))
    start = None if scenario.start == "empty" else _start(trained, scenario, problems, solution, rng)
    return count_rollouts(trained, problems, solution, limits, rule="fixpoint", start=start, advance=advance)


def _start(
    trained: LatentLoop, scenario: Scenario, problems: Problems, solution: Solution, rng: np.random.Generator
) -> Int8[ndarray, "batch node"]:
    """Sample wrong states: all values random, or those of the model half way with some of them replaced."""
    random = rng.integers(0, problems.modulus, problems.names.shape, dtype=np.int8)
    if scenario.start == "random":
        return random
    halfway = np.maximum(solution.depths.max(1).astype(np.int64) // 2, 1)
    state = np.full(problems.names.shape, EMPTY, np.int8)
    for row, rollout in enumerate(trained.roll_out(problems, halfway)):
        state[row, : rollout.states.shape[1]] = rollout.states[-1]
    return np.where(rng.random(state.shape) < scenario.flipped, random, state)
