"""How is a value kept that is there already? Which heads it takes, and whether the value itself passes through them.

Probes hold a wrong value at their right-hand side: a model that keeps values keeps it, one that computes them anew does not.
Each head is given what it adds where the right-hand side is empty: without those that are needed the value is not kept. Then
these heads are given what they add where another wrong value is there: if answers become that one, the value is copied, from
where they attend to. Cost: three runs of some hundred probes, and one for each head.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray

from latentloop.config import MAX_FAN_IN
from latentloop.interpret.probes import RHS, Probes, Scene
from latentloop.interpret.shared import Bench
from latentloop.interpret.sinks import whole_pattern
from latentloop.interpret.subject import INTERPRET, Subject
from latentloop.model.capture import Seen, capture, patch
from latentloop.task.splits import generator

COUNT = 64
"""Probes of a scene, for each number of operands."""
NEEDED = 0.5
"""A head is needed if at most this share of the values that are kept are kept without it."""


@dataclass(frozen=True, kw_only=True)
class Keeping:
    """What becomes of wrong values at right-hand sides, and which heads that takes. Shares are of all wrong values."""

    operands: list[int]
    """Numbers of operands of the probes."""
    kept: Float[ndarray, "operands"]
    """Share that stays, ..."""
    computed: Float[ndarray, "operands"]
    """... and share that becomes what the operands give."""
    without: list[Float[ndarray, "operands _head"]]
    """By layer, share that stays where one head adds what it does when the right-hand side is empty; ..."""
    without_layer: list[Float[ndarray, "operands"]]
    """... and where all heads of the layer do."""
    itself: list[Float[ndarray, "case operands _head"]]
    """By layer, attention of the right-hand side to itself: where it is empty, and where it has a value."""
    heads: list[list[int]]
    """By layer, heads that are needed."""
    copied: Float[ndarray, "operands"]
    """Share that becomes another value where these heads add what they do when that one is there; 0 where there are none."""


def analyze(subject: Subject) -> Keeping:
    """Put wrong values where there were none, and take from single heads what they make of them."""
    operands = list(range(1, MAX_FAN_IN + 1))
    scenes = list(subject.scenes(key=4))
    runs = [[_Run(subject, scene, number, count) for number, scene in enumerate(scenes)] for count in operands]
    config = subject.model.config
    alone = [[_only(n, [head], config.layers) for head in range(config.heads_of(n))] for n in range(config.layers)]

    def share(chosen: Sequence[list[int]], *, another: bool = False) -> Float[ndarray, "operands"]:
        return np.array([np.mean([run.share(chosen, another=another) for run in some]) for some in runs])

    kept = share(_only(0, [], config.layers))
    without = [np.stack([share(chosen) for chosen in layer], axis=1) for layer in alone]
    lost = [kept.mean() - layer.mean(0) for layer in without]
    heads = [np.flatnonzero((part > 0) & (part >= (1 - NEEDED) * kept.mean())).tolist() for part in lost]
    return Keeping(
        operands=operands,
        kept=kept,
        computed=np.array([np.mean([run.computed for run in some]) for some in runs]),
        without=without,
        without_layer=[share(_only(n, list(range(len(layer))), config.layers)) for n, layer in enumerate(alone)],
        itself=[
            np.stack([np.mean([run.itself(n) for run in some], axis=0) for some in runs], axis=1)
            for n in range(config.layers)
        ],
        heads=heads,
        copied=share(heads, another=True) if any(heads) else np.zeros(len(operands)),
    )


def _only(layer: int, heads: list[int], layers: int) -> list[list[int]]:
    """Return heads by layer, of which one layer has some."""
    return [heads if number == layer else [] for number in range(layers)]


def _two_wrong(
    probes: Probes, rng: np.random.Generator, modulus: int
) -> tuple[Int[ndarray, "probe"], Int[ndarray, "probe"]]:
    """Return two values for each probe that differ, neither of which is its answer."""
    first = rng.integers(1, modulus, COUNT)
    second = 1 + (first - 1 + rng.integers(1, modulus - 1, COUNT)) % (modulus - 1)
    return (probes.answers + first) % modulus, (probes.answers + second) % modulus


class _Run:
    """The probes of one scene: empty, with a wrong value, and with another one."""

    def __init__(self, subject: Subject, scene: Scene, number: int, operands: int) -> None:
        self.model, modulus = subject.model, subject.task.modulus
        rng = generator(subject.settings.seed, INTERPRET, 17, number, operands)
        values = rng.integers(0, modulus, (COUNT, MAX_FAN_IN))
        probes = scene.probes(values=values, operands=operands)
        self.wrong, self.other = _two_wrong(probes, rng, modulus)
        self.bench = Bench(self.model, probes.holding(self.wrong), chunk=COUNT)
        self.empty, _ = self._seen(Bench(self.model, probes, chunk=COUNT))
        self.another, _ = self._seen(Bench(self.model, probes.holding(self.other), chunk=COUNT))
        self.there, said = self._seen(self.bench)
        self.computed = float((said == probes.answers).mean())

    def _seen(self, bench: Bench) -> tuple[Seen, ndarray]:
        with capture(self.model, ["head_out", "pattern"]) as seen:
            said = bench.answers().numpy()
        return seen, said

    def itself(self, layer: int) -> Float[ndarray, "case head"]:
        """Return each head's attention from the right-hand side to itself: empty, and with a value."""
        found = []
        for seen in (self.empty, self.there):
            pattern = seen[0, layer, "pattern"][:, :, -1:].cpu()
            found.append(whole_pattern(pattern, self.bench.length)[..., 0, -1].mean(0).numpy())
        return np.stack(found)

    def share(self, chosen: Sequence[list[int]], *, another: bool) -> float:
        """Return the share of values that stay where ``chosen`` heads add what they do without one; or that become the other
        one, where they add what they do with that."""
        source, wanted = (self.another, self.other) if another else (self.empty, self.wrong)
        with ExitStack() as stack:
            for layer, heads in enumerate(chosen):
                if heads:
                    value: torch.Tensor = source[0, layer, "head_out"]
                    place = [self.bench.position(RHS, layer)]
                    stack.enter_context(patch(self.model, "head_out", value, layer=layer, positions=place, heads=heads))
            return float((self.bench.answers().numpy() == wanted).mean())
