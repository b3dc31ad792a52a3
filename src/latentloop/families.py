"""Shapes of graphs: the paper's random one, and structured ones that random sampling never shows.

A family is a row of data; ``latentloop.task.graph.sample`` draws from all of them with the same code.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

PAPER_LEAVES = 6


@dataclass(frozen=True, kw_only=True)
class Family:
    """How a graph grows, node by node."""

    summary: str
    leaves: Callable[[int], int]
    """Number of leaves in a graph of that many nodes."""
    fan_ins: tuple[int, ...] = (1, 2, 3)
    """Numbers of parents to draw from, uniformly."""
    pool: Literal["earlier", "leaves", "pairs"] = "earlier"
    """Where parents come from: any earlier node, leaves only, or the next two nodes that nobody has used yet."""
    always: Literal["first", "previous"] | None = None
    """A parent that every equation uses, among its others."""
    leaf_values: Literal["random", "equal", "zero"] = "random"

    @property
    def fixes_depth(self) -> bool:
        """Whether the shape itself decides the depth, which leaves no room for a depth limit."""
        return self.always == "previous" or self.pool == "pairs"


def _paper_leaves(nodes: int) -> int:
    """Six, or half of the nodes where six would leave nothing to compute."""
    return PAPER_LEAVES if nodes > PAPER_LEAVES else max(1, nodes // 2)


FAMILIES: dict[str, Family] = {
    "random": Family(summary="the paper's graphs", leaves=_paper_leaves),
    "chain": Family(summary="every node uses the one before it: depth N", leaves=lambda n: 1, always="previous"),
    "star": Family(summary="one leaf, copied by all others", leaves=lambda n: 1, fan_ins=(1,), pool="leaves"),
    "tree": Family(summary="a binary tree of leaves, folded to one root", leaves=lambda n: (n + 1) // 2, pool="pairs"),
    "wide": Family(summary="half leaves, and one layer that uses them", leaves=lambda n: (n + 1) // 2, pool="leaves"),
    "equal": Family(summary="all leaves hold the same value, not 0", leaves=_paper_leaves, leaf_values="equal"),
    "zeros": Family(summary="all values are 0", leaves=_paper_leaves, leaf_values="zero"),
    "copies": Family(summary="all equations have one parent", leaves=_paper_leaves, fan_ins=(1,)),
    "triples": Family(summary="all equations have three parents", leaves=_paper_leaves, fan_ins=(3,)),
    "far": Family(summary="the first leaf is a parent of every equation", leaves=_paper_leaves, always="first"),
}
