"""Thinking in a loop: what is carried from one application of the block to the next.

One ``unroll`` serves all latent methods. It is lazy: whoever reads it decides when to stop.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from jaxtyping import Int
from torch import Tensor

from latentloop.methods import Method
from latentloop.model.attention import Watch
from latentloop.model.transformer import Transformer
from latentloop.tokens.batch import Batch

Logits = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class State:
    """A discrete state: four factors at every position."""

    syntax: Int[Tensor, "batch pos"]
    variable: Int[Tensor, "batch pos"]
    operation: Int[Tensor, "batch pos"]
    value: Int[Tensor, "batch pos"]

    @classmethod
    def of(cls, batch: Batch) -> "State":
        """Give the state before the first iteration: the problem, and nothing computed."""
        return State(syntax=batch.syntax, variable=batch.variable, operation=batch.operation, value=batch.value)

    def factors(self) -> dict[str, Tensor]:
        """Give the factors by name."""
        return vars(self)

    def __getitem__(self, rows: Tensor | slice) -> "State":
        return State(**{name: numbers[rows] for name, numbers in self.factors().items()})


def discretise(logits: Logits, problem: State, *, pin_static: bool) -> State:
    """Take the likeliest symbol of each factor; pinned, only values are taken."""
    if pin_static:
        return replace(problem, value=logits["value"].argmax(-1))
    return State(**{name: scores.argmax(-1) for name, scores in logits.items()})


def unroll(
    model: Transformer, problem: State, method: Method, *, watch: Watch | None = None, hidden: Tensor | None = None
) -> Iterator[tuple[Logits, Tensor]]:
    """Apply the block again and again; yield the logits and the hidden vectors after each iteration.

    A discrete method re-embeds its own decisions; the others hand on hidden vectors, and the problem is read only once.
    """
    hidden = model.embed(problem.factors()) if hidden is None else hidden
    while True:
        hidden = model.block(hidden, watch=watch)
        logits = model.read(hidden)
        yield logits, hidden
        if method.carries == "state":
            hidden = model.embed(discretise(logits, problem, pin_static=model.config.pin_static).factors())
