"""What the results say of the paper's statements, and of the other circuit we found. No model is needed, only results.

A statement is supported only if its measurement holds and a causal check does too; it is not supported if either fails; it
does not apply where an analysis it rests on does not.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from latentloop.interpret.heads import OTHERS
from latentloop.interpret.probes import OPERANDS

Verdict = Literal["supported", "not supported", "does not apply"]
MOVED = 0.9
"""Least share of answers that move, or of problems still solved, for a check to hold."""
SUFFICIENT = 0.99
"""Share of triples right, for frequencies to suffice."""
FEW = 0.6
"""Largest share of all frequencies that counts as few."""
GEOMETRY = 0.5
"""Least circulant and orthogonality score."""
BROKEN = 0.5
"""Largest share of problems solved without a part that is needed."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A statement and what became of it."""

    name: str
    statement: str
    verdict: Verdict
    evidence: str
    """What was measured."""
    check: str
    """What the intervention gave; or why the statement does not apply."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Measurement and causal check of one statement."""

    holds: bool
    evidence: str
    checked: bool
    check: str


@dataclass(frozen=True, kw_only=True)
class Statement:
    """One row of the table of statements."""

    text: str
    needs: tuple[str, ...]
    find: Callable[[Mapping[str, Any]], Finding | str]
    """From results; a string says why it does not apply."""


def _names(results: Mapping[str, Any]) -> Finding | str:
    first = results["heads"].layers[0]
    if len(results["heads"].layers) < 2:
        return "the model has one layer"
    groups = {place: first.names_at_rhs[place] for place in OPERANDS}
    copied = [
        g.copied for g in results["circuits"].groups if g.layer == 0 and g.group.removeprefix("name of ") in OPERANDS
    ]
    moved = [g.moved for g in results["flow"].groups if g.kind == "names_at_rhs" and g.layer == 0]
    return Finding(
        holds=bool(all(groups.values()) and all(factor == "variable" for factor in copied)),
        evidence=f"groups {_listed(groups)}; they amplify {_unique(copied)} most",
        checked=bool(len(moved) == len(OPERANDS) and min(moved) >= MOVED),
        check=f"patched with another name, {_percent(moved)} of answers move" if moved else "no group to patch",
    )


def _values(results: Mapping[str, Any]) -> Finding | str:
    last = results["heads"].layers[-1]
    number = len(results["heads"].layers) - 1
    groups = {place: last.values_at_rhs[place] for place in OPERANDS}
    mine = [g for g in results["circuits"].groups if g.layer == number]
    copied = [g.copied for g in mine if g.group.removeprefix("value of ") in OPERANDS]
    moved = [g.moved for g in results["flow"].groups if g.kind == "values_at_rhs" and g.layer == number]
    shared = f"; heads {last.shared} serve several operands" if last.shared else ""
    return Finding(
        holds=bool(last.disjoint and all(factor == "value" for factor in copied)),
        evidence=f"groups {_listed(groups)}{shared}; they amplify {_unique(copied)} most",
        checked=bool(len(moved) == len(OPERANDS) and min(moved) >= MOVED),
        check=f"patched with another value, {_percent(moved)} of answers move" if moved else "no group to patch",
    )


def _gather(results: Mapping[str, Any]) -> Finding | str:
    moved = results["flow"].attention["value"][-1, :, -1]
    last = results["heads"].layers[-1]
    ratio = last.by_value[:, -1].max(1)
    return Finding(
        holds=bool((ratio >= results["heads"].threshold).all()),
        evidence=f"largest relative variance by value of VAR0, VAR1, VAR2: {', '.join(f'{x:.2f}' for x in ratio)}",
        checked=bool(moved.min() >= MOVED),
        check=f"all heads patched at the right-hand side: {_percent(moved)} of answers move",
    )


def _lookup(results: Mapping[str, Any]) -> Finding | str:
    layers = results["heads"].layers
    if len(layers) < 2:
        return "the model has one layer"
    flow = results["flow"]
    moved = [flow.attention["value"][0, which, flow.positions.index(place)] for which, place in enumerate(OPERANDS)]
    copied = [g.copied for g in results["circuits"].groups if g.layer == 0 and g.group == "look-up"]
    return Finding(
        holds=bool(layers[0].lookups) and copied == ["value"],
        evidence=f"look-up heads {layers[0].lookups}; they amplify {_unique(copied)} most",
        checked=bool(min(moved) >= MOVED),
        check=f"attention patched where the operand stands: {_percent(moved)} of answers move",
    )


def _first_mlp(results: Mapping[str, Any]) -> Finding | str:
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
    )


def _geometry(which: str, name: str) -> Callable[[Mapping[str, Any]], Finding | str]:
    def find(results: Mapping[str, Any]) -> Finding | str:
        found = results["embeddings"]
        kind = "weights" if found.grouped else "measured"
        score = getattr(found, which)[kind]
        return Finding(
            holds=bool(score >= GEOMETRY),
            evidence=f"{name} score {score:.2f} (of {kind} vectors)",
            checked=bool(found.moved >= MOVED),
            check=f"one operand's vector exchanged for that of another value: {found.moved:.0%} of answers move",
        )

    return find


def _frequencies(operation: str) -> Callable[[Mapping[str, Any]], Finding | str]:
    def find(results: Mapping[str, Any]) -> Finding | str:
        patterns = [p for p in results["fourier"].patterns if p.name == f"a {operation} b {operation} c"]
        if not patterns:
            return f"the model does not know {operation}"
        sites, without = patterns[0].sites, patterns[0].without
        shares = [sites[0].diagonal, sites[-2].diagonal, sites[-1].diagonal]
        others = without.solved_without[1:-1].min()
        grown = ", ".join(f"{share:.0%}" for share in shares)
        bias = f"{sites[0].energy[0]:.0%} to {sites[-1].energy[0]:.0%}"
        gone = without.solved_without[-1]
        return Finding(
            holds=bool(patterns[0].right >= MOVED and shares[-1] >= 0.5 and shares[0] < shares[1] <= shares[2] + 0.01),
            evidence=f"share of (a,a,a) in what varies, at the first pre-activation, the last output, the read-out: {grown}; "
            f"share of the bias from {bias}",
            checked=bool(
                without.solved > BROKEN and gone <= BROKEN * without.solved and _unharmed(others, without.solved)
            ),
            check=f"without (a,a,a) {gone:.0%} of problems are solved, without any other group at least {others:.0%}",
        )

    return find


def _few(results: Mapping[str, Any]) -> Finding | str:
    said, dropped, fewest = [], [], 1.0
    for pattern in results["fourier"].patterns:
        without = pattern.without
        right = without.triples_strongest >= SUFFICIENT
        enough = int(right.argmax()) + 1 if right.any() else len(right) + 1
        fewest = min(fewest, enough / len(right))
        said.append(f"{enough} of {len(right)} for {pattern.name}" if right.any() else f"none for {pattern.name}")
        strongest = int(without.entering.argmax())
        dropped.append(f"{without.triples_without_entering[strongest]:.0%}")
    return Finding(
        holds=max(one.right for one in results["fourier"].patterns) >= SUFFICIENT,
        evidence=f"without the strongest frequency where values enter the MLPs, {', '.join(dropped)} of triples are right",
        checked=fewest <= FEW,
        check=f"kept alone there, the strongest frequencies suffice for {SUFFICIENT:.0%} of triples: {', '.join(said)}",
    )


def _needed(results: Mapping[str, Any]) -> Finding | str:
    found = results["ablation"]
    groups = [part for part in found.parts if part.heads and not part.part.startswith("head ")]
    named = [part for part in groups if part.part != OTHERS and part.part != "name of RHS"]
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
    )


def _length(results: Mapping[str, Any]) -> Finding | str:
    found = results["entropy"]
    names = found.at_rhs[0].mean(1), found.at_operands[0].mean(1)
    best = min(names, key=lambda curve: curve[-1])
    return Finding(
        holds=bool(best[-1] <= 0.5 or best[-1] <= best[0] + 0.1),
        evidence=f"entropy of the first layer {best[0]:.2f} nats at N = {found.sizes[0]}, "
        f"{best[-1]:.2f} at N = {found.sizes[-1]}",
        checked=bool(_unharmed(found.sharpened[0], found.solved) and found.solved > BROKEN),
        check=f"with scores a hundred times as large, {found.sharpened[0]:.0%} of problems are solved, "
        f"{found.solved:.0%} as they are",
    )


def _carried(results: Mapping[str, Any]) -> Finding | str:
    found = results["recompute"]
    return Finding(
        holds=bool(found.undisturbed >= MOVED),
        evidence=f"{found.undisturbed:.0%} of computed values stay as they are",
        checked=bool(found.kept >= MOVED),
        check=f"of {found.wrong} values made wrong, {found.kept:.0%} are kept and {found.restored:.0%} restored",
    )


def _corrects(results: Mapping[str, Any]) -> Finding | str:
    found = results["recompute"]
    return Finding(
        holds=bool(found.undisturbed >= MOVED),
        evidence=f"{found.undisturbed:.0%} of computed values stay as they are",
        checked=bool(found.restored >= MOVED and found.follow >= MOVED),
        check=f"of {found.wrong} values made wrong, {found.restored:.0%} are restored; "
        f"of {found.affected} with a wrong operand, {found.follow:.0%} follow it",
    )


def _state_holds(results: Mapping[str, Any]) -> Finding | str:
    drifted, between = results["drift"], results["iterations"]
    worst = float(drifted.known_right.min())
    return Finding(
        holds=bool(worst >= 0.99),
        evidence=f"at every iteration at least {worst:.1%} of known values decode right; "
        f"vectors change by {drifted.change[-1]:.1%} an iteration at the end",
        checked=bool(between.taken >= MOVED and between.follow >= MOVED),
        check=f"patched between iterations, {between.taken:.0%} decode to the other value, "
        f"and {between.follow:.0%} of {between.children} children follow it",
    )


STATEMENTS: dict[str, Statement] = {
    "names": Statement(
        text="The first layer's attention copies the names of the operands to the right-hand side (the paper's circuit)",
        needs=("heads", "circuits", "flow"),
        find=_names,
    ),
    "values": Statement(
        text="The last layer has a group of heads for each operand, which copies its value to the right-hand side",
        needs=("heads", "circuits", "flow"),
        find=_values,
    ),
    "lookup": Statement(
        text="The first layer's attention looks values up where the operands stand (the other circuit)",
        needs=("heads", "circuits", "flow"),
        find=_lookup,
    ),
    "gather": Statement(
        text="The last layer's attention brings all three values to the right-hand side",
        needs=("heads", "flow"),
        find=_gather,
    ),
    "first MLP": Statement(
        text="The first layer's MLP changes the residual stream little, and is not needed",
        needs=("heads", "residual", "ablation"),
        find=_first_mlp,
    ),
    "circulant": Statement(
        text="The vectors of one operand's values lie on circles: their similarity depends on differences modulo p",
        needs=("embeddings",),
        find=_geometry("circulant", "circulant"),
    ),
    "orthogonal": Statement(
        text="The vectors of different operands are orthogonal",
        needs=("embeddings",),
        find=_geometry("orthogonality", "orthogonality"),
    ),
    "sums": Statement(
        text="Sums: from MLP to MLP of the last layer, frequencies (a,a,a) grow, the bias falls, and the answer needs them",
        needs=("fourier",),
        find=_frequencies("+"),
    ),
    "differences": Statement(
        text="Differences: the same, with the signs of subtracted operands' frequencies turned",
        needs=("fourier",),
        find=_frequencies("-"),
    ),
    "products": Statement(
        text="Products: the same, in characters of the multiplicative group", needs=("fourier",), find=_frequencies("*")
    ),
    "few": Statement(
        text="The MLPs read values at few frequencies: they compute with Fourier features, not with a table of all values",
        needs=("fourier",),
        find=_few,
    ),
    "groups": Statement(
        text="Every head group found is needed, and the other heads are not", needs=("ablation",), find=_needed
    ),
    "length": Statement(
        text="The first layer's attention is a look-up that stays sharp at every size", needs=("entropy",), find=_length
    ),
    "carried": Statement(
        text="A value that is there already is carried on, not computed again (the paper's discrete model)",
        needs=("recompute",),
        find=_carried,
    ),
    "correction": Statement(
        text="Every value is computed anew from its operands at every iteration, so that errors mend",
        needs=("recompute",),
        find=_corrects,
    ),
    "state": Statement(
        text="What an iteration writes is a state that can be read, holds, and is what the next one works with",
        needs=("drift", "iterations"),
        find=_state_holds,
    ),
}


def judge(results: Mapping[str, Any], reasons: Mapping[str, str]) -> list[Claim]:
    """Give a verdict on every statement, from results and from the reasons why some are not there."""
    claims = []
    for name, row in STATEMENTS.items():
        missing = [need for need in row.needs if need not in results]
        found = reasons.get(missing[0], "not computed") if missing else row.find(results)
        if isinstance(found, str):
            claims.append(Claim(name=name, statement=row.text, verdict="does not apply", evidence="", check=found))
            continue
        verdict: Verdict = "supported" if found.holds and found.checked else "not supported"
        claims.append(Claim(name=name, statement=row.text, verdict=verdict, evidence=found.evidence, check=found.check))
    return claims


def circuit_of(claims: list[Claim]) -> str:
    """Name the circuit that was found."""
    held = {claim.name for claim in claims if claim.verdict == "supported"}
    if {"names", "gather"} <= held:
        return "names first: names are copied to the right-hand side, then their values are looked up there"
    if {"lookup", "gather"} <= held:
        return "values first: values are looked up where operands stand, then gathered at the right-hand side"
    return "none of the known circuits"


def _unharmed(left: float, whole: float) -> bool:
    return bool(left >= MOVED * whole)


def _listed(groups: Mapping[str, list[int]]) -> str:
    return ", ".join(f"{place} {heads}" for place, heads in groups.items())


def _unique(words: list[str]) -> str:
    return " and ".join(sorted(set(words))) or "nothing"


def _percent(shares: Any) -> str:
    return ", ".join(f"{share:.0%}" for share in shares)
