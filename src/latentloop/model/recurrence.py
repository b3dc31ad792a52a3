"""Reasoning in a loop: a state goes through the block, a decision is made, and the decision is the next state.

Whatever runs a latent model goes through ``update``: once, as certificates and most analyses do, or again and again by
``iterate``, as solving, evaluating and stressing do, and the training of methods that carry hidden vectors.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool
from numpy import ndarray

from latentloop.model.lookups import Lookups
from latentloop.model.transformer import Output, Transformer
from latentloop.task.graph import Problems
from latentloop.tokens.factored import Factors, Tokens
from latentloop.tokens.state import Layout, State, to_tensors


@runtime_checkable
class Halt(Protocol):
    """Decides which problems of a batch go on; see ``latentloop.model.watch``."""

    def see(self, state: Factors) -> Bool[ndarray, "batch"] | slice | None:
        """Take in the next state; return the rows that go on, or None if all of them stop."""
        ...


def update(model: Transformer, state: State, layout: Layout, lookups: Lookups | None = None) -> tuple[State, Output]:
    """Apply the block once, then decide."""
    output = model(state, layout, lookups)
    return decide(model, output, state, layout), output


def iterate(model: Transformer, state: State, layout: Layout, halt: Halt) -> Iterator[tuple[State, Output]]:
    """Update until every problem has stopped; yield each state and the output it was decided from."""
    going: ndarray | slice | None = slice(None)
    lookups = Lookups() if model.keeps_lookups(layout) else None
    while going is not None:
        state, layout = state[going], layout[going]
        state, output = update(model, state, layout, lookups)
        yield state, output
        going = halt.see(state)


def decide(model: Transformer, output: Output, state: State, layout: Layout) -> State:
    """Take the likeliest symbol of each factor that is read, and what else the method carries."""
    symbols = {name: scores.argmax(-1) for name, scores in output.logits.items()}
    if model.method.pin_static:  # only values change, and only at right-hand sides
        symbols["value"] = layout.write(state.value, symbols["value"])
    hidden = output.hidden if model.method.row.carries == "hidden" else None
    return replace(state, **symbols, hidden=hidden, iteration=state.iteration + 1)


@torch.inference_mode()  # as a decorator it ends at every yield: the caller may train meanwhile
def states(model: Transformer, problems: Problems, tokens: Tokens, halt: Halt) -> Iterator[State]:
    """Yield the states of encoded problems, computed on the model's device."""
    device = model.norm.weight.device
    state, layout = to_tensors(problems, tokens)
    for reached, _ in iterate(model, state.to(device), layout.to(device), halt):
        yield reached


@dataclass
class Fixed:
    """Stop after a number of iterations."""

    iterations: int
    done: int = 0

    def see(self, state: Factors) -> slice | None:
        """Count an iteration."""
        self.done += 1
        return slice(None) if self.done < self.iterations else None
