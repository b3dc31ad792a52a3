"""Controlled data: one equation at the end of a problem, of which exactly one name or one value changes between samples.

A scene is a problem of N nodes, three of which, near its end, copy numbers that nothing else uses: ``7 = x9``, then
``x9 = x12``. So an operand's own equation says nothing of its value, as most equations do not. The probe,
``x12 + x40 + x3 = x30``, stands behind it, and the state holds every true value but the probe's. Two leaves lie between the
definitions and the probe, so that a layer with a window sees the probe alone. To vary a value is to change the number behind
it. Where all names are taken the probe's right-hand side repeats one, which no parser
would accept. Operands count from the right-hand side: an equation of two operands has VAR1 and VAR2, and no VAR0.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from jaxtyping import Int, Int8
from numpy import ndarray

from latentloop.config import MAX_FAN_IN, GraphConfig, TaskConfig
from latentloop.operations import OPERATIONS
from latentloop.task.arithmetic import table
from latentloop.task.graph import ABSENT, EMPTY, Problems, sample
from latentloop.task.oracle import solve

OPERANDS = ("VAR0", "VAR1", "VAR2")
RHS = "RHS"
BETWEEN = 2
"""Leaves between the operands' definitions and the probe."""
LEAST_NODES = 2 + 2 * MAX_FAN_IN + BETWEEN
"""A scene has two nodes of its own, the three operands, the leaves that they copy, and those between."""


def labels(operands: int = MAX_FAN_IN) -> list[str]:
    """Name the tokens of a probe with so many operands, the separator before it included."""
    names = [word for name in OPERANDS[MAX_FAN_IN - operands :] for word in (name, "op")]
    return [";", *names[:-1], "=", RHS]


@dataclass(frozen=True, kw_only=True)
class Probes:
    """Problems that end in a probe, and the state they are in."""

    problems: Problems
    state: Int8[ndarray, "batch node"]
    """Node values before the one iteration that is run: the true ones, and EMPTY at the probe."""
    answers: Int8[ndarray, "batch"]
    """What the probe is worth in this state."""
    operands: int

    def __len__(self) -> int:
        return len(self.answers)

    def __getitem__(self, rows: slice | Int[ndarray, "rows"]) -> "Probes":
        return Probes(
            problems=self.problems[rows], state=self.state[rows], answers=self.answers[rows], operands=self.operands
        )

    def holding(self, values: Int[ndarray, "batch"]) -> "Probes":
        """Return the same probes in a state that holds these values at their right-hand sides."""
        return replace(self, state=np.concatenate([self.state[:, :-1], values[:, None].astype(np.int8)], axis=1))

    def answered(self) -> "Probes":
        """Return the same probes in a state that holds their answers already."""
        return self.holding(self.answers)

    def shared_nodes(self) -> int:
        """Count the equations at the beginning that are the same in all samples, their state included."""
        problems = self.problems
        arrays = (problems.names, problems.constants, self.state, problems.parents, problems.operations)
        same = np.ones(problems.width, bool)
        for array in arrays:
            same &= (array == array[:1]).reshape(len(array), problems.width, -1).all((0, 2))
        return int(same.argmin()) if not same.all() else problems.width


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A problem that ends in the definitions of three operands, and two leaves."""

    task: TaskConfig
    base: Problems
    """One problem of N nodes."""
    free: Int[ndarray, "name"]
    """Names that the problem does not use."""
    rhs: int
    """The probe's name: one that is free, or else one that the problem has already."""

    @property
    def nodes(self) -> int:
        """Nodes of the problem, the probe not counted."""
        return self.base.width

    @property
    def operands(self) -> Int[ndarray, "operand"]:
        """The nodes that are the probe's operands."""
        return np.arange(MAX_FAN_IN) + self.nodes - BETWEEN - MAX_FAN_IN

    @property
    def sources(self) -> Int[ndarray, "operand"]:
        """The leaves that the operands copy."""
        return self.operands - MAX_FAN_IN

    @property
    def values(self) -> Int8[ndarray, "operand"]:
        """The numbers that the operands are given."""
        return self.base.constants[0, self.sources]

    def probes(
        self,
        *,
        values: Int[ndarray, "batch 3"] | None = None,
        chosen: Int[ndarray, "batch operand"] | None = None,
        rhs: Int[ndarray, "batch"] | None = None,
        operations: Sequence[str] | None = None,
        operands: int = MAX_FAN_IN,
    ) -> Probes:
        """Write probes: with other ``values`` of the three operands (EMPTY: not known yet), other nodes ``chosen`` as
        operands, or other names at the right-hand side."""
        count = max(len(given) for given in (values, chosen, rhs, [0]) if given is not None)
        if values is None:
            values = np.broadcast_to(self.values, (count, MAX_FAN_IN))
        if chosen is None:
            chosen = np.broadcast_to(self.operands[-operands:], (count, operands))
        names = np.full(count, self.rhs) if rhs is None else rhs
        operations = operations or [self.task.operations[0]] * (operands - 1)
        given = np.where(values == EMPTY, self.values, values)
        problems = self._problems(chosen, given, names, [OPERATIONS.index(op) for op in operations])
        state = solve(problems).values.copy()
        answers = state[:, -1].copy()
        state[:, -1] = EMPTY
        state[:, self.operands] = np.where(values == EMPTY, EMPTY, state[:, self.operands])
        answers[(state[np.arange(count)[:, None], chosen] == EMPTY).any(1)] = EMPTY
        _verify(problems, state, answers)
        return Probes(problems=problems, state=state, answers=answers, operands=operands)

    def _problems(self, chosen: ndarray, values: ndarray, rhs: ndarray, codes: list[int]) -> Problems:
        """Put the operands' values in, and the probe behind the problem."""
        count, operands = chosen.shape

        def extended(array: ndarray, last: ndarray) -> ndarray:
            body = np.repeat(array, count, axis=0)
            return np.concatenate([body, last[:, None].astype(array.dtype)], axis=1)

        parents = np.full((count, MAX_FAN_IN), ABSENT)
        parents[:, :operands] = chosen
        operations = np.full((count, MAX_FAN_IN - 1), ABSENT)
        operations[:, : operands - 1] = codes
        constants = extended(self.base.constants, np.full(count, EMPTY))
        constants[:, self.sources] = values
        return Problems(
            modulus=self.task.modulus,
            sizes=np.full(count, self.nodes + 1, np.int16),
            names=extended(self.base.names, rhs),
            parents=extended(self.base.parents, parents),
            operations=extended(self.base.operations, operations),
            constants=constants,
        )


def make_scene(task: TaskConfig, nodes: int, rng: np.random.Generator) -> Scene:
    """Sample a problem of ``nodes`` nodes that ends in leaves, copies of them, and other leaves, none of which is used."""
    tail = 2 * MAX_FAN_IN + BETWEEN
    body = sample(task, GraphConfig(nodes=nodes - tail), 1, rng)
    free = rng.permutation(np.setdiff1d(np.arange(task.names), body.names[0]))

    def extended(array: ndarray, last: ndarray) -> ndarray:
        return np.concatenate([array, last.astype(array.dtype)[None]], axis=1)

    copies = slice(MAX_FAN_IN, 2 * MAX_FAN_IN)
    parents = np.full((tail, MAX_FAN_IN), ABSENT)
    parents[copies, 0] = nodes - tail + np.arange(MAX_FAN_IN)
    constants = rng.integers(0, task.modulus, tail)
    constants[copies] = EMPTY
    base = Problems(
        modulus=task.modulus,
        sizes=np.array([nodes], np.int16),
        names=extended(body.names, free[:tail]),
        parents=extended(body.parents, parents),
        operations=extended(body.operations, np.full((tail, MAX_FAN_IN - 1), ABSENT)),
        constants=extended(body.constants, constants),
    )
    free = free[tail:]
    return Scene(task=task, base=base, free=free, rhs=int(free[0] if len(free) else rng.choice(body.names[0])))


def varied_names(scene: Scene, place: str, most: int = 128) -> Probes:
    """Vary one name of the probe over those that the problem has, or, at the right-hand side, over those that are free."""
    operands, names = scene.operands, scene.base.names[0]
    nodes = np.flatnonzero(names != scene.rhs)
    if place == RHS:
        rhs = scene.free[:most] if len(scene.free) else np.setdiff1d(names, names[operands])[:most]
        return scene.probes(rhs=rhs.astype(np.int64))
    which = OPERANDS.index(place)
    candidates = np.setdiff1d(nodes, np.delete(operands, which))[-most:]
    chosen = np.repeat(operands[None], len(candidates), axis=0)
    chosen[:, which] = candidates
    return scene.probes(chosen=chosen)


def varied_values(scene: Scene, place: str, *, empty: bool = False) -> Probes:
    """Vary the value of one operand over all numbers, and ``empty`` where asked for; everything else stays."""
    numbers = np.arange(scene.task.modulus)
    values = np.repeat(scene.values[None].astype(np.int64), scene.task.modulus + empty, axis=0)
    values[:, OPERANDS.index(place)] = np.append(numbers, EMPTY) if empty else numbers
    return scene.probes(values=values)


def varied_literals(scene: Scene) -> Probes:
    """Vary the number that the last leaf is defined by, while its value is not known yet."""
    modulus, leaf = scene.task.modulus, scene.nodes - 1
    probes = scene.probes(values=np.repeat(scene.values[None], modulus, axis=0))
    constants, state = probes.problems.constants.copy(), probes.state.copy()
    constants[:, leaf], state[:, leaf] = np.arange(modulus), EMPTY
    return replace(probes, problems=replace(probes.problems, constants=constants), state=state)


def varied_operations(scene: Scene) -> list[Probes]:
    """Vary the operations of the probe: a batch for each pair of them, of one sample."""
    pairs = product(scene.task.operations, repeat=MAX_FAN_IN - 1)
    return [scene.probes(operations=operations) for operations in pairs]


def value_grid(scene: Scene, operations: Sequence[str], values: Sequence[int]) -> Probes:
    """Give all three operands all of these values: samples are in the order of a cube's entries."""
    cube = np.stack(np.meshgrid(*[np.asarray(values)] * MAX_FAN_IN, indexing="ij"), axis=-1)
    return scene.probes(values=cube.reshape(-1, MAX_FAN_IN), operations=operations)


def _verify(problems: Problems, state: ndarray, answers: ndarray) -> None:
    """Check every answer against the arithmetic of the values that the probe's operands hold in the state."""
    rows = np.arange(len(problems))
    operands = np.where(problems.parents[:, -1] == ABSENT, EMPTY, state[rows[:, None], problems.parents[:, -1]])
    result = table(problems.modulus)
    value = result[problems.operations[:, -1, 0], operands[:, 0], operands[:, 1]]
    value = result[problems.operations[:, -1, 1], value, operands[:, 2]]
    assert (value == answers).all(), "a probe's answer is not what its operands give"
