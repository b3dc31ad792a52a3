"""When to stop: the table of halting rules, and the roll-out that they are read off.

With a discrete state the test is exact: a state equal to the one before it will never change again, and a state equal to
an earlier one goes round in a cycle for ever. Both are certain, so such problems leave the batch, and what any rule would
have given is known from the states so far.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Int, Int8
from numpy import ndarray
from torch import Tensor

from latentloop.task.graph import EMPTY
from latentloop.tokens.state import Layout, State


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """All states that a model went through on one problem."""

    states: Int8[ndarray, "iteration node"]
    """Node values after 0, 1, 2, ... iterations; ``EMPTY`` where the model says no number."""
    fixpoint: int | None = None
    """First iteration that changed nothing."""
    cycle: tuple[int, int] | None = None
    """Iteration at which a cycle begins, and its length."""

    @property
    def iterations(self) -> int:
        """Iterations run."""
        return len(self.states) - 1

    def at(self, iteration: int) -> Int8[ndarray, "node"]:
        """Return the state after so many iterations; past the end it is known if the state repeats."""
        if iteration > self.iterations and self.cycle is not None:
            start, length = self.cycle
            iteration = start + (iteration - start) % length
        return self.states[min(iteration, self.iterations)]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What rules may go by besides the states themselves."""

    cap: int
    """Iterations after which a model that has not halted is stopped."""
    fixed: int | None = None
    """A number of iterations that was asked for."""
    depth: int | None = None
    """The problem's depth, where the truth may be known."""
    deepest: int | None = None
    """The largest depth of the test set."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One row of the table."""

    summary: str
    stop: Callable[[Rollout, Limits], int | None]
    """The iteration at which it stops, or None where it does not."""
    guarded: bool = False
    """Whether the guards stop a model that the rule does not."""
    guard: bool = False
    """Whether it is there for other rules only, and cannot be asked for."""


def _plus_one(number: int | None) -> int | None:
    return None if number is None else number + 1


RULES: dict[str, Rule] = {
    "fixpoint": Rule(
        summary="when an iteration changes nothing", stop=lambda rollout, limits: rollout.fixpoint, guarded=True
    ),
    "depth": Rule(summary="at the problem's own depth", stop=lambda rollout, limits: limits.depth),
    "paper": Rule(
        summary="at the test set's largest depth + 1, as the authors do",
        stop=lambda rollout, limits: _plus_one(limits.deepest),
    ),
    "fixed": Rule(summary="after a number of iterations", stop=lambda rollout, limits: limits.fixed),
    "cycle": Rule(
        summary="when a state comes back",
        stop=lambda rollout, limits: sum(rollout.cycle) if rollout.cycle else None,
        guard=True,
    ),
    "cap": Rule(summary="after the most iterations allowed", stop=lambda rollout, limits: limits.cap, guard=True),
}
"""A new rule is a row. Guards come last: of two that stop at one iteration, the first is the reason."""
CHOICES = tuple(name for name, rule in RULES.items() if not rule.guard)


def halted(rollout: Rollout, rule: str, limits: Limits) -> tuple[str, int] | None:
    """Return the reason to stop under a rule and the iteration; None where the rule cannot be applied."""
    names = [rule, *(name for name, row in RULES.items() if row.guard and RULES[rule].guarded)]
    stops = [(name, RULES[name].stop(rollout, limits)) for name in names]
    found = [(stop, place, name) for place, (name, stop) in enumerate(stops) if stop is not None]
    if RULES[rule].guarded:  # what comes after the cap was not asked for
        found = [each for each in found if each[0] <= limits.cap]
    if not found:
        return None
    stop, _, name = min(found)
    return name, stop


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
