"""The page of results: verdicts, figures and runs as Markdown, from what is stored."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import get_args

from latentloop.experiments.claims import Outcome, Verdict, decide_all, listed
from latentloop.experiments.jobs import MINUTES, TIMED, Scale
from latentloop.experiments.rules import by_seed, shares
from latentloop.experiments.scores import Scores, grouped
from latentloop.experiments.store import Result
from latentloop.experiments.table import EXPERIMENTS, POINTS
from latentloop.report.ladder import FIGURES, caption, names_at, paths
from latentloop.report.ladder_methods import best_of_each, with_longer
from latentloop.report.ladder_parts import described, few_names, own
from latentloop.report.palette import ENCODING_LOOKS, METHOD_LOOKS

PAGE_SCALES: tuple[Scale, ...] = ("laptop", "further")
"""Scales whose runs and figures are on the page, the one that decides claims first."""
CLAIM_FIGURES: dict[str, tuple[str, ...]] = {
    "end-to-end-fails": ("methods", "bars-end-to-end"),
    "recurrent-over-feedforward": ("methods", "architectures-end-to-end"),
    "cot-in-distribution": ("methods", "learning"),
    "cot-limited": ("methods", "encodings-cot"),
    "continuous-over-cot": ("methods",),
    "discrete-over-continuous": ("methods",),
    "corrected-near-perfect": ("methods",),
    "correction-needs-layers": ("correction", "architectures-latent"),
    "encodings-end-to-end": ("best-per-encoding", "encodings-feedforward", "encodings-recurrent"),
    "encodings-latent": ("best-per-encoding", "encodings-latent"),
    "encodings-cot": ("best-per-encoding", "encodings-cot"),
    "cot-errs-in-arithmetic": ("structure",),
    "entropy-rises": ("entropy",),
    "depth-matters": ("architectures-end-to-end", "architectures-cot"),
    "iterations-scale": ("iterations", "allowed"),
    "stable-first": ("methods", "compute"),
    "fixed-point-halting": ("halting",),
}
"""Where each claim can be seen."""
BESIDE = {
    "": "as the ladder sets it up",
    "-deberta": "DeBERTa's encoding",
    "-layers2": "two layers",
    "-4x": "four times the budget",
    "-deberta-4x": "DeBERTa's encoding, four times the budget",
}
"""Configurations of a method that are shown beside those compared, by the end of their name."""


UNLEARNED = 0.2
"""Where nothing that was compared solves more than this in distribution, a verdict says little about the paper."""


def table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Write a Markdown table."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [heads, ["---"] * len(heads), *lines])


Drawn = Callable[[str], str | None]
"""Where the picture of a figure is, if it is drawn."""


def verdicts(results: Mapping[str, Result], drawn: Drawn) -> str:
    """Write all claims with their verdicts, and what the models that were compared solve of what they were trained on."""
    lines = [
        [
            f"[{verdict.claim.sentence}](#{verdict.claim.name})",
            f"**{verdict.outcome}**{', so far' if verdict.waiting else ''}",
            _learned(_compared(verdict, results)),
            verdict.claim.where,
        ]
        for verdict in decide_all(results)
    ]
    return table(["claim", "verdict", "solved in distribution, %", "where"], lines)


def _compared(verdict: Verdict, results: Mapping[str, Result]) -> list[Scores]:
    """Return what a claim is decided by, each configuration with the seeds that its rule reads."""
    return list(grouped({name: result for name, result in results.items() if name in verdict.runs}).values())


def _learned(compared: Sequence[Scores]) -> str:
    """Write the least and the largest average in distribution: where all are small, nothing has learned the task."""
    averages = _inside(compared)
    ends = dict.fromkeys(f"{100 * end:.1f}" for end in (min(averages), max(averages))) if averages else ["-"]
    return " .. ".join(ends)


def _inside(compared: Sequence[Scores]) -> list[float]:
    """Return the averages in distribution."""
    return [scores.average(scores.inside) for scores in compared]


def _beside(compared: Sequence[Scores], results: Mapping[str, Result]) -> dict[str, Scores]:
    """Return what a reader wants to see beside the models of a claim, by what it is: methods as the ladder sets them up, and
    with more time or fewer layers.
    """
    shown: dict[str, Scores] = {}
    known, names = grouped(results), {scores.name for scores in compared}
    for method in dict.fromkeys(scores.method for scores in compared):
        for suffix, words in BESIDE.items():
            name = f"{method}{suffix}"
            if name in known and name not in names:
                shown[f"{method}: {words}"] = known[name]
    return shown


def _scores_of(verdict: Verdict, results: Mapping[str, Result]) -> str:
    """Write what the models of a claim solve, in and out of distribution."""
    compared = _compared(verdict, results)
    if not compared:
        return ""
    lines = [
        [f"`{scores.name}`", words, shares(scores, scores.inside), shares(scores, scores.outside)]
        for words, scores in [*(("compared", one) for one in compared), *_beside(compared, results).items()]
    ]
    heads = [
        "configuration",
        "",
        "solved in distribution, by seed (95 % interval over problems)",
        "out of distribution",
    ]
    return "\n\n" + table(heads, lines)


def score(results: Mapping[str, Result], drawn: Drawn) -> str:
    """Say how the claims stand: the paper's, and ours, how many say little, and how many verdicts may still change."""
    decided = decide_all(results)
    ours = [verdict for verdict in decided if verdict.claim.sentence.startswith("Ours:")]
    papers = [verdict for verdict in decided if verdict not in ours]
    said = f"Of the paper's {len(papers)} claims: {_counted(papers)}. Of {len(ours)} of our own: {_counted(ours)}."
    averages = [_inside(_compared(verdict, results)) for verdict in papers]
    little = sum(bool(found) and max(found) < UNLEARNED for found in averages)
    if little:
        said += (
            f" For {little} of the {len(papers)}, nothing that is compared solves even {100 * UNLEARNED:.0f} % of the problems "
            "of sizes trained on, at this budget: such verdicts say little about the paper."
        )
    if any(verdict.waiting for verdict in decided):
        said += ' A verdict "so far" may change: runs of other configurations are not measured yet.'
    return said


def _counted(verdicts: Sequence[Verdict]) -> str:
    """Count verdicts by outcome, and those that may still change."""
    parts = []
    for outcome in get_args(Outcome):
        found = [verdict for verdict in verdicts if verdict.outcome == outcome]
        so_far = sum(bool(verdict.waiting) for verdict in found)
        words = "that differ" if outcome == "differs" else outcome
        if found:
            parts.append(f"{len(found)} {words}" + (f" ({so_far} so far)" if so_far else ""))
    return ", ".join(parts)


def ladder(results: Mapping[str, Result], drawn: Drawn) -> str:
    """Write a row for each method: what it solves as chosen by validation loss, as the ladder sets it up, with more time."""
    groups = grouped(FIGURES["methods"].select(results, "laptop"))
    chosen = best_of_each(groups)
    longer = {scores.method: scores for scores in with_longer(groups, chosen)}
    lines = []
    for method, scores in chosen.items():
        first, more = own(groups, method), longer.get(method)
        lines.append(
            [
                f"**{METHOD_LOOKS[method].label}**",
                _in_words(scores),
                *(by_seed(scores, sizes) for sizes in (scores.inside, scores.outside)),
                "the same" if first is None or first is scores else _inside_and_outside(first),
                _inside_and_outside(more) if more else "-",
            ]
        )
    heads = ["method", "configuration", "in, %", "out, %", "the ladder's preset, in / out", "4x the budget, in / out"]
    return table(heads, lines)


def _in_words(scores: Scores) -> str:
    """Describe a configuration: its encoding, its layers and how often they are applied."""
    layers, times = scores.labels["layers"], scores.labels["iterations"] or 1
    parts = [
        ENCODING_LOOKS[scores.labels["encoding"]].label,
        f"{layers} layers" + (f", {times} times" if times > 1 else ""),
    ]
    return ", ".join([*parts, *(["few names first"] if few_names(scores) else [])])


def _inside_and_outside(scores: Scores) -> str:
    return f"{by_seed(scores, scores.inside)} / {by_seed(scores, scores.outside)}"


def claims(results: Mapping[str, Result], drawn: Drawn) -> str:
    """Write each claim: sentence, verdict, why, rule, command, figures, and what was compared."""
    parts = []
    for verdict in decide_all(results):
        claim = verdict.claim
        shown = ", ".join(f"[{name}](#figure-{name})" for name in CLAIM_FIGURES[claim.name] if drawn(name))
        so_far = f"- So far, with the seeds there are: {verdict.so_far}.\n" if verdict.so_far else ""
        if verdict.waiting:
            so_far = f"- This may change: {listed(verdict.waiting)} may turn out to be a method's best configuration.\n"
        parts.append(
            f"### {claim.name}\n\n"
            f"{claim.sentence} ({claim.where})\n\n"
            f"- **{verdict.outcome}**, because {verdict.because}.\n{so_far}"
            f"- Reproduced if {claim.reproduced}.\n"
            f'- Not reproduced if {claim.not_reproduced}. Otherwise the verdict is "differs".\n'
            f"- `{claim.command}`{f'; figures: {shown}' if shown else ''}{_scores_of(verdict, results)}"
        )
    return "\n\n".join(parts)


def figures(results: Mapping[str, Result], drawn: Drawn) -> str:
    """Write every figure that is drawn, with its caption; what the page has said before is left out."""
    parts = []
    for scale in PAGE_SCALES:
        for name in names_at(scale):
            figure, own = FIGURES[name], scale == PAGE_SCALES[0]
            picture = drawn(paths(name, Path(), scale)[0].stem)
            if picture:
                figures = f"figure{'s' if ',' in figure.repeats else ''} {figure.repeats}" if figure.repeats else None
                source = f"The paper's {figures}" if figures else "Ours"
                words = figure.caption if own else caption(name, scale)
                parts.append(
                    f"### Figure {name}{'' if own else f', {scale}'}\n\n![{figure.title}]({picture})\n\n"
                    f"**{figure.title}.** {words} {source}; `latentloop figures {name}{'' if own else f' --scale {scale}'}`."
                )
    return "\n\n".join(parts) or "No figure is drawn yet."


def runs(results: Mapping[str, Result], drawn: Drawn) -> str:
    """Write a row for every run."""
    lines = [
        [
            f"`{scores.name}`",
            str(result["seed"]),
            scores.method,
            described(scores),
            number(result["training"]["steps"]),
            number(result["training"]["problems"]),
            number(result["training"]["tokens"], 1e6, 1),
            number(result["training"]["operations"], 1e12, 1),
            number(result["training"]["seconds"]),
            number(result.get("average_in"), 0.01, 1),
            number(result.get("average_out"), 0.01, 1),
        ]
        for scores in grouped(results).values()
        for result in scores.results
    ]
    if not lines:
        return "No run is stored yet."
    heads = [
        "run",
        "seed",
        "method",
        "model",
        "steps",
        "problems",
        "million token passes",
        "10^12 operations",
        "seconds",
    ]
    heads += ["in, %", "out, %"]
    return table(heads, lines)


def cost(results: Mapping[str, Result], drawn: Drawn) -> str:
    """Say what all timed runs cost together, and what those that are stored took."""
    jobs = [job for point in POINTS.values() if point.scale in TIMED for job in point.jobs]
    minutes = sum(MINUTES * job.point.budget for job in jobs)
    took = sum(result["training"]["seconds"] or 0 for result in results.values()) / 60
    return (
        f"All timed runs of the table of experiments, those of `tuning` included: {len(jobs)} runs, "
        f"{minutes:,.0f} minutes of one core ({minutes / 60:.0f} hours). "
        f"The {len(results)} runs above took {took:,.0f} minutes of wall-clock time, one core each."
    )


def number(value: int | float | None, unit: float = 1.0, digits: int = 0) -> str:
    """Write a number in a unit; a dash where there is none."""
    return "-" if value is None else f"{value / unit:,.{digits}f}"


def missing(results: Mapping[str, Result], drawn: Drawn) -> str:
    """Say plainly which runs of which experiments are not measured yet."""
    lines = []
    for name, experiment in EXPERIMENTS.items():
        if experiment.points[0].scale in PAGE_SCALES:
            jobs = [job.name for job in experiment.jobs]
            left = [f"`{job}`" for job in jobs if job not in results]
            lines.append([f"`{name}`", f"{len(jobs) - len(left)} of {len(jobs)}", ", ".join(left) or "nothing"])
    return table(["experiment", "runs stored", "not measured yet"], lines)


PARTS: dict[str, Callable[[Mapping[str, Result], Drawn], str]] = {
    "score": score,
    "ladder": ladder,
    "verdicts": verdicts,
    "claims": claims,
    "figures": figures,
    "runs": runs,
    "cost": cost,
    "missing": missing,
}
"""The parts of the page, by the name of their mark."""
