"""Let a model think until it stops by itself: iterate, watch for a state that repeats, and keep every state.

With a discrete state the test is exact: when a state equals the one before it, it will never change again. When it equals
an earlier one, the model goes round in a circle for ever. Both are certain, so such problems leave the batch.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Int, Int8
from numpy import ndarray
from torch import Tensor

from latentloop.methods import Method
from latentloop.model.recurrence import State, discretise, unroll
from latentloop.model.transformer import Transformer
from latentloop.task.graph import EMPTY, Problems
from latentloop.tokens.batch import Batch

Halt = Literal["fixpoint", "cap", "cycle", "depth", "fixed", "end"]
"""Why a model stopped; ``end`` is the token that closes a chain of thought."""
SCORES_AT_ONCE = 2**24
"""Attention scores a layer may hold: decides how many problems think side by side."""


@dataclass(frozen=True, kw_only=True)
class Thought:
    """All states that a model went through on one problem."""

    states: Int8[ndarray, "iteration node"]
    """Node values after 0, 1, 2, ... iterations; ``EMPTY`` where the model says no number."""
    fixpoint: int | None = None
    """First iteration that changed nothing."""
    cycle: tuple[int, int] | None = None
    """Iteration at which a circle begins, and its length."""

    @property
    def iterations(self) -> int:
        """Iterations run."""
        return len(self.states) - 1

    def at(self, iteration: int) -> Int8[ndarray, "node"]:
        """Give the state after so many iterations; past the end it is known if the state repeats."""
        if iteration > self.iterations and self.cycle is not None:
            start, length = self.cycle
            iteration = start + (iteration - start) % length
        return self.states[min(iteration, self.iterations)]


def default_cap(nodes: int) -> int:
    """Allow as many iterations as the deepest graph of that size needs, one to see that nothing changes, and one more."""
    return nodes + 2


@torch.inference_mode()
def think(
    model: Transformer,
    method: Method,
    problems: Problems,
    limits: Int[ndarray, "batch"],
    *,
    leave: bool = True,
    start: Int8[ndarray, "batch node"] | None = None,
    advance: Callable[[int], None] = lambda done: None,
) -> list[Thought]:
    """Iterate on each problem until its state repeats, or to its limit.

    Hidden vectors may change while the state they decode to does not: there a fixed point is approximate, and ``leave``
    says whether it ends the thinking. ``start`` gives node values to begin with.
    """
    thoughts: list[Thought | None] = [None] * len(problems)
    for rows in _groups(model, problems):
        batch = Batch.of(problems[rows], model.vocabulary).to(model.norm.weight.device)
        state = State.of(batch)
        if start is not None:
            given = torch.from_numpy(start[rows, : batch.target.shape[1]].astype(np.int64)).to(batch.mask.device)
            values = batch.values_at(given[None], model.vocabulary.empty)[0]
            state = State(**{**state.factors(), "value": values})
        for row, thought in _think_together(model, method, batch, state, limits[rows], leave):
            size = problems.sizes[rows[row]]
            thoughts[rows[row]] = Thought(
                states=thought.states[:, :size], fixpoint=thought.fixpoint, cycle=thought.cycle
            )
            advance(1)
    return thoughts  # pyrefly: ignore


def _groups(model: Transformer, problems: Problems) -> Iterator[ndarray]:
    """Group problems of similar length, as many as attention has room for."""
    lengths = 2 * (problems.fan_in.astype(np.int64).sum(1) + problems.sizes)
    order = np.argsort(lengths, kind="stable")
    while len(order):
        longest = int(lengths[order[-1]])
        room = max(1, min(256, SCORES_AT_ONCE // (model.config.heads * longest**2)))
        yield order[-room:]
        order = order[:-room]


def _think_together(
    model: Transformer, method: Method, batch: Batch, problem: State, limits: ndarray, leave: bool
) -> Iterator[tuple[int, Thought]]:
    """Iterate on one padded batch; yield each row's thought when it ends, and go on with the others."""
    device = batch.mask.device
    exact = method.carries == "state"
    keys = torch.randint(-(2**62), 2**62, (4, *batch.mask.shape[1:]), generator=torch.Generator().manual_seed(0)).to(
        device
    )
    alive = torch.arange(len(batch), device=device)
    mask, target, exists = batch.mask, batch.target, batch.exists
    state, hidden = problem, None
    histories = [_values(state, target, exists, model)]
    marks = [_mark(state, mask, keys)]
    fixpoints = torch.full((len(batch),), -1, device=device)
    limit = torch.from_numpy(limits.astype(np.int64)).to(device)
    iteration = 0
    while len(alive):
        iteration += 1
        step = next(unroll(model, state, method, hidden=hidden))
        hidden = None if exact else step.hidden
        following = discretise(step.logits, problem, pin_static=model.config.pin_static)
        same = _same(state, following, mask)
        state = following
        histories.append(_values(state, target, exists, model))
        mark = _mark(state, mask, keys)
        earlier = torch.stack(marks) == mark
        marks.append(mark)
        fixpoints = torch.where(same & (fixpoints < 0), iteration, fixpoints)
        circle = earlier.any(0) & ~same & exact
        ended = (iteration >= limit) | circle | (same & (exact or leave))
        if not ended.any():
            continue
        trace = torch.stack(histories).to("cpu").numpy()
        for row in torch.nonzero(ended)[:, 0].tolist():
            begin = int(earlier[:, row].int().argmax())
            yield (
                int(alive[row]),
                Thought(
                    states=trace[:, row],
                    fixpoint=int(fixpoints[row]) if fixpoints[row] >= 0 else None,
                    cycle=(begin, iteration - begin) if circle[row] else None,
                ),
            )
        going = ~ended
        alive, mask, target, exists, limit = (x[going] for x in (alive, mask, target, exists, limit))
        state, problem, fixpoints = state[going], problem[going], fixpoints[going]
        hidden = hidden[going] if hidden is not None else None
        histories, marks = [values[going] for values in histories], [mark[going] for mark in marks]


def _values(state: State, target: Tensor, exists: Tensor, model: Transformer) -> Int8[Tensor, "batch node"]:
    """Read node values off a state: numbers at right-hand sides, ``EMPTY`` for anything else."""
    symbols = state.value.gather(1, target)
    return torch.where(exists & (symbols < model.vocabulary.task.modulus), symbols, EMPTY).to(torch.int8)


def _same(state: State, following: State, mask: Tensor) -> Tensor:
    """Compare states exactly, padding aside."""
    pairs = zip(state.factors().values(), following.factors().values(), strict=True)
    return torch.stack([((a == b) | ~mask).all(1) for a, b in pairs]).all(0)


def _mark(state: State, mask: Tensor, keys: Tensor) -> Int[Tensor, "batch"]:
    """Give a 64-bit fingerprint of a state, to find earlier equals among many."""
    products = [(numbers + 1) * mask * key for numbers, key in zip(state.factors().values(), keys, strict=True)]
    return torch.stack(products).sum((0, 2))
