"""The halting of a batch: which problems go on, and the roll-outs of those that have stopped. The same for every engine."""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Int, Int8, Integer
from numpy import ndarray

from latentloop.halting import Rollout
from latentloop.task.graph import ABSENT, EMPTY
from latentloop.tokens.factored import Factors, Tokens


@dataclass
class Watch:
    """The halting of a batch: remembers every state, and lets a problem go when its state repeats or its limit is reached.

    Hidden vectors may change while the state they decode to does not: there (``exact`` is off) a fixed point is
    approximate, and ``halt_at_fixpoint`` says whether it stops a problem.
    """

    start: Tokens
    limit: Int[ndarray, "batch"]
    modulus: int
    exact: bool
    halt_at_fixpoint: bool = True
    finished: dict[int, Rollout] = field(default_factory=dict)
    """By row of the batch, for whoever iterates to take away."""

    def __post_init__(self) -> None:
        self.mask = np.arange(self.start.syntax.shape[1]) < self.start.lengths[:, None]  # [batch, pos]
        self.exists = self.start.rhs != ABSENT  # [batch, node]
        self.rhs = np.where(self.exists, self.start.rhs, 0)
        self.last = self.start.numbers()
        self.keys = np.random.default_rng(0).integers(-(2**62), 2**62, self.last[:, 0].shape)  # [factor, pos]
        self.rows = np.arange(len(self.mask))
        self.fixpoints = np.full(len(self.mask), -1)
        self.values = [self._node_values()]
        self.prints = [self._fingerprint()]
        self.iteration = 0

    def see(self, state: Factors) -> Bool[ndarray, "batch"] | slice | None:
        """Take in the next state; return which rows go on, or None if all of them stop."""
        self.iteration += 1
        following = state.numbers()
        same = ((following == self.last) | ~self.mask).all((0, 2))  # [batch]
        self.last = following
        self.values.append(self._node_values())
        fingerprint = self._fingerprint()
        earlier = np.stack(self.prints) == fingerprint  # [iteration, batch]
        self.prints.append(fingerprint)
        self.fixpoints = np.where(same & (self.fixpoints < 0), self.iteration, self.fixpoints)
        cycle = earlier.any(0) & ~same & self.exact
        ended = (self.iteration >= self.limit) | cycle | (same & (self.exact or self.halt_at_fixpoint))
        if not ended.any():
            return slice(None)
        trace = np.stack(self.values)  # [iteration, batch, node]
        for row in np.flatnonzero(ended):
            begin = int(earlier[:, row].argmax())
            self.finished[int(self.rows[row])] = Rollout(
                states=trace[:, row],
                fixpoint=int(self.fixpoints[row]) if self.fixpoints[row] >= 0 else None,
                cycle=(begin, self.iteration - begin) if cycle[row] else None,
            )
        going = ~ended
        self._keep(going)
        return going if going.any() else None

    def _keep(self, going: Bool[ndarray, "batch"]) -> None:
        """Drop what belongs to problems that have stopped."""
        self.rows, self.limit, self.fixpoints = self.rows[going], self.limit[going], self.fixpoints[going]
        self.mask, self.exists, self.rhs = self.mask[going], self.exists[going], self.rhs[going]
        self.last = self.last[:, going]
        self.values = [values[going] for values in self.values]
        self.prints = [fingerprint[going] for fingerprint in self.prints]

    def _node_values(self) -> Int8[ndarray, "batch node"]:
        """Read node values off the last state: numbers at right-hand sides, ``EMPTY`` for anything else."""
        value = self.last[-1]
        symbols = np.take_along_axis(value, self.rhs, axis=1)
        return np.where(self.exists & (symbols < self.modulus), symbols, EMPTY).astype(np.int8)

    def _fingerprint(self) -> Integer[ndarray, "batch"]:
        """Return a 64-bit hash of each row's last state, to find earlier equals among many."""
        return np.einsum("fbp,fp->b", (self.last + 1) * self.mask, self.keys)
