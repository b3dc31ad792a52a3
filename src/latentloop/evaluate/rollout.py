"""Roll a model out on many problems: group them by length, iterate each group, keep every state.

Two engines compute the states: the torch model, or NumPy alone. torch is imported only by whoever brings its model.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int, Int8
from numpy import ndarray

from latentloop.halting import Rollout
from latentloop.model.reference import Reference
from latentloop.model.watch import Watch
from latentloop.task.graph import Problems
from latentloop.tokens.factored import Factors, Tokens, encode, fill_in

if TYPE_CHECKING:
    from latentloop.model.transformer import Transformer

    Engine = Transformer | Reference
else:
    Engine = Any

SCORES_AT_ONCE = 2**24
"""Attention scores a layer may hold: decides how many problems are solved side by side."""
Advance = Callable[[int], None]


def ignore(done: int) -> None:
    """Take no notice of progress."""


def default_cap(nodes: int) -> int:
    """Allow as many iterations as the deepest graph of that size needs, one to see that nothing changes, and one more."""
    return nodes + 2


def roll_out(
    model: Engine,
    problems: Problems,
    limits: Int[ndarray, "batch"],
    *,
    halt_at_fixpoint: bool = True,
    start: Int8[ndarray, "batch node"] | None = None,
    advance: Advance = ignore,
) -> list[Rollout]:
    """Iterate on each problem until its state repeats, or to its limit.

    Hidden vectors may change while the state they decode to does not: there a fixed point is approximate, and
    ``halt_at_fixpoint`` says whether it stops a problem. ``start`` gives node values to begin with.
    """
    rollouts: list[Rollout | None] = [None] * len(problems)
    for rows in _groups(model, problems):
        some = problems[rows]
        tokens = encode_start(model, some, None if start is None else start[rows, : some.width])
        watch = Watch(
            start=tokens,
            limit=limits[rows].astype(np.int64),
            modulus=problems.modulus,
            exact=model.method.row.carries == "state",
            halt_at_fixpoint=halt_at_fixpoint,
        )
        told = 0
        for _ in states(model, some, tokens, watch):
            advance(len(watch.finished) - told)
            told = len(watch.finished)
        advance(len(watch.finished) - told)
        for row, rollout in watch.finished.items():
            size = problems.sizes[rows[row]]
            rollouts[rows[row]] = replace(rollout, states=rollout.states[:, :size])
    return rollouts  # pyrefly: ignore


def encode_start(model: Engine, problems: Problems, start: Int8[ndarray, "batch node"] | None) -> Tokens:
    """Encode problems, with the given values at right-hand sides or with none yet."""
    tokens = encode(problems, model.vocabulary)
    return tokens if start is None else fill_in(tokens, start, model.vocabulary)


def states(model: Engine, problems: Problems, tokens: Tokens, halt: Watch | None = None) -> Iterator[Factors]:
    """Yield the states of encoded problems, side by side, until all have halted; or for as long as they are asked for."""
    if isinstance(model, Reference):
        assert len(problems) == 1  # a group of NumPy's is one problem
        for step in model.iterate(tokens):
            state = Factors(**{name: numbers[None] for name, numbers in step.state.items()})
            yield state
            if halt is not None and halt.see(state) is None:
                return
    else:
        from latentloop.model import recurrence

        yield from recurrence.states(model, problems, tokens, halt or recurrence.Fixed(sys.maxsize))


def _groups(model: Engine, problems: Problems) -> Iterator[ndarray]:
    """Group problems of similar length, as many as attention has room for."""
    lengths = problems.lengths
    order = np.argsort(lengths, kind="stable")
    if isinstance(model, Reference):  # one after the other
        yield from order[::-1, None]
        return
    everywhere = [layer for layer in range(model.config.layers) if model.positions.window_of(layer) is None]
    heads = max(model.config.heads_of(layer) for layer in everywhere)
    while len(order):
        longest = int(lengths[order[-1]])
        room = max(1, min(256, SCORES_AT_ONCE // (heads * longest**2)))
        yield order[-room:]
        order = order[:-room]
