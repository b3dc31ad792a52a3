"""Thinking in a loop: what is carried from one application of the block to the next.

One ``unroll`` serves all latent methods. It is lazy: whoever reads it decides when to stop.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentloop.methods import Method
from latentloop.model.attention import Watch
from latentloop.model.transformer import Asides, Transformer
from latentloop.tokens.batch import Batch
from latentloop.tokens.vocabulary import SYNTAX

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

    def targets(self) -> Bool[Tensor, "batch pos"]:
        """Say which positions are right-hand sides: variables after an equals sign."""
        after_equals = F.pad(self.syntax[:, :-1] == SYNTAX.index("="), (1, 0))
        return after_equals & (self.syntax == SYNTAX.index("variable"))

    def places(self) -> Int[Tensor, "batch node"]:
        """Give the positions of right-hand sides in their order; rows with fewer than others repeat position 0."""
        targets = self.targets()
        order = torch.where(targets, torch.arange(targets.shape[1], 0, -1, device=targets.device), 0)
        found = order.topk(int(targets.sum(1).max()), dim=1).indices
        return torch.where(targets.gather(1, found), found, 0)

    def __getitem__(self, rows: Tensor | slice) -> "State":
        return State(**{name: numbers[rows] for name, numbers in self.factors().items()})


def discretise(logits: Logits, problem: State, *, pin_static: bool) -> State:
    """Take the likeliest symbol of each factor; pinned, only values are taken, and only at right-hand sides."""
    if pin_static:
        return replace(problem, value=torch.where(problem.targets(), logits["value"].argmax(-1), problem.value))
    return State(**{name: scores.argmax(-1) for name, scores in logits.items()})


def _spread(
    scores: Float[Tensor, "batch query symbol"], chosen: Tensor, length: int
) -> Float[Tensor, "batch pos symbol"]:
    """Put scores of some positions where they belong; others get zeros, and nobody reads them."""
    blank = scores.new_zeros(scores.shape[0], length, scores.shape[2])
    return blank.scatter(1, chosen[..., None].expand(scores.shape), scores)


@dataclass(frozen=True, kw_only=True)
class Step:
    """What one application of the block gives."""

    logits: Logits
    """By factor."""
    hidden: Float[Tensor, "batch query width"]
    asides: dict[str, Tensor]
    """Logits [batch, pos, value] of the read-outs that only training uses, where the model has them and is training."""


def unroll(
    model: Transformer, problem: State, method: Method, *, watch: Watch | None = None, hidden: Tensor | None = None
) -> Iterator[Step]:
    """Apply the block again and again; yield what each iteration gives.

    A discrete method re-embeds its own decisions; the others hand on hidden vectors, and the problem is read only once.
    """
    hidden = model.embed(problem.factors()) if hidden is None else hidden
    chosen = problem.places() if model.config.focus else None
    while True:
        seen: Asides = {}
        hidden = model.block(hidden, watch=watch, asides=seen, chosen=chosen)
        logits = model.read(hidden)
        asides = {name: getattr(model, name)(seen[name]) for name in model.config.asides if model.training}
        if chosen is not None:
            length = problem.value.shape[1]
            logits = {name: _spread(scores, chosen, length) for name, scores in logits.items()}
            if "partial" in asides:
                asides["partial"] = _spread(asides["partial"], chosen, length)
        yield Step(logits=logits, hidden=hidden, asides=asides)
        if method.carries == "state":
            hidden = model.embed(discretise(logits, problem, pin_static=model.config.pin_static).factors())
