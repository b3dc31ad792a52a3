"""Named points inside a model at which activations can be read or replaced, in TransformerLens' vocabulary.

A model that nobody listens to computes nothing more than one that has no taps. ``latentloop.interpret`` listens.
"""

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from torch import Tensor

NAMES = (
    "resid_pre", "q", "k", "v", "scores", "pattern", "z", "head_out", "resid_mid",
    "mlp_pre", "mlp_post", "mlp_out", "resid_post", "logits",
)  # fmt: skip
"""Where taps are. A further MLP of a layer counts on, as in ``mlp_post.1``; logits name their factor, ``logits.value``."""


@runtime_checkable
class Listener(Protocol):
    """Something that reads or replaces activations; ``layer`` is None for what belongs to no layer."""

    def wants(self, iteration: int, layer: int | None, name: str) -> bool:
        """Return whether ``record`` should be called."""
        ...

    def record(self, iteration: int, layer: int | None, name: str, value: Tensor) -> None:
        """Take note of an activation."""
        ...

    def replaced(self, iteration: int, layer: int | None, name: str, value: Tensor, start: int) -> Tensor:
        """Return what the model goes on with; ``start`` is the first query of a block of queries."""
        ...


@dataclass
class Taps:
    """All taps of one model: who listens, and the iteration it is at."""

    listeners: list[Listener] = field(default_factory=list)
    iteration: int = 0


@dataclass
class Tap:
    """The taps of one layer."""

    taps: Taps
    layer: int | None = None

    def __call__(self, name: str, value: Tensor) -> Tensor:
        """Pass an activation on, replaced and recorded as listeners wish."""
        if not self.taps.listeners:
            return value
        value = self.replaced(name, value)
        self.record(name, value)
        return value

    def wants(self, name: str) -> bool:
        """Return whether somebody wants to know an activation that takes work to compute."""
        taps = self.taps
        return any(listener.wants(taps.iteration, self.layer, name) for listener in taps.listeners)

    def replaced(self, name: str, value: Tensor, start: int = 0) -> Tensor:
        """Return an activation as listeners replace it."""
        for listener in self.taps.listeners:
            value = listener.replaced(self.taps.iteration, self.layer, name, value, start)
        return value

    def record(self, name: str, value: Tensor) -> None:
        """Pass an activation to those who want it."""
        for listener in self.taps.listeners:
            if listener.wants(self.taps.iteration, self.layer, name):
                listener.record(self.taps.iteration, self.layer, name, value)
