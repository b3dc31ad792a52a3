"""When to stop: the table of halting rules, and the roll-out that they are read off.

With a discrete state the test is exact: a state equal to the one before it will never change again, and a state equal to
an earlier one goes round in a cycle for ever. Both are certain, so such problems leave the batch, and what any rule would
have given is known from the states so far.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from jaxtyping import Int8
from numpy import ndarray


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
MAX_ITERATIONS = 100_000
"""Largest number or cap to ask for: far more than the deepest problem needs, and states that still fit in memory."""
CHOICES = tuple(name for name, rule in RULES.items() if not rule.guard)
RuleName = Literal[CHOICES]  # pyrefly: ignore


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
