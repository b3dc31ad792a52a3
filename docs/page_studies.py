"""What was found in the models that were interpreted: one table that compares them, and a page for each with all evidence."""

from collections.abc import Mapping
from typing import Any

from latentloop.interpret.attribution import SOURCES
from latentloop.interpret.claims import STATEMENTS
from latentloop.report.page import Number
from latentloop.report.results import table

MARKS = {"supported": "**yes**", "not supported": "no", "does not apply": "-", "not computed": "not computed"}


def statements_table(found: Mapping[str, Any]) -> str:
    """The verdict on every statement about what a model has learned, a column a model, with one number each."""
    studies = found["studies"]
    texts: dict[str, tuple[str, str]] = {}
    cells: dict[str, dict[str, str]] = {}
    for model, study in studies.items():
        for claim in study["claims"]:
            texts.setdefault(claim["name"], (claim["statement"], claim["measure"]))
            mark = MARKS[claim["verdict"]]
            cells.setdefault(claim["name"], {})[model] = f"{mark} {claim['number']}".rstrip()
    lines = [
        [f"`{name}`: {statement}", measure, *(cells[name].get(model, "not judged") for model in studies)]
        for name, (statement, measure) in texts.items()
    ]
    circuits = [study["circuit"].partition(":")[0] for study in studies.values()]
    lines.insert(0, ["The circuit that was found", "", *circuits])
    return table(["statement", "number", *(f"[`{name}`](studies/{name}/verdicts.md)" for name in studies)], lines)


def rules_table(found: Mapping[str, Any]) -> str:
    """What has to be found for a statement to be supported."""
    rows: dict[tuple[str, str], list[str]] = {}
    for name, row in STATEMENTS.items():
        rows.setdefault((row.measured, row.checked), []).append(f"`{name}`")
    return table(
        ["statement", "what has to be measured", "what the intervention has to give"],
        [[", ".join(names), *rule] for rule, names in rows.items()],
    )


def analyses_table(found: Mapping[str, Any]) -> str:
    """How long each analysis took."""
    studies = found["studies"]
    names = dict.fromkeys(name for study in studies.values() for name in study["seconds"])
    seconds = [study["seconds"] for study in studies.values()]
    lines = [[f"`{name}`", *(f"{one[name]:.0f}" if name in one else "-" for one in seconds)] for name in names]
    lines.append(["all", *(f"{sum(one.values()):.0f}" for one in seconds)])
    return table(["seconds", *(f"`{name}`" for name in studies)], lines)


def sources_table(found: Mapping[str, Any]) -> str:
    """Wrong values by what did not do its work, a row a model; and how often right values seem to have such a source."""
    lines = []
    for name, study in found["studies"].items():
        errors = study["results"].get("errors")
        if errors:
            counts = [
                f"({count:,})" if count and source in errors.doubtful else f"{count:,}"
                for source, count in errors.counts.items()
            ]
            kinds = ["attention", "cosine", *(["weights_cosine"] if errors.weights_cosine is not None else [])]
            alarms = [f"{100 * errors.below(what):.0f} %" for what in kinds]
            alarms += ["-"] * (3 - len(alarms))
            again = f"{errors.wrong_again:.0%} of {errors.retried:,}" if errors.retried else "-"
            lines.append(
                [
                    f"`{name}`",
                    f"{errors.instances:,}",
                    str(errors.nodes),
                    f"{errors.checked:,}",
                    *counts,
                    again,
                    *alarms,
                ]
            )
    alarms = ["right, attention below", "right, cosine below", "the same, vectors from weights"]
    return table(["model", "problems", "N", "values", *SOURCES, "feed-forward, computed again: wrong", *alarms], lines)


def study_page(name: str, study: Mapping[str, Any]) -> str:
    """Return one model's page: every verdict with what was measured and what the intervention gave, and all figures."""
    lines = [
        [claim["statement"], f"**{claim['verdict']}**", claim["evidence"] or "-", claim["check"]]
        for claim in study["claims"]
    ]
    parts = [
        f"# Inside {name}",
        f"{study['about']} The circuit that was found: {study['circuit']}. "
        "[All models side by side](../../interpret.md#what-was-found).",
        table(["statement", "verdict", "measured", "causal check, or why there is no verdict"], lines),
    ]
    parts += [
        f"## The circuit\n\n![{figure}]({figure}.png)\n\n{chart.caption}"
        for figure, chart in study["circuit_charts"].items()
    ]
    for part in study["parts"]:
        parts += [f"## {part.title}", part.question, f"*{part.verdict.text}.*"]
        parts += ["\n".join(_number(number) for number in part.numbers)] if part.numbers else []
        parts += [f"![{figure}]({figure}.png)\n\n{chart.caption}" for figure, chart in part.charts.items()]
    return "\n\n".join(parts) + "\n"


def _number(number: Number) -> str:
    return f"- **{number.value}** {number.label}" + (f" ({number.detail})" if number.detail else "")
