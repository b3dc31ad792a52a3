"""What results say on each statement on the circuit: the measurement, the causal check, and one number. No model is needed.

A function here takes the results by name and returns a ``Finding``, or one line on why the statement does not apply.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from latentloop.interpret.ablation import Ablations, ungrouped
from latentloop.interpret.flow import MOVED, Flow
from latentloop.interpret.groups import OTHERS, Heads
from latentloop.interpret.probes import OPERANDS
from latentloop.interpret.sharpness import LINKS

KEPT = 0.9
"""Least share of problems still solved, or values right, without a part that is not needed."""
MOST = 0.5
"""What is more than this share is most of it."""
BROKEN = 0.5
"""Largest share of problems solved without a part that is needed."""
LITTLE = 0.5
"""Largest relative change of the residual stream by an MLP that does little."""
SHARP = 0.5
"""Largest entropy of sharp attention, in nats."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Measurement and causal check of one statement."""

    holds: bool
    evidence: str
    checked: bool
    check: str
    number: str
    """The figure that decides in most cases, for tables that have room for one; ``Statement.number`` says what it is."""


def names(results: Mapping[str, Any]) -> Finding | str:
    """Judge whether the first layer's heads together bring the names of all operands to the right-hand side."""
    first, moved = results["heads"].layers[0], results["flow"].names
    if reason := _no_names(results["heads"]):
        return reason
    ratio = first.by_name[: len(OPERANDS), -1].max(1)
    return Finding(
        holds=bool((ratio >= results["heads"].rule.threshold).all()),
        evidence=f"largest relative variance by name of VAR0, VAR1, VAR2: {', '.join(f'{x:.2f}' for x in ratio)}",
        checked=bool(moved.min() >= MOVED),
        check=f"all heads patched at the right-hand side with another name: {percent(moved)} of answers move",
        number=f"{moved.min():.0%}",
    )


def _no_names(heads: Heads) -> str:
    """Return why the first layer cannot be there for names, or nothing."""
    if len(heads.layers) < 2:
        return "the model has one layer"
    if not heads.sees_definitions:
        tokens = heads.windows[-1]
        return f"the last layer sees {tokens} tokens, its own equation: values must be looked up before it, not by names there"
    return ""


def name_groups(results: Mapping[str, Any]) -> Finding | str:
    """Judge whether each operand's name has heads of its own in the first layer."""
    first = results["heads"].layers[0]
    if reason := _no_names(results["heads"]):
        return reason
    groups = {place: first.names_at_rhs[place] for place in OPERANDS}
    copied = [
        g.copied for g in results["circuits"].groups if g.layer == 0 and g.group.removeprefix("name of ") in OPERANDS
    ]
    moved = [g.moved for g in results["flow"].groups if g.kind == "names_at_rhs" and g.layer == 0]
    shared = f"; heads {first.names_shared} bring several names" if first.names_shared else ""
    together = _together(results["flow"], 0, "names", "patched with another name")
    return Finding(
        holds=bool(all(groups.values()) and all(factor == "variable" for factor in copied)),
        evidence=f"groups {_listed(groups)}{shared}" + (f"; they amplify {_unique(copied)} most" if copied else ""),
        checked=bool(len(moved) == len(OPERANDS) and min(moved) >= MOVED),
        check=(f"patched with another name, {percent(moved)} of answers move" if moved else "no group to patch")
        + together,
        number=_found(groups),
    )


def value_groups(results: Mapping[str, Any]) -> Finding | str:
    """Judge whether each operand has heads of its own in the last layer."""
    last = results["heads"].layers[-1]
    number = len(results["heads"].layers) - 1
    groups = {place: last.values_at_rhs[place] for place in OPERANDS}
    mine = [g for g in results["circuits"].groups if g.layer == number]
    own = [g for g in mine if g.group.removeprefix("value of ") in OPERANDS]
    copied = [g.copied for g in own]
    unknown = _unique([g.unknown for g in own if g.unknown])
    told = (
        f"; of {_unique([g.input for g in own])} embeddings they amplify {_unique([one for one in copied if one])} most"
        if own
        else ""
    )
    if None in copied:
        told = f"; weights do not tell what they amplify: {unknown}"
    moved = [g.moved for g in results["flow"].groups if g.kind == "values_at_rhs" and g.layer == number]
    shared = (
        f"; heads {last.shared} serve several operands, with {percent(last.shared_by_operand)} of what varies with VAR0, VAR1 "
        "and VAR2"
        if last.shared
        else ""
    )
    together = _together(results["flow"], number, "values", "patched with another value")
    return Finding(
        holds=bool(last.disjoint and all(factor == "value" for factor in copied if factor is not None)),
        evidence=f"groups {_listed(groups)}{shared}{told}",
        checked=bool(len(moved) == len(OPERANDS) and min(moved) >= MOVED),
        check=(f"patched with another value, {percent(moved)} of answers move" if moved else "no group to patch")
        + together,
        number=_found(groups),
    )


def _together(flow: Flow, layer: int, kind: str, done: str) -> str:
    """Say what heads that serve several operands move, alone and with an operand's own; nothing where there are none."""
    said = []
    for suffix, whose in (("shared", "heads that serve several"), ("together", "these and an operand's own")):
        mine = [g for g in flow.groups if g.layer == layer and g.kind == f"{kind}_{suffix}"]
        if mine:
            said.append(f"{whose}, {done}: {', '.join(f'{g.operand} {g.moved:.0%}' for g in mine)}")
    return "".join(f"; {one}" for one in said)


def gather(results: Mapping[str, Any]) -> Finding | str:
    """Judge whether the layers after the first together bring all three values to the right-hand side."""
    moved, layers = results["flow"].gathered, results["heads"].layers
    ratio = np.max([layer.by_value[:, -1].max(1) for layer in layers[min(1, len(layers) - 1) :]], axis=0)
    return Finding(
        holds=bool((ratio >= results["heads"].rule.threshold).all()),
        evidence=f"largest relative variance by value of VAR0, VAR1, VAR2: {', '.join(f'{x:.2f}' for x in ratio)}",
        checked=bool(moved.min() >= MOVED),
        check=f"all heads of these layers patched together at the right-hand side: {percent(moved)} of answers move",
        number=f"{moved.min():.0%}",
    )


def lookup(results: Mapping[str, Any]) -> Finding | str:
    """Judge whether the first layer finds values where operands stand."""
    layers = results["heads"].layers
    if len(layers) < 2:
        return "the model has one layer"
    flow = results["flow"]
    moved = flow.lookups
    alone = [g.moved for g in flow.groups if g.kind == "lookups" and g.layer == 0]
    copied = [g.copied for g in results["circuits"].groups if g.layer == 0 and g.group == "look-up"]
    shares = [layers[0].lookup_share[head] for head in layers[0].lookups]
    return Finding(
        holds=bool(layers[0].lookups) and copied == ["value"],
        evidence=f"look-up heads {layers[0].lookups}, for {percent(shares)} of the operands probed; they amplify "
        f"{_unique(copied)} most"
        if shares
        else "no look-up heads",
        checked=bool(min(moved) >= MOVED and len(alone) == len(OPERANDS) and min(alone) >= MOVED),
        check=f"attention patched where the operand stands: {percent(moved)} of answers move; of these heads alone: "
        f"{percent(alone) or 'there are none'}",
        number=f"{min(alone, default=0.0):.0%}",
    )


def first_mlp(results: Mapping[str, Any]) -> Finding | str:
    """Judge whether the first layer's MLP does little."""
    changes = results["residual"]
    mine = [x for x, layer in zip(changes.change, changes.layer_of, strict=True) if layer == 0]
    if not mine or len(results["heads"].layers) < 2:
        return "the first layer has no MLP" if not mine else "the first layer is the last"
    ablated = [part for part in results["ablation"].parts if part.layer == 0 and part.part.startswith("MLP")]
    median = float(np.median(np.concatenate(mine)))
    left = min(part.solved for part in ablated)
    return Finding(
        holds=bool(median <= LITTLE),
        evidence=f"it changes the stream by {median:.2f} of its norm (median)",
        checked=results["ablation"].solved > BROKEN and unharmed(left, results["ablation"].solved),
        check=f"without it, {left:.0%} of problems are solved, {results['ablation'].solved:.0%} with it",
        number=f"{left:.0%}",
    )


def needed(results: Mapping[str, Any]) -> Finding | str:
    """Judge whether the groups of operands are needed, and heads without a group are not.

    Heads for a right-hand side's own name, for literals and for operations are neither.
    """
    found = results["ablation"]
    groups = [part for part in found.parts if part.heads and not part.part.startswith("head ")]
    named = [part for part in groups if part.part.endswith((*OPERANDS, "shared", "look-up"))]
    others = [part for part in groups if part.part == OTHERS]
    if not named:
        return "no head group was found"
    worst = max(part.solved for part in named)
    spared = min((part.solved for part in others), default=found.solved)
    return Finding(
        holds=bool(found.solved > BROKEN),
        evidence=f"{found.solved:.0%} of {found.problems} problems of {found.nodes} nodes are solved",
        checked=bool(worst <= BROKEN * found.solved and unharmed(spared, found.solved)),
        check=f"without one group at most {worst:.0%} are solved; without the others {spared:.0%}{_alone(found)}",
        number=f"{worst:.0%}; {spared:.0%}",
    )


def _alone(found: Ablations) -> str:
    """Name the heads without a group that are needed by themselves."""
    needed = [
        f"head {part.heads[0]} of layer {part.layer + 1}: {part.solved:.0%}"
        for layer in {part.layer for part in found.parts}
        for part in ungrouped(found, layer)
        if part.solved <= BROKEN * found.solved
    ]
    return f"; without one of these alone, {', '.join(needed)}" if needed else ""


def sinks(results: Mapping[str, Any]) -> Finding | str:
    """Judge whether heads of a missing operand attend to tokens that bring nothing."""
    found = results["sinks"]
    if not found.weights:
        return "no head serves VAR0 or VAR1 alone, which equations of fewer operands do not have"
    least = min(found.weights.values())
    said = ", ".join(f"{head} {weight:.2f}" for head, weight in found.weights.items())
    return Finding(
        holds=bool(least > MOST),
        evidence=f"attention to separators and equals signs where the operand is missing: {said}",
        checked=bool(found.right > BROKEN and unharmed(found.masked, found.right)),
        check=f"without what these heads take from there, {found.masked:.0%} of answers are right, {found.right:.0%} with it",
        number=f"{least:.2f}",
    )


def stays_sharp(results: Mapping[str, Any]) -> Finding | str:
    """Judge whether attention stays sharp wherever the circuit needs it, and may be sharper still."""
    found, kind = results["sharpness"], results["flow"].first_layer
    if kind == "neither":
        return "the first layer brings neither all names nor all values"
    if len(found.sizes) < 2:
        return f"one size was measured, N = {found.sizes[0]}"
    needed = [("look-up", 0)] if kind == "look-up" else [("name", 0), ("value", len(found.at_rhs) - 1)]
    curves = [found.links[link][layer] for link, layer in needed]
    if any(curve is None for curve in curves):
        return "the first layer is not computed at operands, or does not see their definitions"
    said = [
        f"{LINKS[link]}, in layer {layer + 1}: {curve[0]:.2f} nats at N = {found.sizes[0]}, {curve[-1]:.2f} at "
        f"N = {found.sizes[-1]}, at most {curve.max():.2f}"
        for (link, layer), curve in zip(needed, curves, strict=True)
    ]
    left = min(found.sharpened[layer] for _, layer in needed)
    largest = [found.largest_sharpened[layer] for _, layer in needed]
    same = all(unharmed(share, found.largest) and unharmed(found.largest, share) for share in largest)
    return Finding(
        holds=bool(max(curve.max() for curve in curves) <= SHARP),
        evidence=f"entropy of the head that does it, {'; '.join(said)}",
        checked=bool(unharmed(left, found.solved) and found.solved > BROKEN and same),
        check=f"with scores a hundred times as large, {left:.0%} of problems are solved, {found.solved:.0%} as they are; at "
        f"N = {found.sizes[-1]}, {percent(largest)} of values are right, {found.largest:.0%} as they are",
        number=f"{max(curve[-1] for curve in curves):.2f} nats",
    )


def unharmed(left: float, whole: float) -> bool:
    """Return whether a part is not needed: what is left without it, of the whole."""
    return bool(left >= KEPT * whole)


def _found(groups: Mapping[str, list[int]]) -> str:
    return f"{sum(bool(heads) for heads in groups.values())} of {len(groups)}"


def _listed(groups: Mapping[str, list[int]]) -> str:
    return ", ".join(f"{place} {heads}" for place, heads in groups.items())


def _unique(words: list[str]) -> str:
    return " and ".join(sorted(set(words))) or "nothing"


def percent(shares: Any) -> str:
    """Write shares in a row."""
    return ", ".join(f"{share:.0%}" for share in shares)
