"""What the results say of the paper's statements, and of the other circuit we found. No model is needed, only results.

A statement is supported only if its measurement holds and a causal check does too; it is not supported if either fails; it
does not apply where an analysis it rests on does not, and is not computed where one was not run. "First" and "last" layer are
meant literally: in a deeper model, what layers in between do supports neither. Only of gathering all layers after the first
are asked together.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from latentloop.interpret import findings, state_findings, value_findings
from latentloop.interpret.findings import BROKEN, KEPT, LITTLE, MOST, SHARP, Finding
from latentloop.interpret.flow import MOVED
from latentloop.interpret.groups import RULE
from latentloop.interpret.keeping import NEEDED
from latentloop.interpret.state_findings import ERRORS
from latentloop.interpret.value_findings import CONTROL, FEW, GEOMETRY, SUFFICIENT

GROWS = (
    f"it grows from place to place, to {MOST:.0%} at least; the bias falls by a tenth; {MOVED:.0%} of triples are right"
)
BREAKS = f"at most {BROKEN:.0%} of what is solved is solved without (a,a,a)"
ABLE = f"{SUFFICIENT:.0%} of triples are right"
ENOUGH = (
    f"at most {FEW:.0%} of them are enough for {SUFFICIENT:.0%} of triples; as many random directions give fewer than "
    f"{CONTROL:.0%}"
)
Verdict = Literal["supported", "not supported", "does not apply", "not computed"]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A statement and what became of it."""

    name: str
    statement: str
    verdict: Verdict
    evidence: str
    """What was measured."""
    check: str
    """What the intervention gave; or why the statement does not apply, or is not computed."""
    measure: str
    """What the number is."""
    number: str
    """One figure, for tables that have room for one; empty where there is no verdict."""


@dataclass(frozen=True, kw_only=True)
class Statement:
    """One row of the table of statements."""

    text: str
    needs: tuple[str, ...]
    find: Callable[[Mapping[str, Any]], Finding | str]
    """From results; a string says why it does not apply."""
    measured: str
    """What a measurement has to give, ..."""
    checked: str
    """... and an intervention, for the statement to be supported."""
    number: str
    """What a finding's number is."""


STATEMENTS: dict[str, Statement] = {
    "names": Statement(
        text="The first layer's attention copies the names of the operands to the right-hand side (the paper's circuit)",
        needs=("heads", "flow"),
        find=findings.names,
        measured=f"relative variance by each name at least {RULE.threshold:g}",
        checked=f"{MOVED:.0%} of answers move, for each operand",
        number="answers that move when it is patched",
    ),
    "name groups": Statement(
        text="The first layer has a group of heads for each operand, which copies its name to the right-hand side",
        needs=("heads", "circuits", "flow"),
        find=findings.name_groups,
        measured="a group for each operand, which amplifies names most",
        checked=f"each group by itself moves {MOVED:.0%} of answers",
        number="operands with a head group",
    ),
    "value groups": Statement(
        text="The last layer has a group of heads for each operand, which copies its value to the right-hand side",
        needs=("heads", "circuits", "flow"),
        find=findings.value_groups,
        measured="a group for each operand, which amplifies values most; in heads that serve several operands, at most "
        f"{RULE.mixed:.0%} of what varies",
        checked=f"each group by itself moves {MOVED:.0%} of answers",
        number="operands with a head group",
    ),
    "lookup": Statement(
        text="The first layer's attention looks values up where the operands stand (the other circuit)",
        needs=("heads", "circuits", "flow"),
        find=findings.lookup,
        measured="heads that look up, which amplify values most",
        checked=f"{MOVED:.0%} of answers move, with the layer and with these heads by themselves",
        number="answers that move when its look-up heads are patched",
    ),
    "gather": Statement(
        text="Attention after the first layer brings all three values to the right-hand side",
        needs=("heads", "flow"),
        find=findings.gather,
        measured=f"relative variance by each value at least {RULE.threshold:g}",
        checked=f"{MOVED:.0%} of answers move, for each operand",
        number="answers that move when it is patched in all of these layers",
    ),
    "first MLP": Statement(
        text="The first layer's MLP changes the residual stream little, and is not needed",
        needs=("heads", "residual", "ablation"),
        find=findings.first_mlp,
        measured=f"median change at most {LITTLE:g}",
        checked=f"{KEPT:.0%} of what is solved is solved without it",
        number="problems solved without it",
    ),
    "circulant": Statement(
        text="The vectors of one operand's values lie on circles: their similarity depends on differences modulo p",
        needs=("embeddings",),
        find=value_findings.circulant,
        measured=f"score at least {GEOMETRY:g}",
        checked=f"turned vectors move {MOVED:.0%} of answers; turned for a random order of values, fewer than {CONTROL:.0%}",
        number="circulant score",
    ),
    "orthogonal": Statement(
        text="The vectors of different operands are orthogonal",
        needs=("embeddings",),
        find=value_findings.orthogonal,
        measured=f"score at least {GEOMETRY:g}",
        checked=f"without what they share {KEPT:.0%} of right answers stay; exchanged, {MOVED:.0%} move",
        number="orthogonality score",
    ),
    "empty": Statement(
        text="The vector of an empty operand is nearly orthogonal to those of its numbers",
        needs=("embeddings",),
        find=value_findings.empty,
        measured=f"score at least {GEOMETRY:g}",
        checked=f"without what it shares {MOVED:.0%} of answers stay empty; without all of it, fewer than {CONTROL:.0%}",
        number="1 less the largest absolute cosine",
    ),
    "sums": Statement(
        text="Sums: from MLP to MLP of the last layer, energy moves to (a,a,a), the bias falls, and answers need (a,a,a)",
        needs=("fourier",),
        find=value_findings.frequencies("+"),
        measured=GROWS,
        checked=BREAKS,
        number="share of (a,a,a) at the read-out",
    ),
    "differences": Statement(
        text="Differences: the same, with the frequencies of subtracted operands negated",
        needs=("fourier",),
        find=value_findings.frequencies("-"),
        measured=GROWS,
        checked=BREAKS,
        number="share of (a,a,a) at the read-out",
    ),
    "products": Statement(
        text="Products: the same, in characters of the multiplicative group",
        needs=("fourier",),
        find=value_findings.frequencies("*"),
        measured=GROWS,
        checked=BREAKS,
        number="share of (a,a,a) at the read-out",
    ),
    "alone": Statement(
        text="Most of what varies in the last MLP's output is in (a,a,a), whatever the operation, and nothing else is needed",
        needs=("fourier",),
        find=value_findings.alone,
        measured=f"{MOST:.0%} at least",
        checked=f"{KEPT:.0%} of what is solved is solved without any other group",
        number="its share; problems solved without the other group needed most",
    ),
    "few for sums": Statement(
        text="Sums: the MLPs read values at few frequencies",
        needs=("fourier",),
        find=value_findings.few("+"),
        measured=ABLE,
        checked=ENOUGH,
        number="frequencies that suffice",
    ),
    "few for differences": Statement(
        text="Differences: the MLPs read values at few frequencies",
        needs=("fourier",),
        find=value_findings.few("-"),
        measured=ABLE,
        checked=ENOUGH,
        number="frequencies that suffice",
    ),
    "few for products": Statement(
        text="Products: the MLPs read values at few characters of the multiplicative group",
        needs=("fourier",),
        find=value_findings.few("*"),
        measured=ABLE,
        checked=ENOUGH,
        number="characters that suffice",
    ),
    "groups": Statement(
        text="Every head group that serves operands is needed, and heads without a group are not",
        needs=("ablation",),
        find=findings.needed,
        measured=f"more than {BROKEN:.0%} of problems are solved",
        checked=f"at most {BROKEN:.0%} of that without any group; {KEPT:.0%} without the other heads",
        number="problems solved without the group needed least; without the others",
    ),
    "sinks": Statement(
        text="Where an operand is missing, its heads attend to separators and equals signs, and need nothing from there",
        needs=("sinks",),
        find=findings.sinks,
        measured=f"more than {MOST:.0%} of their attention",
        checked=f"{KEPT:.0%} of right answers stay without what they bring from there",
        number="least attention of such a head to them",
    ),
    "length": Statement(
        text="Attention, where the circuit needs it, is sharp at every size that was measured",
        needs=("flow", "sharpness"),
        find=findings.stays_sharp,
        measured=f"at most {SHARP:g} nats, at every size",
        checked="scores a hundred times as large change no more than a tenth",
        number="entropy at the largest size",
    ),
    "carried": Statement(
        text="A value that is there already is kept, not recomputed (the paper's discrete model)",
        needs=("recompute",),
        find=state_findings.carried,
        measured=f"{MOVED:.0%} of computed values stay as they are",
        checked=f"{MOVED:.0%} of wrong values are kept",
        number="wrong values that are kept",
    ),
    "copied": Statement(
        text="A value that is there is kept by heads that attend to it and copy it",
        needs=("keeping",),
        find=state_findings.copied,
        measured=f"heads without which at most {NEEDED:.0%} of what is kept is kept, with more than {MOST:.0%} of their "
        "attention on the value",
        checked=f"patched with another value, {MOVED:.0%} of answers become that one",
        number="answers that become another value when these heads are patched with it",
    ),
    "correction": Statement(
        text="Every value is computed anew from its operands at every iteration, so that errors are corrected",
        needs=("recompute",),
        find=state_findings.corrected,
        measured=f"{MOVED:.0%} of computed values stay as they are",
        checked=f"{MOVED:.0%} of wrong values are restored, and {MOVED:.0%} of values follow a wrong operand",
        number="wrong values that are restored",
    ),
    "idle": Statement(
        text="Once a value is there, the first layer no longer attends to its operands, and it is not computed again",
        needs=("errors", "recompute"),
        find=state_findings.idle,
        measured=f"mean attention above {MOST:g} before, and below it after, for each operand",
        checked=f"{MOVED:.0%} of wrong values are kept",
        number="largest mean attention to an operand when the value is there",
    ),
    "feed-forward": Statement(
        text="Most wrong values are put down to the feed-forward part, not to attention",
        needs=("errors",),
        find=state_findings.feed_forward,
        measured=f"more than {MOST:.0%} of wrong values, of which there are {ERRORS} at least",
        checked=f"more than {MOST:.0%} are wrong again, given what attention should add",
        number="share of wrong values",
    ),
    "state": Statement(
        text="The state after an iteration can be decoded, and is what the next iteration reads",
        needs=("drift", "iterations"),
        find=state_findings.state_holds,
        measured="99% of known values decode right at every iteration",
        checked=f"{MOVED:.0%} take a patched value, and {MOVED:.0%} of what is computed from it follows",
        number="values that follow one patched between iterations",
    ),
}


def judge(results: Mapping[str, Any], reasons: Mapping[str, str]) -> list[Claim]:
    """Give a verdict on every statement, from results and from the reasons why some are not there."""
    claims = []
    for name, row in STATEMENTS.items():
        missing = [need for need in row.needs if need not in results]
        reason = next((reasons[need] for need in missing if need in reasons), "")
        verdict: Verdict = "does not apply"
        evidence, check, number = "", "", ""
        found = reason if missing else row.find(results)
        if missing and not reason:
            verdict, check = "not computed", f"run {' and '.join(missing)}"
        elif isinstance(found, str):
            check = found
        else:
            verdict = "supported" if found.holds and found.checked else "not supported"
            evidence, check, number = found.evidence, found.check, found.number
        claims.append(
            Claim(
                name=name,
                statement=row.text,
                verdict=verdict,
                evidence=evidence,
                check=check,
                measure=row.number,
                number=number,
            )
        )
    return claims


def circuit_of(claims: list[Claim]) -> str:
    """Name the circuit that was found."""
    held = {claim.name for claim in claims if claim.verdict == "supported"}
    if {"names", "gather"} <= held:
        return "names first: names are copied to the right-hand side, then their values are looked up there"
    if {"lookup", "gather"} <= held:
        return "values first: values are looked up where operands stand, then gathered at the right-hand side"
    judged = {claim.name for claim in claims if claim.verdict in ("supported", "not supported")}
    return "none of the known circuits" if judged & {"names", "lookup"} else "not looked for"
