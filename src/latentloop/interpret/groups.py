"""Groups of heads, by rule: what a head's output depends on at each token of a probe, and what it serves.

A head counts where it has a share of what all heads of its layer vary by, however large another head's output is that has
nothing to do with it.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from latentloop.interpret.probes import OPERANDS

OTHERS = "others"


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
