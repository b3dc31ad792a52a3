"""Computation graphs, many at a time: what a problem is, and how problems are drawn.

python -m latentloop.task.graph
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int, Int8, Int16
from numpy import ndarray

from latentloop.config import MAX_FAN_IN, OPERATIONS, GraphConfig, TaskConfig
from latentloop.errors import UserError
from latentloop.task.families import FAMILIES, Family

EMPTY = -1  # a value not computed yet
ABSENT = -1  # a parent, operation or node that is not there


@dataclass(frozen=True, kw_only=True)
class Problems:
    """A batch of problems, one a row; nodes stand in the order in which their equations are written.

    Rows may differ in size: what lies beyond ``sizes`` is padding (``ABSENT``, and ``EMPTY`` values).
    """

    modulus: int
    sizes: Int16[ndarray, "batch"]
    """Number of nodes."""
    names: Int16[ndarray, "batch node"]
    """Index of each node's variable: 7 is x7."""
    parents: Int16[ndarray, "batch node 3"]
    """Nodes an equation uses, in the order of its operands."""
    operations: Int8[ndarray, "batch node 2"]
    """Index in ``OPERATIONS`` of the operation before the second and the third operand."""
    constants: Int8[ndarray, "batch node"]
    """Values of the leaves; ``EMPTY`` at nodes to compute."""

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def width(self) -> int:
        """Number of node columns, padding included."""
        return self.names.shape[1]

    @property
    def exists(self) -> ndarray:
        """Which of the columns [batch, node] hold a node."""
        return np.arange(self.width) < self.sizes[:, None]

    @property
    def fan_in(self) -> ndarray:
        """Number of parents [batch, node]: 0 for leaves."""
        return (self.parents != ABSENT).sum(-1, dtype=np.int8)

    @property
    def nbytes(self) -> int:
        """Memory the arrays take."""
        return sum(value.nbytes for value in vars(self).values() if isinstance(value, ndarray))

    def __getitem__(self, rows: slice | Int[ndarray, "rows"]) -> "Problems":
        """Select rows, dropping columns that none of them needs."""
        sizes = self.sizes[rows]
        width = int(sizes.max(initial=0))
        return Problems(
            modulus=self.modulus,
            sizes=sizes,
            names=self.names[rows, :width],
            parents=self.parents[rows, :width],
            operations=self.operations[rows, :width],
            constants=self.constants[rows, :width],
        )

    def by_variable(self, row: int, values: Int[ndarray, "node"]) -> dict[str, int | None]:
        """Name one problem's values, as in ``{"x7": 20}``; None for what is empty."""
        named = zip(self.names[row, : self.sizes[row]].tolist(), values.tolist(), strict=False)
        return {f"x{name}": None if value == EMPTY else value for name, value in named}

    def states(self, trace: Sequence[Mapping[str, int | None]]) -> Int8[ndarray, "iteration 1 node"]:
        """Undo ``by_variable`` for the states of a single problem."""
        names = [f"x{name}" for name in self.names[0, : self.sizes[0]]]
        return np.array([[[EMPTY if state[x] is None else state[x] for x in names]] for state in trace], np.int8)

    def fingerprints(self) -> list[bytes]:
        """Give a hash of each problem's content; equal problems have equal ones, whatever the padding."""
        return [
            hashlib.blake2b(
                b"".join(
                    np.ascontiguousarray(array[row, :size]).tobytes()
                    for array in (self.names, self.parents, self.operations, self.constants)
                ),
                digest_size=16,
                key=bytes([self.modulus]),
            ).digest()
            for row, size in enumerate(self.sizes)
        ]


def concatenate(batches: Sequence[Problems]) -> Problems:
    """Join batches of one modulus into one, padded to the widest."""
    width = max(batch.width for batch in batches)

    def join(arrays: list[ndarray], fill: int) -> ndarray:
        joined = np.full((sum(map(len, arrays)), width, *arrays[0].shape[2:]), fill, arrays[0].dtype)
        for start, array in zip(np.cumsum([0, *map(len, arrays)]), arrays, strict=False):
            joined[start : start + len(array), : array.shape[1]] = array
        return joined

    assert len({batch.modulus for batch in batches}) == 1
    return Problems(
        modulus=batches[0].modulus,
        sizes=np.concatenate([batch.sizes for batch in batches]),
        names=join([batch.names for batch in batches], ABSENT),
        parents=join([batch.parents for batch in batches], ABSENT),
        operations=join([batch.operations for batch in batches], ABSENT),
        constants=join([batch.constants for batch in batches], EMPTY),
    )


def sample(task: TaskConfig, graph: GraphConfig, count: int, rng: np.random.Generator) -> Problems:
    """Draw ``count`` problems; the same arguments and generator state give the same bytes.

    The loop runs over nodes and each line of it over the whole batch, so arrays are [node, batch] until the end.
    """
    shape = FAMILIES[graph.family]
    _check(task, graph, shape, count)
    lowest = graph.nodes if graph.min_nodes is None else graph.min_nodes
    sizes = rng.integers(lowest, graph.nodes, count, dtype=np.int16, endpoint=True)
    leaves = np.array([graph.leaves or shape.leaves(max(n, 1)) for n in range(graph.nodes + 1)], np.int16)[sizes]

    parents, depths = _grow(graph, shape, leaves, rng)
    operations = _codes(task, rng, (graph.nodes, MAX_FAN_IN - 1, count))
    operations[parents[:, 1:] == ABSENT] = ABSENT
    constants = _leaf_values(task, shape, leaves, graph.nodes, rng)
    names = _names(task, graph.nodes, count, rng)

    beyond = np.arange(graph.nodes)[:, None] >= sizes
    for array, fill in ((names, ABSENT), (parents, ABSENT), (operations, ABSENT), (constants, EMPTY)):
        np.moveaxis(array, -1, 1)[beyond] = fill
    depths[beyond] = np.iinfo(depths.dtype).max
    return _in_generations(task, sizes, depths, names, parents, operations, constants)


def check_names(task: TaskConfig, nodes: int) -> None:
    """Refuse graphs of more nodes than there are names."""
    if nodes > task.names:
        raise UserError(
            f"{nodes} nodes need as many distinct names, and there are {task.names}: raise names or lower nodes"
        )


def _check(task: TaskConfig, graph: GraphConfig, shape: Family, count: int) -> None:
    if count < 1:
        raise UserError(f"the number of problems must be at least 1, got {count}")
    check_names(task, graph.nodes)
    if shape.fixes_depth and graph.depth_limit is not None:
        raise UserError(f"the family {graph.family!r} decides its own depth: leave the depth limit out")
    if shape.pool == "pairs" and graph.leaves is not None:
        raise UserError(f"the family {graph.family!r} decides its own number of leaves: leave it out")


def _grow(graph: GraphConfig, shape: Family, leaves: Int16[ndarray, "batch"], rng: np.random.Generator):
    """Draw the parents [node, 3, batch] of every node and its depth [node, batch]."""
    count, column = len(leaves), np.arange(len(leaves))
    limit = graph.depth_limit or graph.nodes + 1
    parents = np.full((graph.nodes, MAX_FAN_IN, count), ABSENT, np.int16)
    depths = np.ones((graph.nodes + 1, count), np.int16)
    depths[ABSENT] = 0  # looked up for a parent that is not there
    pool = np.zeros((graph.nodes + 1, count), np.int16)
    pool_size = np.zeros(count, np.int16)
    choices = np.array(graph.fan_ins or shape.fan_ins, np.int16)
    fan_ins = choices[rng.integers(0, len(choices), (graph.nodes, count), dtype=np.int8)]
    uniform = rng.random((graph.nodes, MAX_FAN_IN + 1, count), np.float32)

    for node in range(graph.nodes):
        computed = node >= leaves
        if computed.any():
            if shape.pool == "pairs":
                first = 2 * (node - leaves)
                drawn = np.stack([first, first + 1, np.full(count, node, np.int16)])
                drawn[drawn >= node] = ABSENT
            else:
                fan_in = np.minimum(fan_ins[node], pool_size)
                picks = _distinct(uniform[node], fan_in, pool_size, shape.always)
                drawn = pool[picks, column]
                drawn[np.arange(MAX_FAN_IN)[:, None] >= fan_in] = ABSENT
            parents[node] = np.where(computed, drawn, ABSENT)
            depths[node] = depths[parents[node], column].max(0) + 1
        pool[pool_size, column] = node
        pool_size += (depths[node] < limit) & (~computed | (shape.pool != "leaves"))
    return parents, depths[:-1]


def _distinct(uniform: ndarray, fan_in: ndarray, size: ndarray, always: str | None) -> ndarray:
    """Pick three distinct places of a pool of ``size``, in random order; only the first ``fan_in`` of them count."""
    first, second, third = (uniform[:MAX_FAN_IN] * np.maximum(size - np.arange(MAX_FAN_IN)[:, None], 1)).astype(
        np.int16
    )
    if always is not None:
        first = np.zeros_like(size) if always == "first" else size - 1
    second += second >= first
    low, high = np.minimum(first, second), np.maximum(first, second)
    third += third >= low
    third += third >= high
    picks = np.stack([first, second, third])
    if always is not None:  # the given parent may stand anywhere among the operands
        place, column = (uniform[MAX_FAN_IN] * fan_in).astype(np.int16), np.arange(len(size))
        picks[0], picks[place, column] = picks[place, column], picks[0].copy()
    return picks


def _codes(task: TaskConfig, rng: np.random.Generator, shape: tuple[int, ...]) -> ndarray:
    codes = np.array([OPERATIONS.index(op) for op in task.operations], np.int8)
    return codes[rng.integers(0, len(codes), shape, dtype=np.int8)]


def _leaf_values(task: TaskConfig, shape: Family, leaves: ndarray, nodes: int, rng: np.random.Generator) -> ndarray:
    lowest = 1 if shape.leaf_values == "equal" else 0
    values = rng.integers(lowest, task.modulus, (nodes, len(leaves)), dtype=np.int8)
    if shape.leaf_values == "equal":
        values[:] = values[0]
    elif shape.leaf_values == "zero":
        values[:] = 0
    values[np.arange(nodes)[:, None] >= leaves] = EMPTY
    return values


def _names(task: TaskConfig, nodes: int, count: int, rng: np.random.Generator) -> ndarray:
    """Draw distinct names [node, batch]: the first steps of a Fisher-Yates shuffle."""
    column = np.arange(count)
    deck = np.repeat(np.arange(task.names, dtype=np.int16)[:, None], count, axis=1)
    uniform = rng.random((nodes, count), np.float32)
    for node in range(nodes):
        pick = node + (uniform[node] * (task.names - node)).astype(np.int16)
        deck[node], deck[pick, column] = deck[pick, column], deck[node].copy()
    return deck[:nodes]


def _in_generations(task, sizes, depths, names, parents, operations, constants) -> Problems:
    """Order nodes by depth, leaves first, and give batches their final [batch, node] form."""
    order = np.argsort(depths, axis=0, kind="stable").astype(np.int16)
    rank = np.full((len(order) + 1, order.shape[1]), ABSENT, np.int16)  # the last row: ABSENT stays ABSENT
    np.put_along_axis(rank[:-1], order, np.arange(len(order), dtype=np.int16)[:, None], axis=0)
    moved = np.take_along_axis(parents, order[:, None], axis=0)
    moved = np.take_along_axis(rank[:, None], moved, axis=0)
    return Problems(
        modulus=task.modulus,
        sizes=sizes,
        names=np.ascontiguousarray(np.take_along_axis(names, order, axis=0).T),
        parents=np.ascontiguousarray(np.moveaxis(moved, -1, 0)),
        operations=np.ascontiguousarray(np.moveaxis(np.take_along_axis(operations, order[:, None], axis=0), -1, 0)),
        constants=np.ascontiguousarray(np.take_along_axis(constants, order, axis=0).T),
    )


if __name__ == "__main__":
    from latentloop.task.text import to_text

    print(to_text(sample(TaskConfig.named("all"), GraphConfig(nodes=12), 1, np.random.default_rng(0))))  # noqa: T201
