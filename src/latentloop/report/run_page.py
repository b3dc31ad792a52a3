"""The report of runs and results: one page with learning curves, tables by size, figures, settings and provenance."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from latentloop.report.card import CERTIFIED, EVALUATED, STRESSED, certified, evaluated, stressed
from latentloop.report.page import Block, FigureBlock, Number, Page, Section, TableBlock, Verdict
from latentloop.report.plots import curve_figure, depths_figure, iterations_figure, sizes_figure, trained_to
from latentloop.report.stored import Stored, StoredResult, StoredRun

SHARES = ("right_leaf", "right_one", "right_two", "right_three")
MOST_WRONG = 20
"""Wrong entries of a certificate that are listed."""


def report_page(stored: Sequence[Stored]) -> Page:
    """Return one page of runs and results; evaluations are compared in one figure."""
    names = list(dict.fromkeys(one.title if isinstance(one, StoredResult) else one.name for one in stored))
    evaluations = [one for one in stored if isinstance(one, StoredResult) and one.kind == "evaluation"]
    sections = [_training(one) for one in stored if isinstance(one, StoredRun)]
    sections += list(_generalization(evaluations))
    for one in stored:
        if isinstance(one, StoredResult) and one.kind != "evaluation":
            sections.append(_certificate(one) if one.kind == "certificate" else _stress(one))
    return Page(
        title=f"Report: {', '.join(names)}",
        intro=_intro(stored),
        sections=sections,
        configuration=_by_name({one.name: settings for one in stored if (settings := _settings(one))}),
        provenance=_by_name({_source(one): found for one in stored if (found := _provenance(one))}),
    )


def _intro(stored: Sequence[Stored]) -> str:
    about = [one.document["model"] for one in stored if isinstance(one, StoredResult)]
    lines = dict.fromkeys(_model_line(model) for model in about)
    runs = [one.run for one in stored if isinstance(one, StoredRun)]
    if not lines:
        lines = dict.fromkeys(f"Method `{run.method.name}`, model `{run.name}`." for run in runs)
    return "\n\n".join(lines)


def _model_line(model: Mapping[str, Any]) -> str:
    weights, sha256 = model.get("parameters"), str(model.get("sha256", ""))[:12]
    size = f", {weights:,} weights" if type(weights) is int else ""
    digest = f" (SHA-256 of its weights begins with `{sha256}`)" if sha256 else ""
    return f"Method `{model.get('method', '-')}`, model `{model.get('name', '-')}`{size}{digest}."


def _settings(one: Stored) -> Mapping[str, Any]:
    if isinstance(one, StoredRun):
        return one.run.to_dict()
    parts = {"settings": one.document.get("settings"), "model": one.document["model"].get("config")}
    return {name: part for name, part in parts.items() if isinstance(part, Mapping)}


def _provenance(one: Stored) -> Mapping[str, Any]:
    found = (one.metrics if isinstance(one, StoredRun) else one.document).get("provenance", {})
    return found if isinstance(found, Mapping) else {}


def _source(one: Stored) -> str:
    return f"{one.name}, training" if isinstance(one, StoredRun) else f"{one.name}, {one.kind}"


def _by_name(parts: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    return next(iter(parts.values())) if len(parts) == 1 else parts


def _training(stored: StoredRun) -> Section:
    """Return what was measured in training."""
    metrics, run = stored.metrics, stored.run
    step = metrics.get("step") or max((row["step"] for row in stored.rows), default=0)
    blocks: list[Block] = [
        Number(value=f"{step:,} of {run.train.steps:,}", label="steps", detail="of the best checkpoint")
    ]
    if metrics.get("best_loss") is not None:
        blocks.append(Number(value=f"{metrics['best_loss']:.3g}", label="validation loss", detail="the least"))
    if metrics.get("seconds") is not None:
        blocks.append(Number(value=_duration(metrics["seconds"]), label="of training", detail="up to that checkpoint"))
    found = {name for row in stored.rows for name in row if name.startswith("right_")}
    shares = [name for name in SHARES if name in found] + sorted(
        found.difference(SHARES)
    )  # the same colors in all figures
    figures = {
        "Loss by step.": curve_figure(stored.rows, ["loss"], "loss (log scale)", log=True),
        "Values right in training, by what they are: leaves, equations of one to three operands, auxiliary read-outs.": (
            curve_figure(stored.rows, shares, "right, %", kinds=["train"], percent=True)
        ),
        "Values right in validation.": (
            curve_figure(stored.rows, shares, "right, %", kinds=["validation"], percent=True)
        ),
        "Learning rate by step.": curve_figure(stored.rows, ["lr"], "learning rate"),
    }
    blocks += [FigureBlock(figure=figure, caption=text) for text, figure in figures.items() if figure is not None]
    if not stored.rows:
        blocks.append("The folder holds no `metrics.jsonl`, so that there are no learning curves.")
    return Section(heading=f"How {stored.name} was trained", blocks=blocks)


def _duration(seconds: int | float) -> str:
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def _generalization(evaluations: Sequence[StoredResult]) -> Iterator[Section]:
    """Yield sections on problems of all sizes: all evaluations together, then each on its own."""
    if not evaluations:
        return
    names = _labels(evaluations)
    documents = {name: one.document for name, one in zip(names, evaluations, strict=True)}
    shaded = " Shaded: sizes trained on." if any(trained_to(document) for document in documents.values()) else ""
    caption = f"Problems fully solved by size, with 95 % intervals.{shaded}"
    figure = FigureBlock(figure=sizes_figure(documents), caption=caption)
    yield Section(heading="How far does it generalize?", blocks=[figure])
    for name, document in documents.items():
        yield Section(heading=f"{name}, size by size", blocks=list(_sizes(document)))


def _labels(evaluations: Sequence[StoredResult]) -> list[str]:
    """Return a name for each: its model's, and where two are of one model, the file's too."""
    titles = [one.title for one in evaluations]
    labels: list[str] = []
    for one in evaluations:
        label = one.title if titles.count(one.title) == 1 else f"{one.title} ({one.name})"
        labels.append(f"{label} #{len(labels) + 1}" if label in labels else label)
    return labels


def _sizes(document: Mapping[str, Any]) -> Iterator[Block]:
    rows = document["rows"]
    asked = document.get("settings")
    if isinstance(asked, Mapping):
        words = (f"{name} {value}" for name in ("halt", "family", "order", "skip") if (value := asked.get(name)))
        yield f"Published test problems: {', '.join(words) or 'the first ones'}."
    if document.get("interrupted"):
        yield "**Interrupted**: the same command evaluates the sizes that are missing."
    yield TableBlock(columns=EVALUATED, rows=[evaluated(row) for row in rows])
    rules = [key for key in rows[0] if key.startswith("solved_") and key not in ("solved_low", "solved_high")]
    if rules:
        yield TableBlock(
            columns=["nodes", *(_rule(key) for key in rules)],
            rows=[[row["nodes"], *(_percent(row.get(key)) for key in rules)] for row in rows],
            caption="Problems solved under each halting rule, and at multiples of the iterations needed, %.",
        )
    curves = document.get("curves") or {}
    if any(curve["solved_by_iteration"] for curve in curves.values()):
        yield FigureBlock(figure=iterations_figure(curves), caption="Problems fully solved after each iteration.")
    if any(curve["right_by_depth"] for curve in curves.values()):
        yield FigureBlock(figure=depths_figure(curves), caption="Values right by size and depth, %.")


def _rule(key: str) -> str:
    name = key.removeprefix("solved_")
    return f"at {name.removesuffix('x')}x" if name.removesuffix("x").isdecimal() else name.replace("_", " ")


def _percent(share: int | float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f}"


def _certificate(stored: StoredResult) -> Section:
    sizes = stored.document["sizes"]
    wrong = [(size["nodes"], entry) for size in sizes for entry in size["wrong"]]
    entries = sum(size["entries"] for size in sizes)
    text = f"{entries - len(wrong):,} of {entries:,} probes right"
    blocks: list[Block] = [
        "Every value combination of every equation, each probed once inside a random problem (`latentloop certify`).",
        TableBlock(columns=CERTIFIED, rows=[certified(size) for size in sizes]),
    ]
    if wrong:
        rows = [[nodes, str(entry)[:200]] for nodes, entry in wrong[:MOST_WRONG]]
        blocks.append(TableBlock(columns=["nodes", "entry"], rows=rows, caption="Wrong entries, the first ones."))
    verdict = Verdict(kind="no" if wrong else "yes", text=text)
    return Section(heading=f"Is every entry of its arithmetic right? {stored.title}", verdict=verdict, blocks=blocks)


def _stress(stored: StoredResult) -> Section:
    rows = stored.document["rows"]
    whole = [row for row in rows if row["solved"] == 1]
    kind = "yes" if len(whole) == len(rows) else "partly" if whole else "no"
    verdict = Verdict(kind=kind, text=f"all problems solved in {len(whole)} of {len(rows)} scenarios")
    table = TableBlock(columns=STRESSED, rows=[stressed(row) for row in rows])
    intro = (
        "Wrong states and other shapes of graphs (`latentloop stress`). Iterations after values were flipped are those from "
        "there on."
    )
    return Section(
        heading=f"Does it hold where it was not trained? {stored.title}", verdict=verdict, blocks=[intro, table]
    )
