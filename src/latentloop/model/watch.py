"""The halting of a batch: which problems go on, and the roll-outs of those that have stopped."""

from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Int, Int8
from torch import Tensor

from latentloop.halting import Rollout
from latentloop.task.graph import EMPTY
from latentloop.tokens.state import Layout, State


@dataclass
class Watch:
    """The halting of a batch: remembers every state, and lets a problem go when its state repeats or its limit is reached.

    Hidden vectors may change while the state they decode to does not: there (``exact`` is off) a fixed point is
    approximate, and ``leave`` says whether it stops a problem.
    """

    start: State
    layout: Layout
    limit: Int[Tensor, "batch"]
    modulus: int
    exact: bool
    leave: bool = True
    finished: dict[int, Rollout] = field(default_factory=dict)
    """By row of the batch, for whoever iterates to take away."""

    def __post_init__(self) -> None:
        device = self.layout.mask.device
        shape = (len(self.start.factors()), self.layout.mask.shape[1])
        random = torch.Generator().manual_seed(0)
        self.keys = torch.randint(-(2**62), 2**62, shape, generator=random).to(device)
        self.rows = torch.arange(len(self.layout), device=device)
        self.fixpoints = torch.full_like(self.rows, -1)
        self.last = self.start
        self.values = [self._node_values(self.start)]
        self.prints = [self._fingerprint(self.start)]
        self.iteration = 0

    def see(self, state: State) -> Bool[Tensor, "batch"] | slice | None:
        """Take in the next state; return which rows go on."""
        self.iteration += 1
        same = self._equal(self.last, state)  # [batch]
        self.last = state
        self.values.append(self._node_values(state))
        fingerprint = self._fingerprint(state)
        earlier = torch.stack(self.prints) == fingerprint  # [iteration, batch]
        self.prints.append(fingerprint)
        self.fixpoints = torch.where(same & (self.fixpoints < 0), self.iteration, self.fixpoints)
        cycle = earlier.any(0) & ~same & self.exact
        ended = (self.iteration >= self.limit) | cycle | (same & (self.exact or self.leave))
        if not ended.any():
            return slice(None)
        trace = torch.stack(self.values).cpu().numpy()  # [iteration, batch, node]
        for row in torch.nonzero(ended)[:, 0].tolist():
            begin = int(earlier[:, row].int().argmax())
            self.finished[int(self.rows[row])] = Rollout(
                states=trace[:, row],
                fixpoint=int(self.fixpoints[row]) if self.fixpoints[row] >= 0 else None,
                cycle=(begin, self.iteration - begin) if cycle[row] else None,
            )
        going = ~ended
        self._keep(going)
        return going if bool(going.any()) else None

    def _keep(self, going: Bool[Tensor, "batch"]) -> None:
        """Drop what belongs to problems that have stopped."""
        self.rows, self.limit, self.fixpoints = self.rows[going], self.limit[going], self.fixpoints[going]
        self.layout, self.last = self.layout[going], self.last[going]
        self.values = [values[going] for values in self.values]
        self.prints = [fingerprint[going] for fingerprint in self.prints]

    def _node_values(self, state: State) -> Int8[Tensor, "batch node"]:
        """Read node values off a state: numbers at right-hand sides, ``EMPTY`` for anything else."""
        symbols = self.layout.read(state.value)
        return torch.where(self.layout.exists & (symbols < self.modulus), symbols, EMPTY).to(torch.int8)

    def _equal(self, state: State, following: State) -> Bool[Tensor, "batch"]:
        """Compare states exactly, padding aside."""
        pairs = zip(state.factors().values(), following.factors().values(), strict=True)
        return torch.stack([((a == b) | ~self.layout.mask).all(1) for a, b in pairs]).all(0)

    def _fingerprint(self, state: State) -> Int[Tensor, "batch"]:
        """Return a 64-bit hash of each row's state, to find earlier equals among many."""
        factors = zip(state.factors().values(), self.keys, strict=True)
        products = [(numbers + 1) * self.layout.mask * key for numbers, key in factors]
        return torch.stack(products).sum((0, 2))
