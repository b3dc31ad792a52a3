"""Computation graphs, many at a time: what a problem is, and how problems are sampled.

python -m latentloop.task.graph
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int, Int8, Int16
from numpy import ndarray

from latentloop.config import MAX_FAN_IN, GraphConfig, TaskConfig
from latentloop.errors import UserError
from latentloop.families import FAMILIES, Family
from latentloop.operations import OPERATIONS

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
    def lengths(self) -> ndarray:
        """Number of tokens [batch]: of an equation twice its operands, `=` and the right-hand side, and `;` between two."""
        return (2 * (np.maximum(self.fan_in, 1) + 1) * self.exists).sum(1, dtype=np.int64) - 1

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
        """Return one problem's values by name, as in ``{"x7": 20}``; None for what is empty."""
        named = zip(self.names[row, : self.sizes[row]].tolist(), values.tolist(), strict=False)
        return {f"x{name}": None if value == EMPTY else value for name, value in named}

    def states(self, trace: Sequence[Mapping[str, int | None]]) -> Int8[ndarray, "iteration 1 node"]:
        """Undo ``by_variable`` for the states of a single problem."""
        names = [f"x{name}" for name in self.names[0, : self.sizes[0]]]
        return np.array([[[EMPTY if state[x] is None else state[x] for x in names]] for state in trace], np.int8)

    def fingerprints(self) -> list[bytes]:
        """Return a hash of each problem's content; equal problems have equal ones, whatever the padding."""
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
    """Sample ``count`` problems; the same arguments and generator state give the same bytes.

    Nodes are created one after the other, for all problems of the batch at once, so arrays are [node, batch] until the end.
    """
    shape = FAMILIES[graph.family]
    _check(task, graph, shape, count)
    lowest = graph.nodes if graph.min_nodes is None else graph.min_nodes
    sizes = rng.integers(lowest, graph.nodes, count, dtype=np.int16, endpoint=True)
    leaves = np.array([graph.leaves or shape.leaves(max(n, 1)) for n in range(graph.nodes + 1)], np.int16)[sizes]

    parents, depths = _grow(graph, shape, leaves, rng)
    operations = _operations(task, parents, rng)
    constants = _leaf_values(task, shape, leaves, graph.nodes, rng)
    names = _names(task, graph.nodes, count, rng)

    # Nodes past the size of a problem become padding, and sort behind all others.
    padding = np.arange(graph.nodes)[:, None] >= sizes  # [node, batch]
    for array, fill in ((names, ABSENT), (parents, ABSENT), (operations, ABSENT), (constants, EMPTY)):
        np.moveaxis(array, -1, 1)[padding] = fill
    depths[padding] = np.iinfo(depths.dtype).max
    order = _order(parents, depths, graph.order)
    return _arranged(task, sizes, order, names, parents, operations, constants)


def check_names(task: TaskConfig, nodes: int) -> None:
    """Refuse graphs of more nodes than there are names."""
    if nodes > task.names:
        raise UserError(
            f"{nodes} nodes need as many distinct names, and there are {task.names}: raise names or lower nodes"
        )


def _check(task: TaskConfig, graph: GraphConfig, shape: Family, count: int) -> None:
    """Refuse settings that contradict each other."""
    if count < 1:
        raise UserError(f"the number of problems must be at least 1, got {count}")
    check_names(task, graph.nodes)
    if shape.fixes_depth and graph.depth_limit is not None:
        raise UserError(f"the family {graph.family!r} decides its own depth: leave the depth limit out")
    if shape.pool == "pairs" and graph.leaves is not None:
        raise UserError(f"the family {graph.family!r} decides its own number of leaves: leave it out")


def _grow(
    graph: GraphConfig, shape: Family, leaves: Int16[ndarray, "batch"], rng: np.random.Generator
) -> tuple[Int16[ndarray, "node 3 batch"], Int16[ndarray, "node batch"]]:
    """Sample the parents of every node; return them with the depth of every node."""
    count = len(leaves)
    column = np.arange(count)
    limit = graph.depth_limit or graph.nodes + 1
    parents = np.full((graph.nodes, MAX_FAN_IN, count), ABSENT, np.int16)
    depths = np.ones((graph.nodes + 1, count), np.int16)
    depths[ABSENT] = 0  # the last row: the depth of an absent parent
    # The nodes that may become parents: pool[:pool_size[b], b] for problem b.
    pool = np.zeros((graph.nodes + 1, count), np.int16)
    pool_size = np.zeros(count, np.int16)
    # All random numbers at once: the number of parents [node, batch], and uniform numbers for picks [node, 4, batch].
    choices = np.array(graph.fan_ins or shape.fan_ins, np.int16)
    fan_ins = choices[rng.integers(0, len(choices), (graph.nodes, count), dtype=np.int8)]
    uniform = rng.random((graph.nodes, MAX_FAN_IN + 1, count), np.float32)

    for node in range(graph.nodes):
        computed = node >= leaves  # [batch]: not a leaf
        if computed.any():
            if shape.pool == "pairs":
                # The next two unused nodes [3, batch]; the last one may be a single node.
                first = 2 * (node - leaves)
                chosen = np.stack([first, first + 1, np.full(count, node, np.int16)])
                chosen[chosen >= node] = ABSENT
            else:
                # Distinct members of the pool [3, batch]; only the first fan_in of them count.
                fan_in = np.minimum(fan_ins[node], pool_size)
                picks = _distinct(uniform[node], fan_in, pool_size, shape.always)
                chosen = pool[picks, column]
                chosen[np.arange(MAX_FAN_IN)[:, None] >= fan_in] = ABSENT
            parents[node] = np.where(computed, chosen, ABSENT)
            # One deeper than the deepest parent [batch]; leaves have none, and so depth 1.
            depths[node] = depths[parents[node], column].max(0) + 1
        # The node joins the pool where its depth leaves room below the limit; where it does not, the next one overwrites it.
        pool[pool_size, column] = node
        pool_size += (depths[node] < limit) & (~computed | (shape.pool != "leaves"))
    return parents, depths[:-1]


def _distinct(
    uniform: Float32[ndarray, "4 batch"],
    fan_in: Int16[ndarray, "batch"],
    size: Int16[ndarray, "batch"],
    always: str | None,
) -> Int16[ndarray, "3 batch"]:
    """Pick three distinct places of a pool of ``size``, in random order; only the first ``fan_in`` of them count."""
    # Uniform among what the earlier picks leave: size, size - 1 and size - 2 places.
    room = np.maximum(size - np.arange(MAX_FAN_IN)[:, None], 1)  # [3, batch]
    first, second, third = (uniform[:MAX_FAN_IN] * room).astype(np.int16)
    if always is not None:
        first = np.zeros_like(size) if always == "first" else size - 1
    # Shift each pick past the places taken before it, the lower one first.
    second += second >= first
    low = np.minimum(first, second)
    high = np.maximum(first, second)
    third += third >= low
    third += third >= high
    picks = np.stack([first, second, third])
    if always is not None:
        # The parent that every equation uses may stand at any of the fan_in operands: swap it there.
        place = (uniform[MAX_FAN_IN] * fan_in).astype(np.int16)
        column = np.arange(len(size))
        picks[0], picks[place, column] = picks[place, column], picks[0].copy()
    return picks


def _operations(
    task: TaskConfig, parents: Int16[ndarray, "node 3 batch"], rng: np.random.Generator
) -> Int8[ndarray, "node 2 batch"]:
    """Sample the operation before the second and the third operand, where there is one."""
    codes = np.array([OPERATIONS.index(op) for op in task.operations], np.int8)
    later = parents[:, 1:]
    operations = codes[rng.integers(0, len(codes), later.shape, dtype=np.int8)]
    operations[later == ABSENT] = ABSENT
    return operations


def _leaf_values(
    task: TaskConfig, shape: Family, leaves: Int16[ndarray, "batch"], nodes: int, rng: np.random.Generator
) -> Int8[ndarray, "node batch"]:
    """Sample the values of the leaves; all other nodes are ``EMPTY``."""
    lowest = 1 if shape.leaf_values == "equal" else 0
    values = rng.integers(lowest, task.modulus, (nodes, len(leaves)), dtype=np.int8)
    if shape.leaf_values == "equal":
        values[:] = values[0]
    elif shape.leaf_values == "zero":
        values[:] = 0
    values[np.arange(nodes)[:, None] >= leaves] = EMPTY
    return values


def _names(task: TaskConfig, nodes: int, count: int, rng: np.random.Generator) -> Int16[ndarray, "node batch"]:
    """Sample distinct names: the first steps of a Fisher-Yates shuffle."""
    column = np.arange(count)
    deck = np.repeat(np.arange(task.names, dtype=np.int16)[:, None], count, axis=1)  # [name, batch]
    uniform = rng.random((nodes, count), np.float32)
    for node in range(nodes):
        pick = node + (uniform[node] * (task.names - node)).astype(np.int16)  # [batch]: one of those not dealt yet
        deck[node], deck[pick, column] = deck[pick, column], deck[node].copy()
    return deck[:nodes]


def _order(
    parents: Int16[ndarray, "node 3 batch"], depths: Int16[ndarray, "node batch"], order: str
) -> Int16[ndarray, "place batch"]:
    """Return which node stands at each place: generations by depth, and within one the order asked for.

    ``drawn`` is the order of creation. ``topological`` is that of Kahn's algorithm: a node follows when the last-placed of
    its parents does, ties in the order of creation. A generation's places settle those of the next one, so sorting again
    and again ends, after as many rounds as there are generations at most.
    """
    placed = np.argsort(depths, axis=0, kind="stable").astype(np.int16)
    if order == "drawn":
        return placed
    column = np.arange(depths.shape[1])
    generation = depths.astype(np.int32) * (len(depths) + 1)  # apart by more than any place
    while True:
        last_parent = _places(placed)[parents, column].max(1)  # [node, batch]
        following = np.argsort(generation + last_parent, axis=0, kind="stable").astype(np.int16)
        if np.array_equal(following, placed):
            return placed
        placed = following


def _places(order: Int16[ndarray, "place batch"]) -> Int16[ndarray, "node_or_absent batch"]:
    """Invert an order: the place of each node; one more row, the last, keeps ``ABSENT`` as it is."""
    places = np.full((len(order) + 1, order.shape[1]), ABSENT, np.int16)
    np.put_along_axis(places[:-1], order, np.arange(len(order), dtype=np.int16)[:, None], axis=0)
    return places


def _arranged(
    task: TaskConfig,
    sizes: Int16[ndarray, "batch"],
    order: Int16[ndarray, "place batch"],
    names: Int16[ndarray, "node batch"],
    parents: Int16[ndarray, "node 3 batch"],
    operations: Int8[ndarray, "node 2 batch"],
    constants: Int8[ndarray, "node batch"],
) -> Problems:
    """Put nodes in order, and the batch first."""
    # Parents move with their nodes [place, 3, batch], then become places themselves.
    moved = np.take_along_axis(parents, order[:, None], axis=0)
    moved = np.take_along_axis(_places(order)[:, None], moved, axis=0)
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
