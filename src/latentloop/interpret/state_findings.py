"""What results say on wrong values, and on the state over iterations. As ``findings``, of which this is a part."""

from collections.abc import Mapping
from typing import Any

from latentloop.interpret.findings import MOST, Finding
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
    before, after = errors.attended(late=False), errors.attended(late=True)
    if not errors.attention[1].sum():
        return "no value was there before the last iteration"
    return Finding(
        holds=bool(before > MOST > after),
        evidence=f"{before:.0%} of operands get the first layer's attention while the value is to be computed (depth >= "
        f"iteration), {after:.0%} when it is there (depth < iteration)",
        checked=bool(found.kept >= MOVED),
        check=f"of {found.wrong} values made wrong, {found.kept:.0%} are kept and {found.restored:.0%} restored",
        number=f"{after:.0%}",
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
