"""Where does an operand's value pass through? Patch one activation from a run with another value, and see the answer move.

Two samples differ in the value of one operand (or in its name). What a layer's attention adds, or the residual stream, at
one token of the probe is taken from the one and put into the other. The answer moves if it becomes the first sample's, which
is what the arithmetic says of the patched value. What the first layer is for is decided here, by what moves answers, not by
what varies. Cost: two runs a patch, of some hundred probes each.
"""

from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from latentloop.config import MAX_FAN_IN
from latentloop.interpret.groups import Heads
from latentloop.interpret.probes import OPERANDS, RHS, Probes, Scene, labels
from latentloop.interpret.shared import Bench
from latentloop.interpret.subject import INTERPRET, Subject
from latentloop.model.capture import capture, patch
from latentloop.task.splits import generator

KINDS = ("value", "name")
MOVED = 0.9
"""Least share of answers that move, for a part to be what moves them."""


@dataclass(frozen=True, kw_only=True)
class GroupFlow:
    """A group of heads, patched alone."""

    layer: int
    kind: str
    """names_at_rhs or values_at_rhs: heads of this operand; names_shared or values_shared: heads that serve several;
    names_together or values_together: both; lookups: where the operand stands."""
    operand: str
    heads: list[int]
    moved: float
    """Share of answers that follow the patched value."""


@dataclass(frozen=True, kw_only=True)
class Flow:
    """How often the answer moves."""

    positions: list[str]
    attention: dict[str, Float[ndarray, "layer operand position"]]
    """By kind, value or name: share of answers that move with what a layer's attention adds at a token; NaN at tokens of the
    last layer that nothing reads."""
    residual: dict[str, Float[ndarray, "layer operand position"]]
    """The same for the residual stream after a layer."""
    gathered: Float[ndarray, "operand"]
    """Share of answers that move with what the attention of all layers after the first, patched together, brings to the
    right-hand side; of a model of one layer, with what that layer's brings."""
    groups: list[GroupFlow]
    right: float
    """Share of unpatched answers that are right."""
    pairs: int

    @property
    def names(self) -> Float[ndarray, "operand"]:
        """Share of answers that move with the names that the first layer brings to the right-hand side."""
        return self.attention["name"][0, :, -1]

    @property
    def lookups(self) -> Float[ndarray, "operand"]:
        """Share of answers that move with the values that the first layer brings to where operands stand."""
        return np.array([self.attention["value"][0, n, self.positions.index(x)] for n, x in enumerate(OPERANDS)])

    @property
    def first_layer(self) -> Literal["names", "look-up", "neither"]:
        """What the first layer is for: it brings the names of all operands to the right-hand side, or looks values up."""
        if len(self.attention["name"]) < 2:
            return "neither"  # the first layer is the last
        names, lookups = self.names.min(), self.lookups.min()
        if max(names, lookups) < MOVED:
            return "neither"
        return "names" if names >= lookups else "look-up"


def pairs(scene: Scene, operand: int, kind: str, rng: np.random.Generator, count: int) -> Probes:
    """Return samples to patch, then as many samples to patch from, which differ in one operand."""
    modulus = scene.task.modulus
    least = 1 if scene.task.operations[0] == "*" else 0  # a product with 0 would not move
    values = rng.integers(least, modulus, (count, MAX_FAN_IN))
    other = values.copy()
    if kind == "value":
        other[:, operand] = (values[:, operand] + rng.integers(1, modulus, count)) % modulus
        return scene.probes(values=np.concatenate([values, other]))
    values = np.maximum(scene.values, least)
    nodes = np.repeat(scene.operands[None], 2 * count, axis=0)
    held = scene.probes(values=values[None]).state[0, :-1]
    others = np.setdiff1d(np.flatnonzero(scene.base.names[0] != scene.rhs), nodes[0])
    if (held[others] == values[operand]).all():  # as in a small problem: the operand gets another value
        values[operand] = least + (values[operand] + 1 - least) % (modulus - least)
    others = others[held[others] != values[operand]]
    nodes[:, operand] = np.concatenate([nodes[:count, operand], rng.choice(others, count)])
    return scene.probes(values=np.repeat(values[None], 2 * count, axis=0), chosen=nodes)


def analyze(subject: Subject, heads: Heads) -> Flow:
    """Patch every layer, token and group, for every operand, with other values and with other names."""
    layers, positions = len(subject.model.layers), labels()
    shape = (layers, MAX_FAN_IN, len(positions))
    moved = {(what, kind): np.zeros(shape) for what in ("attention", "residual") for kind in KINDS}
    for found in moved.values():
        found[-1, :, :-1] = np.nan  # never used, and not patched
    gathered = np.zeros(MAX_FAN_IN)
    by_group: dict[tuple[int, str, str], list[float]] = {}
    members: dict[tuple[int, str, str], list[int]] = {}
    right: list[float] = []
    for number, scene in enumerate(subject.scenes(key=2)):
        rng = generator(subject.settings.seed, INTERPRET, 3, number)
        for kind in KINDS:
            for operand in range(MAX_FAN_IN):
                pair = Pair(subject, pairs(scene, operand, kind, rng, subject.settings.pairs))
                right.append(pair.right)
                if kind == "value":
                    gathered[operand] += pair.moved_by_later() / subject.settings.scenes
                for layer in range(layers):
                    for place, label in enumerate(positions):
                        if layer == layers - 1 and label != RHS:
                            continue
                        share = pair.moved("head_out", layer, label)
                        moved["attention", kind][layer, operand, place] += share / subject.settings.scenes
                        share = pair.moved("resid_post", layer, label)
                        moved["residual", kind][layer, operand, place] += share / subject.settings.scenes
                    for group, label, chosen in _groups(heads, layer, kind, operand):
                        share = pair.moved("head_out", layer, label, chosen)
                        by_group.setdefault((layer, group, OPERANDS[operand]), []).append(share)
                        members[layer, group, OPERANDS[operand]] = chosen
    groups = [
        GroupFlow(
            layer=key[0],
            kind=key[1],
            operand=key[2],
            heads=members[key],
            moved=float(np.mean(shares)),
        )
        for key, shares in by_group.items()
    ]
    return Flow(
        positions=positions,
        attention={kind: moved["attention", kind] for kind in KINDS},
        residual={kind: moved["residual", kind] for kind in KINDS},
        gathered=gathered,
        groups=groups,
        right=float(np.mean(right)),
        pairs=subject.settings.pairs * subject.settings.scenes,
    )


class Pair:
    """Samples to patch and samples to patch from, with the latter's activations."""

    def __init__(self, subject: Subject, probes: Probes) -> None:
        count = len(probes) // 2
        self.model = subject.model
        self.bench = Bench(subject.model, probes, chunk=count)
        self.before, self.after = probes.answers[:count], probes.answers[count:]
        with capture(self.model, ["head_out", "resid_post"]) as self.seen:
            other = self.bench.answers(slice(count, 2 * count))
        plain = self.bench.answers(slice(0, count))
        self.right = float(np.mean([(plain.numpy() == self.before).mean(), (other.numpy() == self.after).mean()]))

    def moved(self, name: str, layer: int, label: str, heads: list[int] | None = None) -> float:
        """Return the share of answers that become those of the other samples."""
        return self._moved([self._patch(name, layer, label, heads)])

    def moved_by_later(self) -> float:
        """Return the same for attention at the right-hand side in all layers after the first together, or in the only one."""
        layers = len(self.model.layers)
        return self._moved([self._patch("head_out", layer, RHS) for layer in range(min(1, layers - 1), layers)])

    def _patch(self, name: str, layer: int, label: str, heads: list[int] | None = None) -> AbstractContextManager:
        value: Tensor = self.seen[0, layer, name]
        return patch(self.model, name, value, layer=layer, positions=[self.bench.position(label, layer)], heads=heads)

    def _moved(self, patches: list[AbstractContextManager]) -> float:
        with ExitStack() as stack:
            for one in patches:
                stack.enter_context(one)
            answers = self.bench.answers(slice(0, len(self.before))).numpy()
        able = self.after != self.before  # with some operations not all answers can move
        return float((answers == self.after)[able].mean()) if able.any() else 0.0


def _groups(heads: Heads, layer: int, kind: str, operand: int) -> list[tuple[str, str, list[int]]]:
    """List what to patch in a layer for an operand: the kind of group, the token, and the heads; no empty group."""
    label, found = OPERANDS[operand], heads.layers[layer]
    own, shared = (
        (found.names_at_rhs[label], found.names_shared)
        if kind == "name"
        else (found.values_at_rhs[label], found.shared)
    )
    listed = [(f"{kind}s_at_rhs", RHS, own), (f"{kind}s_shared", RHS, shared)]
    if own and shared:
        listed.append((f"{kind}s_together", RHS, sorted(own + shared)))
    if kind == "value" and layer < len(heads.layers) - 1:
        listed.append(("lookups", label, found.lookups))
    return [(group, place, some) for group, place, some in listed if some]
