"""Which heads move which operand? The variance of every head's output when one name, or one value, changes.

Relative variance of a head, over samples that differ in one thing only: tr(Cov(output)) / E[|output|^2], at every token of
the probe. Groups follow from it by a rule, not by eye: a head counts where it has a share of what all heads of its layer
vary by, however large another head's output is that has nothing to do with it. A look-up may be shared out among heads by
name, so it is probed with many names. Cost: some 130 probes a name and 23 a value, for every scene.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray
from torch import Tensor

from latentloop.interpret.probes import (
    OPERANDS,
    RHS,
    Probes,
    labels,
    varied_literals,
    varied_names,
    varied_operations,
    varied_values,
)
from latentloop.interpret.shared import Bench
from latentloop.interpret.subject import Subject
from latentloop.model.capture import capture
from latentloop.model.transformer import Transformer

LOOKUP_SCENES = 5
"""Times as many scenes to find look-ups in as for all else."""
OTHERS = "others"
FREE_NAMES = 32
"""Names to vary a right-hand side over, where they must be free."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What makes groups. It is kept with what it made, so that stored results are regrouped as they were."""

    threshold: float = 0.1
    """Least relative variance of a head that belongs to a group."""
    dominance: float = 2.0
    """A head belongs to what moves it this many times as much as anything else does."""
    least_share: float = 0.02
    """Least share of the variance of all heads that a head of a group has."""
    silent: float = 0.001
    """A head whose squared output is below this share of the largest one's is ignored."""
    mixed: float = 0.1
    """Largest share of an operand's variance in heads that serve several, where operands have heads of their own."""
    served: float = 0.1
    """Least share of all operands probed that a look-up head finds the value of."""


RULE = Rule()


@dataclass(frozen=True, kw_only=True)
class LayerHeads:
    """One layer: what its heads' outputs depend on."""

    by_name: Float[ndarray, "place position head"]
    """Relative variance when the name of VAR0, VAR1, VAR2 or RHS changes, at each token of the probe."""
    by_value: Float[ndarray, "operand position head"]
    """Relative variance when a value changes."""
    name_variance: Float[ndarray, "place head"]
    """Variance at the right-hand side when a name changes: the numerator ..."""
    name_norm: Float[ndarray, "place head"]
    """... and the mean squared norm: the denominator."""
    variance: Float[ndarray, "operand head"]
    """The same when a value changes."""
    norm: Float[ndarray, "operand head"]
    names_at_rhs: dict[str, list[int]]
    """Groups of heads that bring an operand's name to the right-hand side: what changes with the name and not the value."""
    values_at_rhs: dict[str, list[int]]
    """Groups of heads that bring an operand's value to the right-hand side."""
    lookup_share: Float[ndarray, "head"]
    """Share of operands, of many names, whose value moves the head's output where the operand stands."""
    by_literal: Float[ndarray, "head"]
    """Relative variance at the right-hand side of a leaf, when the number it is defined by changes."""
    by_operation: Float[ndarray, "head"]
    """Relative variance at the right-hand side of the probe, when its operations change; 0 where there is one only."""
    rule: Rule

    @property
    def lookups(self) -> list[int]:
        """Heads that bring the values of operands to where these stand, be it those of some names only."""
        return np.flatnonzero(self.lookup_share >= self.rule.served).tolist()

    @property
    def shared(self) -> list[int]:
        """Heads without a group of their own whose output at the right-hand side depends on some operand's value."""
        moved = moves(self.by_value[:, -1], self.variance, self.norm.mean(0), self.rule)
        return [head for head in self.values_at_rhs[OTHERS] if moved[:, head].any()]

    @property
    def names_shared(self) -> list[int]:
        """Heads without a group of their own that bring some operand's name, and not its value, to the right-hand side."""
        moved = moves(self.by_name[:, -1], self.name_variance, self.name_norm.mean(0), self.rule)[: len(OPERANDS)]
        moved &= ~by_value_too(self.by_name, self.by_value, self.rule)
        return [head for head in self.names_at_rhs[OTHERS] if moved[:, head].any()]

    @property
    def shared_by_operand(self) -> Float[ndarray, "operand"]:
        """The share of each operand's variance that lies in heads which serve several."""
        return shares(self.variance)[:, self.shared].sum(1)

    @property
    def disjoint(self) -> bool:
        """Whether every operand's value has heads of its own, and next to nothing comes through heads that serve several."""
        own = all(self.values_at_rhs[place] for place in OPERANDS)
        return own and bool(self.shared_by_operand.max() <= self.rule.mixed)

    def groups(self, *, looks_up: bool) -> dict[str, list[int]]:
        """Return all groups that are not empty, by what they do; not every layer can look anything up."""
        found = {f"name of {place}": some for place, some in self.names_at_rhs.items() if place != OTHERS}
        found["names, shared"] = self.names_shared
        found |= {f"value of {place}": some for place, some in self.values_at_rhs.items() if place != OTHERS}
        found["values, shared"] = self.shared
        found["look-up"] = self.lookups if looks_up else []
        for name, ratio in (("literal", self.by_literal), ("operation", self.by_operation)):
            taken = {head for some in found.values() for head in some}
            found[name] = [head for head in np.flatnonzero(ratio >= self.rule.threshold).tolist() if head not in taken]
        named = {head for some in found.values() for head in some}
        found[OTHERS] = [head for head in range(self.norm.shape[1]) if head not in named]
        return {name: some for name, some in found.items() if some}


@dataclass(frozen=True, kw_only=True)
class Heads:
    """All layers, and the rule that made groups."""

    positions: list[str]
    layers: list[LayerHeads]
    rule: Rule
    windows: list[int | None]
    """Tokens that each layer sees, the query included; None: all of them."""

    @property
    def sees_definitions(self) -> bool:
        """Whether the last layer can see beyond an equation, to where its operands are defined."""
        return self._sees(-1)

    def groups(self, layer: int) -> dict[str, list[int]]:
        """Return all groups of a layer that are not empty, by what they do.

        Only a layer that sees definitions can look values up; of the last one nothing but right-hand sides is used.
        """
        return self.layers[layer].groups(looks_up=self._sees(layer) and layer != len(self.layers) - 1)

    def _sees(self, layer: int) -> bool:
        window = self.windows[layer]
        return window is None or window > len(self.positions)


def moments(outputs: Float[Tensor, "sample *more width"]) -> tuple[Float[Tensor, "*more"], Float[Tensor, "*more"]]:
    """Return the trace of the covariance over samples, and the mean squared norm."""
    outputs = outputs.double()
    variance = (outputs - outputs.mean(0)).square().sum(-1).mean(0)
    return variance, outputs.square().sum(-1).mean(0)


def relative_variance(variance: ndarray, norm: ndarray) -> ndarray:
    """Return variance / norm, 0 where a head's output is 0."""
    return np.divide(variance, norm, out=np.zeros_like(variance), where=norm > 0)


def shares(variance: Float[ndarray, "place head"]) -> Float[ndarray, "place head"]:
    """Return each head's share of the variance of all heads, 0 where there is none."""
    return relative_variance(variance, np.broadcast_to(variance.sum(-1, keepdims=True), variance.shape))


def moves(
    ratio: Float[ndarray, "place head"],
    variance: Float[ndarray, "place head"],
    norm: Float[ndarray, "head"],
    rule: Rule = RULE,
) -> Bool[ndarray, "place head"]:
    """Return which places move which heads: by enough of a head's own output, and of what all heads vary by."""
    heard = norm >= rule.silent * norm.max()
    return (ratio >= rule.threshold) & (shares(variance) >= rule.least_share) & heard


def find_groups(
    ratio: Float[ndarray, "place head"],
    variance: Float[ndarray, "place head"],
    norm: Float[ndarray, "head"],
    places: tuple[str, ...],
    rule: Rule = RULE,
) -> dict[str, list[int]]:
    """Put each head into the group of the place that moves it most, or with the others where none clearly does."""
    groups: dict[str, list[int]] = {place: [] for place in (*places, OTHERS)}
    moved = moves(ratio, variance, norm, rule)
    for head in range(ratio.shape[1]):
        most = int(ratio[:, head].argmax())
        best, second = np.sort(ratio[:, head])[::-1][:2]
        clear = moved[most, head] and best >= rule.dominance * second
        groups[places[most] if clear else OTHERS].append(head)
    return groups


def by_value_too(
    by_name: Float[ndarray, "place position head"], by_value: Float[ndarray, "operand position head"], rule: Rule = RULE
) -> Bool[ndarray, "operand head"]:
    """Return which heads an operand's value alone moves as well as its name does, at the right-hand side."""
    return by_value[:, -1] >= by_name[: len(OPERANDS), -1] / rule.dominance


def head_outputs(
    model: Transformer, probes: Probes, before: int = 0
) -> list[Float[Tensor, "sample head position width"]]:
    """Return what each head of each layer adds at each token of the probe, and at some tokens before it."""
    bench = Bench(model, probes)
    found: list[list[Tensor]] = [[] for _ in model.layers]
    for rows in bench.chunks():
        with capture(model, ["head_out"]) as seen:
            bench.run(rows)
        for layer, parts in enumerate(found):
            parts.append(seen[0, layer, "head_out"][:, :, -len(bench.labels) - before :].cpu())
    return [torch.cat(parts) for parts in found]


def analyze(subject: Subject) -> Heads:
    """Vary every name and every value, one at a time."""
    positions = labels()
    names = _moments(subject, "name")
    values = _moments(subject, "value")
    literals, operations = _others(subject)
    lookup_shares = _lookup_shares(subject)
    layers = []
    for layer in range(len(subject.model.layers)):
        name_variance, name_norm = names[layer]
        value_variance, value_norm = values[layer]
        by_name = relative_variance(name_variance, name_norm)  # [place, position, head]
        by_value = relative_variance(value_variance, value_norm)
        layers.append(
            LayerHeads(
                by_name=by_name,
                by_value=by_value,
                name_variance=name_variance[:, -1],
                name_norm=name_norm[:, -1],
                variance=value_variance[:, -1],
                norm=value_norm[:, -1],
                names_at_rhs=_names_at_rhs(by_name, by_value, name_variance[:, -1], name_norm[:, -1]),
                values_at_rhs=find_groups(by_value[:, -1], value_variance[:, -1], value_norm[:, -1].mean(0), OPERANDS),
                lookup_share=lookup_shares[layer],
                by_literal=literals[layer],
                by_operation=operations[layer],
                rule=RULE,
            )
        )
    windows = [subject.model.positions.window_of(layer) for layer in range(len(layers))]
    return Heads(
        positions=positions,
        layers=layers,
        rule=RULE,
        windows=[None if window is None else window.shape[-1] for window in windows],
    )


def _names_at_rhs(by_name: ndarray, by_value: ndarray, variance: ndarray, norm: ndarray) -> dict[str, list[int]]:
    """Group heads by the name that moves them at the right-hand side, without those that a value alone moves as well."""
    groups = find_groups(by_name[:, -1], variance, norm.mean(0), (*OPERANDS, RHS))
    too = by_value_too(by_name, by_value)
    for which, place in enumerate(OPERANDS):
        moved = [head for head in groups[place] if too[which, head]]
        groups[place] = [head for head in groups[place] if head not in moved]
        groups[OTHERS] = sorted(groups[OTHERS] + moved)
    return groups


def _lookup_shares(subject: Subject) -> list[Float[ndarray, "head"]]:
    """Return for every layer and head the share of operands whose own value moves it where they stand."""
    moved: list[list[ndarray]] = [[] for _ in subject.model.layers]
    for scene in subject.scenes(key=15, times=LOOKUP_SCENES):
        for place in OPERANDS:
            at = labels().index(place)
            for parts, outputs in zip(moved, head_outputs(subject.model, varied_values(scene, place)), strict=True):
                variance, norm = (one.numpy() for one in moments(outputs[:, :, at]))  # [head]
                parts.append(moves(relative_variance(variance, norm)[None], variance[None], norm)[0])
    return [np.mean(parts, axis=0) for parts in moved]


def _others(subject: Subject) -> tuple[list[ndarray], list[ndarray]]:
    """Return the relative variance [head] of every layer when a literal changes, and when operations do."""
    found: list[list[list[ndarray]]] = [[], []]
    for scene in subject.scenes():
        literal = [out[:, :, 0] for out in head_outputs(subject.model, varied_literals(scene), before=1)]
        operation = [head_outputs(subject.model, probes) for probes in varied_operations(scene)]
        changed = [torch.cat([one[layer][:, :, -1] for one in operation]) for layer in range(len(literal))]
        for parts, outputs in zip(found, (literal, changed), strict=True):
            parts.append([torch.stack(moments(out)).numpy() for out in outputs])
    means = [[np.mean([one[layer] for one in parts], axis=0) for layer in range(len(parts[0]))] for parts in found]
    literals, operations = ([relative_variance(*one) for one in layers] for layers in means)
    return literals, operations


def _moments(subject: Subject, kind: str) -> list[tuple[ndarray, ndarray]]:
    """Return variance and norm [place, position, head] of every layer, means over scenes."""
    places = (*OPERANDS, RHS) if kind == "name" else OPERANDS
    sums: list[list[ndarray]] = []
    for place in places:
        free = FREE_NAMES if place == RHS else 1
        scenes = list(subject.scenes(free=free))
        parts = []
        for scene in scenes:
            probes = varied_names(scene, place) if kind == "name" else varied_values(scene, place)
            outputs = head_outputs(subject.model, probes)
            parts.append([torch.stack(moments(out.transpose(1, 2))).numpy() for out in outputs])
        sums.append([np.mean([part[layer] for part in parts], axis=0) for layer in range(len(subject.model.layers))])
    return [
        (np.stack([one[layer][0] for one in sums]), np.stack([one[layer][1] for one in sums]))
        for layer in range(len(subject.model.layers))
    ]
