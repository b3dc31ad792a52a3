"""The nodes of problems: their values in a state, and their activations, wherever a model computes those.

A model that pins what cannot change computes its last layer at right-hand sides alone; others compute it everywhere.
"""

import numpy as np
from jaxtyping import Int8
from numpy import ndarray
from torch import Tensor

from latentloop.task.graph import EMPTY
from latentloop.tokens.state import Layout, State


def node_values(state: State, layout: Layout, modulus: int) -> Int8[ndarray, "batch node"]:
    """Return the numbers at right-hand sides, ``EMPTY`` for any other symbol and where there is no node."""
    symbols = layout.read(state.value).cpu().numpy()
    return np.where((symbols < modulus) & layout.exists.cpu().numpy(), symbols, EMPTY).astype(np.int8)


def computed_everywhere(x: Tensor, layout: Layout, axis: int = 1) -> bool:
    """Return whether activations are those of all positions, not of right-hand sides alone."""
    return x.shape[axis] != layout.rhs.shape[1]


def at_nodes(x: Tensor, layout: Layout, axis: int = 1) -> Tensor:
    """Return activations at right-hand sides; ``axis`` is that of positions. Where there is no node, position 0 stands in."""
    if not computed_everywhere(x, layout, axis):
        return x
    shape = [1] * x.ndim
    shape[0], shape[axis] = layout.rhs.shape
    index = layout.rhs.to(x.device).view(shape).expand(*x.shape[:axis], -1, *x.shape[axis + 1 :])
    return x.gather(axis, index)


def with_nodes(x: Tensor, layout: Layout, nodes: Tensor) -> Tensor:
    """Return activations [batch, pos, ..] with those at right-hand sides replaced; undoes ``at_nodes``."""
    if not computed_everywhere(x, layout):
        return nodes
    return x.scatter(1, layout.rhs[..., None].expand_as(nodes), nodes)
