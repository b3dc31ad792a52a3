"""The rules of docs/claims.toml as functions, one for each claim. Shares and intervals are those of ``scores``."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import log
from statistics import fmean, median

from latentloop.experiments.evidence import Decision, Evidence
from latentloop.experiments.scores import Scores, least_loss
from latentloop.experiments.table import RUNGS

ROUNDING = 1e-9
"""What a share may be off by because it is a float."""
PAPER_ENCODINGS = ("abpe", "rope", "nope", "deberta")
PAPER_METHODS = RUNGS[:-1]


def _low(scores: Scores, *sizes: int) -> float:
    return scores.interval(sizes)[0]


def _high(scores: Scores, *sizes: int) -> float:
    return scores.interval(sizes)[1]


def percent(share: float, digits: int = 1) -> str:
    """Write a share as a page shows it."""
    return f"{100 * share:.{digits}f} %"


def said(scores: Scores, sizes: Sequence[int]) -> str:
    """Write a point's name with its average over some sizes."""
    return f"{scores.name} {shares(scores, sizes)}"


def shares(scores: Scores, sizes: Sequence[int]) -> str:
    """Write an average over sizes: that of every seed, and the interval of all problems together."""
    low, high = scores.interval(sizes)
    return f"{by_seed(scores, sizes)} % ({100 * low:.1f} .. {100 * high:.1f})"


def by_seed(scores: Scores, sizes: Sequence[int]) -> str:
    """Write the average over sizes of every seed, in percent."""
    return ", ".join(f"{100 * share:.1f}" for share in scores.averages(sizes))


def _above(one: Scores, other: Scores, sizes: Sequence[int]) -> bool:
    """Return whether the interval of one is above that of the other."""
    return _low(one, *sizes) > _high(other, *sizes)


def _overlap(one: Scores, other: Scores, sizes: Sequence[int]) -> bool:
    return not _above(one, other, sizes) and not _above(other, one, sizes)


def _end_to_end_fails(evidence: Evidence) -> Decision:
    both = evidence.best("feedforward", "recurrent", seeds=3)
    return Decision(
        met=all(_high(scores, 16) < 0.5 for scores in both),
        opposite=any(_low(scores, 16) > 0.9 for scores in both),
        because=f"solved at N = 16: {', '.join(said(scores, [16]) for scores in both)}",
    )


def _recurrent_over_feedforward(evidence: Evidence) -> Decision:
    feedforward, recurrent = evidence.best("feedforward", "recurrent", seeds=3)
    sizes = recurrent.sizes
    left, right = (dict(zip(scores.seeds, scores.averages(sizes), strict=True)) for scores in (feedforward, recurrent))
    pairs = [(left[seed], right[seed]) for seed in left if seed in right]
    difference = fmean(second - first for first, second in pairs)
    ahead = sum(second > first for first, second in pairs)
    behind = sum(second < first for first, second in pairs)
    shown = ", ".join(f"{percent(second, 2)} against {percent(first, 2)}" for first, second in pairs)
    same = _overlap(recurrent, feedforward, sizes)
    overlap = "; the intervals of the two overlap, so the numbers alone do not tell them apart" if same else ""
    return Decision(
        met=ahead >= 2 and 0 < difference < 0.2,
        opposite=behind >= 2,
        because=f"average over all sizes of {recurrent.name} against {feedforward.name}, seed by seed: {shown}; "
        f"mean difference {100 * difference:+.2f} points{overlap}",
    )


def _cot_in_distribution(evidence: Evidence) -> Decision:
    (once,) = evidence.best("cot")
    worst = min(once.solved(nodes) for nodes in once.inside)
    if worst >= 0.95:
        return Decision(
            met=True, opposite=False, because=f"at 1x the budget: at least {percent(worst)} at every size up to 16"
        )
    (longer,) = evidence.points("cot-4x")
    least = min(longer.solved(nodes) for nodes in longer.inside)
    return Decision(
        met=least >= 0.95,
        opposite=_high(longer, 16) < 0.5,
        because=f"the least of the sizes up to 16 is {percent(worst)} at 1x the budget and {percent(least)} at 4x; "
        f"at N = 16: {said(once, [16])}, {said(longer, [16])}",
    )


def _cot_limited(evidence: Evidence) -> Decision:
    (scores,) = evidence.best("cot")
    reached = max((nodes for nodes in scores.sizes if scores.solved(nodes) >= 0.5), default=None)
    return Decision(
        met=reached is not None and 16 <= reached <= 24 and _high(scores, 32) < 0.5,
        opposite=_low(scores, 32) > 0.5,
        because=f"{'no size is' if reached is None else f'N = {reached} is the largest'} solved at least by half; "
        f"at N = 32: {said(scores, [32])}",
    )


def _continuous_over_cot(evidence: Evidence) -> Decision:
    cot, continuous = evidence.best("cot", "continuous")
    shares = [continuous.solved(nodes) for nodes in continuous.sizes]
    fall = max(before - after for before, after in pairwise(shares))
    return Decision(
        met=_above(continuous, cot, cot.outside) and fall <= 0.5 + ROUNDING,
        opposite=_above(cot, continuous, cot.outside),
        because=f"average out of distribution: {said(continuous, cot.outside)}, {said(cot, cot.outside)}; "
        f"largest fall from one size to the next: {100 * max(fall, 0):.1f} points",
    )


def _discrete_over_continuous(evidence: Evidence) -> Decision:
    continuous, discrete = evidence.best("continuous", "discrete")
    sizes = discrete.outside
    return Decision(
        met=_above(discrete, continuous, sizes),
        opposite=_above(continuous, discrete, sizes),
        because=f"average out of distribution: {said(discrete, sizes)}, {said(continuous, sizes)}",
    )


def _corrected_near_perfect(evidence: Evidence) -> Decision:
    (corrected,) = evidence.best("corrected", seeds=3, layers=4)
    (discrete,) = evidence.best("discrete")
    worst = min(corrected.sizes, key=corrected.solved)
    return Decision(
        met=corrected.solved(worst) >= 0.95,
        opposite=_high(corrected, 64) < max(_low(discrete, 64), 0.5),
        because=f"the least is {percent(corrected.solved(worst))} at N = {worst}; "
        f"at N = 64: {said(corrected, [64])}, {said(discrete, [64])}",
    )


def _correction_needs_layers(evidence: Evidence) -> Decision:
    two, four, discrete = evidence.points("corrected-layers2", "corrected", "discrete")
    sizes = discrete.outside
    return Decision(
        met=_overlap(two, discrete, sizes) and _above(four, two, sizes),
        opposite=_above(two, discrete, sizes),
        because=f"average out of distribution: two layers {said(two, sizes)}, {said(discrete, sizes)}; "
        f"four layers {said(four, sizes)}; steps in the same time: {_steps(two)} with two layers, {_steps(four)} with four; "
        f"wrong values corrected at N = {sizes[-1]}: {_corrected_values(two, sizes[-1])} with two layers, "
        f"{_corrected_values(four, sizes[-1])} with four",
    )


def _steps(scores: Scores) -> str:
    return f"{scores.results[0]['training']['steps']:,}"


def _corrected_values(scores: Scores, nodes: int) -> str:
    """Write the share of wrong values that are right at the next iteration, of the first seed."""
    row = next(row for row in scores.results[0]["rows"] if row["nodes"] == nodes)
    rate = row.get("correction_rate")
    return "none were wrong" if rate is None else percent(rate)


def _own(evidence: Evidence, method: str) -> list[str]:
    """Return the names of a method's points in the claim's experiment."""
    return [name for name in evidence.listed if name == method or name.startswith(f"{method}-")]


def _encoded(evidence: Evidence, *methods: str) -> list[dict[str, Scores]]:
    """Return the points of each method with the paper's encodings; what is missing is named for all methods at once."""
    encodings = {name: point.run.model.positions.name for name, point in evidence.listed.items()}
    names = [name for method in methods for name in _own(evidence, method) if encodings[name] in PAPER_ENCODINGS]
    found = {(scores.method, scores.labels["encoding"]): scores for scores in evidence.points(*names)}
    return [{name: found[method, name] for name in PAPER_ENCODINGS} for method in methods]


def _encodings_end_to_end(evidence: Evidence) -> Decision:
    methods = ("feedforward", "recurrent")
    best_two, other_best, shown = [], [], []
    for method, found in zip(methods, _encoded(evidence, *methods), strict=True):
        averages = {name: scores.average(scores.sizes) for name, scores in found.items()}
        relative, others = ("rope", "deberta"), ("abpe", "nope")
        best_two.append(min(averages[name] for name in relative) > max(averages[name] for name in others))
        other_best.append(max(averages[name] for name in others) > max(averages[name] for name in relative))
        pairs = [(one, two) for one in relative for two in others if _overlap(found[one], found[two], found[one].sizes)]
        overlap = ", ".join(f"{one} and {two}" for one, two in pairs) or "none"
        shares = ", ".join(f"{name} {percent(share, 2)}" for name, share in averages.items())
        shown.append(f"{method}: {shares} (intervals that overlap: {overlap})")
    return Decision(
        met=all(best_two), opposite=all(other_best), because=f"average over all sizes of {'; '.join(shown)}"
    )


def _encodings_latent(evidence: Evidence) -> Decision:
    (found,) = _encoded(evidence, "discrete")
    deberta = found.pop("deberta")
    sizes = deberta.sizes
    return Decision(
        met=all(_above(deberta, other, sizes) for other in found.values()),
        opposite=any(_above(other, deberta, sizes) for other in found.values()),
        because=f"average over all sizes: {', '.join(said(scores, sizes) for scores in (deberta, *found.values()))}",
    )


def _encodings_cot(evidence: Evidence) -> Decision:
    (found,) = _encoded(evidence, "cot")
    nope = found.pop("nope")
    sizes = nope.outside
    return Decision(
        met=all(nope.average(sizes) > other.average(sizes) for other in found.values()),
        opposite=any(_above(other, nope, sizes) for other in found.values()),
        because=f"average out of distribution: NoPE {said(nope, sizes)}, "
        f"{', '.join(said(other, sizes) for other in found.values())}",
    )


def _cot_errs_in_arithmetic(evidence: Evidence) -> Decision:
    """Results without ``unsolved_structure_right`` tell only how many are solved, and how many have their structure right:
    then the share is known within bounds.
    """
    (cot,) = evidence.best("cot", seeds=3)
    unsolved, least, most = _structure(cot, cot.sizes)
    if unsolved == 0:
        return Decision(met=False, opposite=False, because="every problem is solved")
    parts = []
    for sizes, words in ((cot.sizes, ""), (cot.inside, " up to N = 16"), (cot.outside, " beyond")):
        count, low, high = _structure(cot, sizes)
        share = percent(low) if low == high else f"{percent(low)} to {percent(high)}"
        parts.append(f"{share} of {count:,}{words}")
    return Decision(
        met=least > 0.5,
        opposite=most < 0.25,
        because=f"of the problems that {cot.name} does not solve, these have all equations right: {', '.join(parts)}",
    )


def _structure(cot: Scores, sizes: Sequence[int]) -> tuple[int, float, float]:
    """Return the number of problems unsolved, and bounds of the share of them that have all equations right."""
    rows = [row for nodes in sizes for row in cot.rows(nodes)]
    total, solved, structure = (
        sum(round(row[kind] * row["problems"]) if kind else row["problems"] for row in rows)
        for kind in ("", "solved", "structure_right")
    )
    unsolved = total - solved
    if all("unsolved_structure_right" in row for row in rows):
        right = sum(round(row["unsolved_structure_right"] * row["problems"]) for row in rows)
        low = high = right
    else:
        low, high = max(structure - solved, 0), min(structure, unsolved)
    return unsolved, low / max(unsolved, 1), high / max(unsolved, 1)


def _entropy_rises(evidence: Evidence) -> Decision:
    (scores,) = evidence.best("feedforward", seeds=3)
    pairs = [(result["entropy"]["16"]["mean"], result["entropy"]["64"]["mean"]) for result in scores.results]
    shown = ", ".join(f"{small:.2f} to {large:.2f}" for small, large in pairs)
    return Decision(
        met=all(large > small for small, large in pairs),
        opposite=all(large < small for small, large in pairs),
        because=f"mean entropy of all heads of {scores.name} in nats, from N = 16 to N = 64, seed by seed: {shown}; attention "
        f"to all tokens alike would rise by about {log(4):.2f}",
    )


def _depth_matters(evidence: Evidence) -> Decision:
    methods = ("recurrent", "cot")
    everything = evidence.points(*(name for method in methods for name in _own(evidence, method)))
    deeper, shallower, shown = [], [], []
    for method in methods:
        by_depth: dict[int, list[Scores]] = {}
        for scores in (scores for scores in everything if scores.method == method):
            by_depth.setdefault(scores.labels["layers"] * scores.labels["iterations"], []).append(scores)
        small, large = (least_loss(by_depth[depth]) for depth in (min(by_depth), max(by_depth)))
        sizes = small.inside
        deeper.append(_above(large, small, sizes))
        shallower.append(_above(small, large, sizes))
        for depth, one in ((max(by_depth), large), (min(by_depth), small)):
            shown.append(f"T x L = {depth} {said(one, sizes)} after {one.results[0]['training']['steps']:,} steps")
    return Decision(met=all(deeper), opposite=all(shallower), because=f"average in distribution: {'; '.join(shown)}")


def half_solved(scores: Scores, nodes: int) -> int | None:
    """Return the iterations after which half of the problems of a size are solved, by the median of the seeds."""
    curves = [result["curves"][str(nodes)]["solved_by_iteration"] for result in scores.results]
    for iteration in range(max(map(len, curves))):
        if median(curve[min(iteration, len(curve) - 1)] for curve in curves) >= 0.5:
            return iteration
    return None


def _iterations_scale(evidence: Evidence) -> Decision:
    (scores,) = evidence.best("corrected", layers=4)
    needed = {nodes: half_solved(scores, nodes) for nodes in (8, 16, 32, 64)}
    steps = [count for count in needed.values() if count is not None]
    grows = len(steps) == len(needed) and all(one < two for one, two in pairwise(steps))
    lost = max(scores.solved(nodes, "solved_depth") - scores.solved(nodes, "solved_4x") for nodes in scores.sizes)
    first, last = needed[16], needed[64]
    shown = ", ".join(f"{'never' if count is None else f'after {count}'} at N = {n}" for n, count in needed.items())
    return Decision(
        met=grows and lost < 0.02 - ROUNDING,
        opposite=first is not None and last is not None and last <= first,
        because=f"iterations until half of the problems are solved by {scores.name}: {shown}; "
        f"four times as many iterations lose at most {100 * max(lost, 0):.1f} points",
    )


def _stable_first(evidence: Evidence) -> Decision:
    (stable,) = evidence.best("stable", seeds=3)
    others = evidence.best(*PAPER_METHODS)
    least = min(row["solved"] for result in stable.results for row in result["rows"])
    sizes = stable.sizes
    second = max(others, key=lambda scores: scores.average(sizes))
    larger = second.average(sizes) > stable.average(sizes)
    any_loss = max(evidence.at_equal_compute(*PAPER_METHODS), key=lambda scores: scores.average(sizes))
    return Decision(
        met=least >= 0.99 and not larger,
        opposite=larger,
        because=f"the least of all seeds and sizes is {percent(least)}; average over all sizes: {said(stable, sizes)}, "
        f"the paper's method with the largest {said(second, sizes)}; of all that was tried of the paper's methods at this "
        f"budget, whatever its validation loss, {said(any_loss, sizes)}",
    )


def _fixed_point_halting(evidence: Evidence) -> Decision:
    furthest, lower = {}, {}
    for scores in evidence.points("discrete", "corrected", "stable"):
        differences = [
            scores.solved(nodes, "solved_fixpoint") - scores.solved(nodes, f"solved_{rule}")
            for nodes in scores.sizes
            for rule in ("depth", "paper")
        ]
        furthest[scores.name] = max(differences, key=abs)
        lower[scores.name] = min(differences)
    shown = ", ".join(f"{name} {100 * difference:+.1f}" for name, difference in furthest.items())
    return Decision(
        met=all(abs(difference) <= 0.01 + ROUNDING for difference in furthest.values()),
        opposite=sum(difference < -0.05 - ROUNDING for difference in lower.values()) >= 2,
        because=f"largest difference of fixpoint to the other rules, in points: {shown}",
    )


RULES: dict[str, Callable[[Evidence], Decision]] = {
    "end-to-end-fails": _end_to_end_fails,
    "recurrent-over-feedforward": _recurrent_over_feedforward,
    "cot-in-distribution": _cot_in_distribution,
    "cot-limited": _cot_limited,
    "continuous-over-cot": _continuous_over_cot,
    "discrete-over-continuous": _discrete_over_continuous,
    "corrected-near-perfect": _corrected_near_perfect,
    "correction-needs-layers": _correction_needs_layers,
    "encodings-end-to-end": _encodings_end_to_end,
    "encodings-latent": _encodings_latent,
    "encodings-cot": _encodings_cot,
    "cot-errs-in-arithmetic": _cot_errs_in_arithmetic,
    "entropy-rises": _entropy_rises,
    "depth-matters": _depth_matters,
    "iterations-scale": _iterations_scale,
    "stable-first": _stable_first,
    "fixed-point-halting": _fixed_point_halting,
}
