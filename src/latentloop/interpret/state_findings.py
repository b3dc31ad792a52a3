"""What results say on wrong values, and on the state over iterations. As ``findings``, of which this is a part."""

from collections.abc import Mapping
from typing import Any

from latentloop.interpret.findings import MOST, Finding, percent
from latentloop.interpret.flow import MOVED

CHILDREN = 8
"""Least number of values to follow a patched one."""
ERRORS = 10
"""Least number of wrong values to tell where most of them come from."""


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


def copied(results: Mapping[str, Any]) -> Finding | str:
    """Judge whether values are kept by heads that attend to them, and pass through these."""
    found = results["keeping"]
    kept = float(found.kept.mean())
    if kept <= MOST:
        return f"{kept:.0%} of wrong values are kept"
    mine = [(layer, head) for layer, heads in enumerate(found.heads) for head in heads]
    named = "; ".join(f"layer {layer + 1}, head {head}" for layer, head in mine)
    if not mine:
        together = "; ".join(f"layer {n + 1} {percent(share)}" for n, share in enumerate(found.without_layer))
        return Finding(
            holds=False,
            evidence=f"no head by itself is needed to keep values: {percent(found.kept)} are kept",
            checked=False,
            check=f"kept without any of a layer's heads: {together}",
            number="no head",
        )
    left = max(found.without[layer][:, head].max() for layer, head in mine)
    seen = min(found.itself[layer][1, :, head].min() for layer, head in mine)
    before = max(found.itself[layer][0, :, head].max() for layer, head in mine)
    return Finding(
        holds=bool(seen > MOST),
        evidence=f"{named}: it gives its own right-hand side {seen:.2f} of its attention at least where a value is, "
        f"{before:.2f} at most where none is; without it at most {left:.0%} of wrong values are kept, "
        f"{percent(found.kept)} with it",
        checked=bool(found.copied.min() >= MOVED),
        check=f"given what it adds where another value is, {percent(found.copied)} of answers become that one (equations of "
        f"{', '.join(map(str, found.operands))} operands)",
        number=f"{found.copied.min():.0%}",
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


def idle(results: Mapping[str, Any]) -> Finding | str:
    """Judge whether the first layer stops attending to operands when the value is there, and wrong values stay."""
    errors, found = results["errors"], results["recompute"]
    if not errors.attention[1].sum():
        return "no value was there before the last iteration"
    before, after = errors.attended(late=False), errors.attended(late=True)
    said = [", ".join(f"{share:.2f}" for share in shares) for shares in (before, after)]
    return Finding(
        holds=bool(before.min() > MOST > after.max()),
        evidence=f"the first layer's attention to VAR0, VAR1, VAR2 is {said[0]} on average while the value is to be computed "
        f"(depth >= iteration), {said[1]} when it is there (depth < iteration)",
        checked=bool(found.kept >= MOVED),
        check=f"of {found.wrong} values made wrong, {found.kept:.0%} are kept and {found.restored:.0%} restored",
        number=f"{after.max():.2f}",
    )


def feed_forward(results: Mapping[str, Any]) -> Finding | str:
    """Judge whether most wrong values come from the feed-forward part, given what it should be given."""
    found = results["errors"]
    total, mine = sum(found.counts.values()), found.counts["feed-forward"]
    if total < ERRORS:
        return f"{total} wrong values of {found.checked:,} are too few to tell"
    if found.doubtful:
        return f"the threshold for {' and '.join(found.doubtful)} errors does not tell right values from wrong ones"
    share = mine / total
    return Finding(
        holds=bool(share > MOST),
        evidence=f"{mine:,} of {total:,} wrong values: attention and what it adds are as they should be",
        checked=bool(share * found.wrong_again > MOST),
        check=f"computed again with just what the operands' values give, {found.wrong_again:.0%} of {found.retried:,} such "
        "values are wrong all the same",
        number=f"{share:.0%}",
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
