"""What results say on each statement: the measurement, the causal check, and one number. No model is needed.

A function here takes the results by name and returns a ``Finding``, or one line on why the statement does not apply.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from latentloop.evaluate.metrics import wilson
from latentloop.interpret.flow import MOVED, Flow
from latentloop.interpret.fourier import LEAST
from latentloop.interpret.heads import OTHERS, Heads
from latentloop.interpret.probes import OPERANDS
from latentloop.interpret.sharpness import LINKS

KEPT = 0.9
"""Least share of problems still solved, or values right, without a part that is not needed."""
SUFFICIENT = 0.99
"""Share of triples right, for frequencies to suffice."""
FEW = 0.6
"""Largest share of all frequencies that counts as few."""
CONTROL = 0.9
"""Share of triples right that as many random directions must stay below."""
GEOMETRY = 0.5
"""Least circulant and orthogonality score."""
BROKEN = 0.5
"""Largest share of problems solved without a part that is needed."""
FALLS = 0.9
"""Largest share of itself that is left of what falls."""
SHARP = 0.5
"""Largest entropy of sharp attention, in nats."""
CHILDREN = 8
"""Least number of values to follow a patched one."""


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
        check=f"all heads patched at the right-hand side with another name: {_percent(moved)} of answers move",
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
        evidence=f"groups {_listed(groups)}{shared}; they amplify {_unique(copied)} most",
        checked=bool(len(moved) == len(OPERANDS) and min(moved) >= MOVED),
        check=(f"patched with another name, {_percent(moved)} of answers move" if moved else "no group to patch")
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
        f"of {_unique([g.input for g in own])} embeddings they amplify {_unique([one for one in copied if one])} most"
    )
    if None in copied:
        told = f"weights do not tell what they amplify: {unknown}"
    moved = [g.moved for g in results["flow"].groups if g.kind == "values_at_rhs" and g.layer == number]
    shared = f"; heads {last.shared} serve several operands, {last.mixed:.0%} of the variance" if last.shared else ""
    together = _together(results["flow"], number, "values", "patched with another value")
    return Finding(
        holds=bool(last.disjoint and all(factor == "value" for factor in copied if factor is not None)),
        evidence=f"groups {_listed(groups)}{shared}; {told}",
        checked=bool(len(moved) == len(OPERANDS) and min(moved) >= MOVED),
        check=(f"patched with another value, {_percent(moved)} of answers move" if moved else "no group to patch")
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
        check=f"all heads of these layers patched together at the right-hand side: {_percent(moved)} of answers move",
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
        evidence=f"look-up heads {layers[0].lookups}, for {_percent(shares) or 'none'} of the operands probed; they amplify "
        f"{_unique(copied)} most",
        checked=bool(min(moved) >= MOVED and len(alone) == len(OPERANDS) and min(alone) >= MOVED),
        check=f"attention patched where the operand stands: {_percent(moved)} of answers move; of these heads alone: "
        f"{_percent(alone) or 'there are none'}",
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
        holds=bool(median <= 0.5),
        evidence=f"it changes the stream by {median:.2f} of its norm (median)",
        checked=results["ablation"].solved > BROKEN and _unharmed(left, results["ablation"].solved),
        check=f"without it, {left:.0%} of problems are solved, {results['ablation'].solved:.0%} with it",
        number=f"{left:.0%}",
    )


def circulant(results: Mapping[str, Any]) -> Finding | str:
    """Judge whether measured vectors of an operand's values lie on circles, and whether turning them adds to the value."""
    found = results["embeddings"]
    modulus = found.main.vectors.shape[1] - 1  # the last symbol is empty
    if modulus < LEAST:
        return f"{modulus} values have too few differences to tell a circle by: at least {LEAST}"
    scores, changes = found.circulant, found.changes
    return Finding(
        holds=bool(scores["measured"] >= GEOMETRY),
        evidence=f"circulant score {scores['measured']:.2f} of measured vectors{_weights(found, scores)}",
        checked=bool(changes.turned >= MOVED and changes.shuffled < CONTROL),
        check=f"one operand's vectors turned by the rotation that should add to its value: {changes.turned:.0%} of answers "
        f"move so; by the one nearest to a random order of values, {changes.shuffled:.0%}; exchanged, {changes.exchanged:.0%}",
        number=f"{scores['measured']:.2f}",
    )


def orthogonal(results: Mapping[str, Any]) -> Finding | str:
    """Judge whether measured vectors of different operands are orthogonal, and what they share is not needed."""
    found = results["embeddings"]
    scores, changes = found.orthogonality, found.changes
    return Finding(
        holds=bool(scores["measured"] >= GEOMETRY),
        evidence=f"orthogonality score {scores['measured']:.2f} of measured vectors{_weights(found, scores)}",
        checked=bool(
            changes.right > BROKEN and _unharmed(changes.unshared, changes.right) and changes.exchanged >= MOVED
        ),
        check=f"without what every operand's vectors have in the span of the others', {changes.unshared:.0%} of answers are "
        f"right, {changes.right:.0%} with it; one exchanged for that of another value, {changes.exchanged:.0%} move",
        number=f"{scores['measured']:.2f}",
    )


def _weights(found: Any, scores: Mapping[str, float]) -> str:
    """Say what the score of vectors from weights is, or why there is none."""
    if "weights" in scores:
        return f"; {scores['weights']:.2f} of those from weights"
    return f" (from weights there are none: {found.unknown})"


def frequencies(operation: str) -> Callable[[Mapping[str, Any]], Finding | str]:
    """Judge whether results of one operation end in (a,a,a), and need it."""

    def find(results: Mapping[str, Any]) -> Finding | str:
        pattern = _pattern(results, operation)
        if pattern is None:
            return f"the model does not know {operation}"
        sites, without = pattern.sites, pattern.without
        shares = [sites[0].diagonal, sites[-2].diagonal, sites[-1].diagonal]
        grown = ", ".join(f"{share:.0%}" for share in shares)
        bias = [sites[0].energy[0], sites[-2].energy[0]]
        gone = without.solved_without[-1]
        return Finding(
            holds=bool(
                pattern.right >= MOVED
                and shares[-1] >= 0.5
                and shares[0] < shares[1] <= shares[2] + 0.01
                and bias[1] <= FALLS * bias[0]
            ),
            evidence=f"share of (a,a,a) in what varies, at the first pre-activation, the last output, the read-out: {grown}; "
            f"share of the bias at the first two: {_percent(bias)}",
            checked=bool(without.solved > BROKEN and gone <= BROKEN * without.solved),
            check=f"without (a,a,a) {gone:.0%} of problems are solved, {without.solved:.0%} with it",
            number=f"{shares[-1]:.0%}",
        )

    return find


def alone(results: Mapping[str, Any]) -> Finding | str:
    """Judge whether (a,a,a) is most of what the MLPs add, and all that is needed of it, whatever the operation."""
    patterns = results["fourier"].patterns
    shares = [pattern.sites[-2].diagonal for pattern in patterns]
    worst = min(patterns, key=lambda pattern: pattern.without.solved_without[:-1].min())
    left = worst.without.solved_without
    group = int(left[:-1].argmin())
    low, high = wilson(round(left[group] * worst.without.problems), worst.without.problems)
    return Finding(
        holds=bool(min(shares) >= 0.5),
        evidence=f"share of (a,a,a) in what varies of the last output: {_percent(shares)}",
        checked=bool(worst.without.solved > BROKEN and _unharmed(left[group], worst.without.solved)),
        check=f"without {results['fourier'].groups[group]}, of all other groups the one needed most, {left[group]:.0%} of "
        f"{worst.without.problems} problems are solved (interval {low:.0%} .. {high:.0%}), {worst.without.solved:.0%} with it",
        number=f"{min(shares):.0%}; {left[group]:.0%}",
    )


def few(operation: str) -> Callable[[Mapping[str, Any]], Finding | str]:
    """Judge whether few frequencies suffice where values enter the MLPs, for one operation by itself."""

    def find(results: Mapping[str, Any]) -> Finding | str:
        pattern = _pattern(results, operation)
        if pattern is None:
            return f"the model does not know {operation}"
        without = pattern.without
        right = without.triples_strongest >= SUFFICIENT
        count = len(right)
        enough = int(right.argmax()) + 1 if right.any() else count + 1
        said = f"the {enough} strongest of {count}" if right.any() else f"not even all {count}"
        dropped = without.triples_without_entering[int(without.entering.argmax())]
        control = float(without.triples_random[min(enough, count) - 1])
        return Finding(
            holds=bool(pattern.right >= SUFFICIENT),
            evidence=f"{pattern.right:.1%} of triples are right; without the strongest frequency where values enter the MLPs, "
            f"{dropped:.0%}",
            checked=enough / count <= FEW and control < CONTROL,
            check=f"kept alone there, {said} suffice for {SUFFICIENT:.0%} of triples; as many directions of a random basis for "
            f"{control:.0%}",
            number=f"{enough} of {count}" if right.any() else f"none of {count}",
        )

    return find


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
        checked=bool(worst <= BROKEN * found.solved and _unharmed(spared, found.solved)),
        check=f"without one group at most {worst:.0%} are solved; without the others {spared:.0%}",
        number=f"{worst:.0%}",
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
    same = all(_unharmed(share, found.largest) and _unharmed(found.largest, share) for share in largest)
    return Finding(
        holds=bool(max(curve.max() for curve in curves) <= SHARP),
        evidence=f"entropy of the head that does it, {'; '.join(said)}",
        checked=bool(_unharmed(left, found.solved) and found.solved > BROKEN and same),
        check=f"with scores a hundred times as large, {left:.0%} of problems are solved, {found.solved:.0%} as they are; at "
        f"N = {found.sizes[-1]}, {_percent(largest)} of values are right, {found.largest:.0%} as they are",
        number=f"{max(curve[-1] for curve in curves):.2f} nats",
    )


def carried(results: Mapping[str, Any]) -> Finding | str:
    """Judge whether wrong values stay."""
    found = results["recompute"]
    return Finding(
        holds=bool(found.undisturbed >= MOVED),
        evidence=f"{found.undisturbed:.0%} of computed values stay as they are",
        checked=bool(found.kept >= MOVED),
        check=f"of {found.wrong} values made wrong, {found.kept:.0%} are kept and {found.restored:.0%} restored",
        number=f"{found.kept:.0%}",
    )


def corrected(results: Mapping[str, Any]) -> Finding | str:
    """Judge whether wrong values are computed again."""
    found = results["recompute"]
    return Finding(
        holds=bool(found.undisturbed >= MOVED),
        evidence=f"{found.undisturbed:.0%} of computed values stay as they are",
        checked=bool(found.restored >= MOVED and found.follow >= MOVED),
        check=f"of {found.wrong} values made wrong, {found.restored:.0%} are restored; "
        f"of {found.affected} with a wrong operand, {found.follow:.0%} follow it",
        number=f"{found.restored:.0%}",
    )


def state_holds(results: Mapping[str, Any]) -> Finding | str:
    """Judge whether the state can be read, and is what the next iteration works with."""
    drifted, between = results["drift"], results["iterations"]
    if drifted.carries == "state":
        return (
            "only decoded symbols are carried: what one iteration decodes is what the next one reads, by construction"
        )
    if between.children < CHILDREN:
        return (
            f"of the values computed from a patched one, {between.children} are right when nothing is patched, "
            f"{between.left_out} are not: too few to tell"
        )
    worst = float(drifted.known_right.min())
    return Finding(
        holds=bool(worst >= 0.99),
        evidence=f"at every iteration at least {worst:.1%} of known values decode right; "
        f"vectors change by {drifted.change[-1]:.1%} an iteration at the end",
        checked=bool(between.taken >= MOVED and between.follow >= MOVED),
        check=f"patched between iterations, {between.taken:.0%} decode to the other value, "
        f"and {between.follow:.0%} of {between.children} children follow it; {between.left_out} that are wrong without a "
        "patch are left out",
        number=f"{between.follow:.0%}",
    )


def _unharmed(left: float, whole: float) -> bool:
    return bool(left >= KEPT * whole)


def _pattern(results: Mapping[str, Any], operation: str) -> Any | None:
    """Return the spectra of an operation, if the model knows it."""
    wanted = f"a {operation} b {operation} c"
    return next((pattern for pattern in results["fourier"].patterns if pattern.name == wanted), None)


def _found(groups: Mapping[str, list[int]]) -> str:
    return f"{sum(bool(heads) for heads in groups.values())} of {len(groups)}"


def _listed(groups: Mapping[str, list[int]]) -> str:
    return ", ".join(f"{place} {heads}" for place, heads in groups.items())


def _unique(words: list[str]) -> str:
    return " and ".join(sorted(set(words))) or "nothing"


def _percent(shares: Any) -> str:
    return ", ".join(f"{share:.0%}" for share in shares)
