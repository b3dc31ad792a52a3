"""Roll a model out on many problems: group them by length, iterate each group, keep every state."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Int, Int8
from numpy import ndarray

from latentloop.halting import Rollout
from latentloop.model.recurrence import iterate
from latentloop.model.transformer import Transformer
from latentloop.model.watch import Watch
from latentloop.task.graph import Problems
from latentloop.tokens.state import encode_state, with_values

SCORES_AT_ONCE = 2**24
"""Attention scores a layer may hold: decides how many problems are solved side by side."""
Advance = Callable[[int], None]


def ignore(done: int) -> None:
    """Take no notice of progress."""


def default_cap(nodes: int) -> int:
    """Allow as many iterations as the deepest graph of that size needs, one to see that nothing changes, and one more."""
    return nodes + 2


@torch.inference_mode()
def roll_out(
    model: Transformer,
    problems: Problems,
    limits: Int[ndarray, "batch"],
    *,
    leave: bool = True,
    start: Int8[ndarray, "batch node"] | None = None,
    advance: Advance = ignore,
) -> list[Rollout]:
    """Iterate on each problem until its state repeats, or to its limit.

    Hidden vectors may change while the state they decode to does not: there a fixed point is approximate, and ``leave``
    says whether it stops a problem. ``start`` gives node values to begin with.
    """
    device = model.norm.weight.device
    rollouts: list[Rollout | None] = [None] * len(problems)
    for rows in _groups(model, problems):
        state, layout = encode_state(problems[rows], model.vocabulary)
        if start is not None:
            state = with_values(state, layout, start[rows, : layout.rhs.shape[1]], model.vocabulary)
        state, layout = state.to(device), layout.to(device)
        watch = Watch(
            start=state,
            layout=layout,
            limit=torch.from_numpy(limits[rows].astype(np.int64)).to(device),
            modulus=problems.modulus,
            exact=model.method.row.carries == "state",
            leave=leave,
        )
        told = 0
        for _ in iterate(model, state, layout, watch):
            advance(len(watch.finished) - told)
            told = len(watch.finished)
        advance(len(watch.finished) - told)
        for row, rollout in watch.finished.items():
            size = problems.sizes[rows[row]]
            rollouts[rows[row]] = replace(rollout, states=rollout.states[:, :size])
    return rollouts  # pyrefly: ignore


def _groups(model: Transformer, problems: Problems) -> Iterator[ndarray]:
    """Group problems of similar length, as many as attention has room for."""
    lengths = 2 * (problems.fan_in.astype(np.int64).sum(1) + problems.sizes)
    order = np.argsort(lengths, kind="stable")
    everywhere = [layer for layer in range(model.config.layers) if model.positions.window_of(layer) is None]
    heads = max(model.config.heads_of(layer) for layer in everywhere)
    while len(order):
        longest = int(lengths[order[-1]])
        room = max(1, min(256, SCORES_AT_ONCE // (heads * longest**2)))
        yield order[-room:]
        order = order[:-room]
