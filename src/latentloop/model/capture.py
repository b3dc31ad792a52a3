"""Read and replace activations around any use of a model, by (iteration, layer, name).

    with capture(model, ["pattern", "resid_post"]) as seen:
        trained.solve("20 = x7 ; x7 = x8")
    seen[0, 1, "pattern"]  # first iteration, second layer: [batch, head, query, key]

Names are TransformerLens': see ``latentloop.model.tap.NAMES``. Nothing is left behind, whatever happens inside. Two axes depend
on the model: in a layer with a window, keys are counted back from the query (the last axis is the distance); in the last layer
of a model that reads values alone (``pin_static``), queries are right-hand sides, one for each node.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from latentloop.errors import UserError, nearest
from latentloop.model.tap import NAMES, Listener, Taps

Key = tuple[int, int | None, str]
Replacement = Tensor | float | Callable[[Tensor], Tensor]
"""What takes an activation's place: a value that broadcasts to it, or a function of it."""
BY_HEAD = ("q", "k", "v", "scores", "pattern", "z", "head_out")
"""Activations [batch, head, position, ..]; others are [batch, position, ..]."""


@runtime_checkable
class Tapped(Protocol):
    """A model with taps, such as ``latentloop.model.transformer.Transformer``."""

    taps: Taps


class Seen:
    """Captured activations by (iteration, layer, name); the layer of logits is None."""

    def __init__(self, names: Iterable[str], iterations: Sequence[int] | None, layers: Sequence[int] | None) -> None:
        self.names, self.iterations, self.layers = set(names), iterations, layers
        self.found: dict[Key, list[Tensor]] = {}

    def wants(self, iteration: int, layer: int | None, name: str) -> bool:
        """Return whether an activation is to be kept."""
        asked = name in self.names or name.partition(".")[0] in self.names
        here = self.layers is None or layer is None or layer in self.layers
        return asked and here and (self.iterations is None or iteration in self.iterations)

    def record(self, iteration: int, layer: int | None, name: str, value: Tensor) -> None:
        """Keep an activation."""
        self.found.setdefault((iteration, layer, name), []).append(value.detach())

    def replaced(self, iteration: int, layer: int | None, name: str, value: Tensor, start: int) -> Tensor:
        """Return the activation as it is."""
        return value

    def __getitem__(self, key: Key) -> Tensor:
        batches = self.all(*key)
        if len(batches) > 1:
            raise UserError(f"{key} was captured in {len(batches)} batches: take one of seen.all{key}")
        return batches[0]

    def all(self, iteration: int, layer: int | None, name: str) -> list[Tensor]:
        """Return an activation of every batch that was run, in their order."""
        if (iteration, layer, name) not in self.found:
            raise UserError(f"{(iteration, layer, name)} was not captured; there are: {self._summary()}")
        return self.found[iteration, layer, name]

    def __contains__(self, key: Key) -> bool:
        return key in self.found

    def __iter__(self) -> Iterator[Key]:
        return iter(self.found)

    def __len__(self) -> int:
        return len(self.found)

    def _summary(self) -> str:
        iterations = sorted({key[0] for key in self.found})
        layers = sorted({key[1] for key in self.found if key[1] is not None})
        return f"iterations {iterations}, layers {layers}, names {sorted({key[2] for key in self.found})}"


class _Patch:
    """Replaces one activation."""

    def __init__(
        self,
        name: str,
        value: Replacement,
        layer: int | None,
        iterations: Sequence[int] | None,
        positions: Sequence[int] | None,
        heads: Sequence[int] | None,
    ) -> None:
        self.name, self.value, self.layer = name, value, layer
        self.iterations, self.positions, self.heads = iterations, positions, heads
        self.offered: set[tuple[int | None, str]] = set()
        self.fired = False

    def wants(self, iteration: int, layer: int | None, name: str) -> bool:
        """Return whether this is the activation to replace, so that it is computed."""
        self.offered.add((layer, name))
        here = name == self.name and layer == self.layer
        return here and (self.iterations is None or iteration in self.iterations)

    def check(self) -> None:
        """Raise a UserError if nothing was replaced: what came out would pass for the effect of a patch."""
        if self.fired:
            return
        place = "" if self.layer is None else f" of layer {self.layer}"
        if (self.layer, self.name) in self.offered:
            raise UserError(
                f"nothing was patched: {self.name}{place} was computed, but not at iterations {self.iterations}, positions "
                f"{self.positions}, heads {self.heads} (None: all)"
            )
        kind = self.name.partition(".")[0]
        near = sorted({(-1 if layer is None else layer, name) for layer, name in self.offered if name.startswith(kind)})
        known = ", ".join(name if layer < 0 else f"{name} of layer {layer}" for layer, name in near)
        raise UserError(
            f"nothing was patched: there was no {self.name}{place}; there was {known or 'no such activation'}"
        )

    def record(self, iteration: int, layer: int | None, name: str, value: Tensor) -> None:
        """Take no notice."""

    def replaced(self, iteration: int, layer: int | None, name: str, value: Tensor, start: int) -> Tensor:
        """Return the activation with the chosen positions and heads replaced; ``value`` may be a block of queries."""
        if not self.wants(iteration, layer, name):
            return value
        by_head = name.partition(".")[0] in BY_HEAD
        axis = 2 if by_head else 1
        if callable(self.value):
            new = self.value(value)
        else:
            new = torch.as_tensor(self.value, dtype=value.dtype, device=value.device)
            new = new.reshape((1,) * (value.ndim - new.ndim) + new.shape)
            if new.shape[axis] > 1:  # the part of this block of queries
                new = new.narrow(axis, start, value.shape[axis])
            if name in ("scores", "pattern"):  # and of the keys it sees
                new = new[..., : value.shape[-1]]
        here = torch.ones_like(value, dtype=torch.bool)
        rows = torch.arange(start, start + value.shape[axis], device=value.device)
        if self.positions is not None:
            chosen = torch.isin(rows, torch.tensor(list(self.positions), device=value.device))
            here = here & chosen.view(-1, *[1] * (value.ndim - axis - 1))
        if self.heads is not None:
            heads = torch.arange(value.shape[1], device=value.device)
            wanted = torch.isin(heads, torch.tensor(list(self.heads), device=value.device))
            here = here & wanted.view(-1, *[1] * (value.ndim - 2))
        self.fired = self.fired or bool(here.any())
        return torch.where(here, new.expand_as(value), value)


@contextmanager
def capture(
    model: Tapped,
    names: Iterable[str],
    *,
    iterations: Sequence[int] | None = None,
    layers: Sequence[int] | None = None,
) -> Iterator[Seen]:
    """Keep activations of these names while the block runs; ``iterations`` and ``layers`` keep fewer of them."""
    names = list(names)
    for name in names:
        check_name(name)
    with _listening(model, Seen(names, iterations, layers)) as seen:
        yield seen


@contextmanager
def patch(
    model: Tapped,
    name: str,
    value: Replacement,
    *,
    layer: int | None = None,
    iterations: Sequence[int] | None = None,
    positions: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
) -> Iterator[None]:
    """Replace an activation by ``value`` (whole, anything that broadcasts to it, or a function of it) while the block runs.

    A function sees scores and patterns a block of queries at a time.

    Only at the given layer, iterations, positions (of queries where it has them, else of tokens) and heads; None: all,
    but of ``layer``, which must be given for everything except logits. Where nothing is replaced, a UserError says so.
    """
    check_name(name)
    if heads is not None and name not in BY_HEAD:
        raise UserError(f"{name} has no heads; those that have are {', '.join(BY_HEAD)}")
    if (layer is None) != name.startswith("logits"):
        raise UserError(f"a patch of {name} needs {'no layer' if layer is not None else 'a layer'}")
    with _listening(model, _Patch(name, value, layer, iterations, positions, heads)) as listener:
        yield
    listener.check()


def check_name(name: str) -> None:
    """Raise a UserError if no activation has that name."""
    if name.partition(".")[0] not in NAMES:
        raise UserError(f"unknown activation {name!r}: {nearest(name, NAMES)}")


@contextmanager
def _listening(model: Tapped, listener: Listener) -> Iterator:
    model.taps.listeners.append(listener)
    try:
        yield listener
    finally:
        model.taps.listeners.remove(listener)
