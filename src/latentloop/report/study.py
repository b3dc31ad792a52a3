"""The report of an interpretation: figures as PNG, and one offline HTML page, from the results in a folder alone."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from latentloop.errors import UserError
from latentloop.files import read_json
from latentloop.interpret.claims import STATEMENTS, Claim
from latentloop.interpret.probes import OPERANDS
from latentloop.interpret.registry import ANALYSES
from latentloop.interpret.sharpness import LINKS
from latentloop.interpret.study import MODEL, VERDICTS, Study, read_study
from latentloop.report.charts import Chart, Charts, draw, plotly
from latentloop.report.circuit_diagram import circuit_diagram, listed
from latentloop.report.circuit_figures import GROUP_KINDS, sinks_charts
from latentloop.report.diagram import Diagram
from latentloop.report.graph import save_figure
from latentloop.report.page import Block, FigureBlock, Number, Page, Section, Verdict, write_page
from latentloop.report.study_figures import FIGURES

ASKED = ("supported", "not supported")
"""Verdicts that an analysis has led to."""
PAGE = "report.html"
WORST = 4
"""Parts that are named, of those without which fewer problems are solved."""
TOKENS = {"=": "equals sign", ";": "separator", "op": "operation", "RHS": "right-hand side"}
PICTURE = "latentloop study"
"""What the source of a picture, which is kept in its file, begins with."""
DPI = 160
PIXELS = 130
DIAGRAM_PIXELS = 125
"""Of a chart's inch on the page, and of a diagram's."""


def study_charts(study: Study) -> dict[str, Charts]:
    """Return all figures, by analysis; the circuit is one of them."""
    results = study.results
    found: dict[str, Charts] = {}
    if {"heads", "flow"} <= results.keys():
        diagram = circuit_diagram(results["heads"], results["flow"], results.get("ablation"))
        found["circuit"] = {"circuit": diagram}
    figures = FIGURES | {"sinks": partial(sinks_charts, heads=results.get("heads"))}
    return found | {name: figures[name](result) for name, result in results.items()}


def picture_source(name: str, chart: Chart | Diagram) -> str:
    """Return a hash of all that a picture shows, which is kept in its file."""
    shown = asdict(replace(chart, caption=""))  # the caption stands below it, not in it
    content = json.dumps(_plain(shown), sort_keys=True).encode()
    return f"{PICTURE} {name}, {hashlib.sha256(content).hexdigest()[:16]}"


def _plain(value: Any) -> Any:
    """Return a chart's content as JSON has it; numbers with the digits that can be seen."""
    match value:
        case dict():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case np.ndarray() | np.generic():
            return _plain(value.tolist())
        case float():
            return f"{value:.5g}"
        case _:
            return value


def draw_pictures(folder: Path, charts: Mapping[str, Charts]) -> list[Path]:
    """Write all figures into a folder as PNG; return their paths. Drawn again from the same results, a file is the same."""
    written = []
    for figures in charts.values():
        for name, chart in figures.items():
            path = folder / f"{name}.png"
            save_figure(draw(chart), path, dpi=DPI, source=picture_source(name, chart))
            written.append(path)
    return written


def write_report(folder: Path) -> Path:
    """Draw all figures and write the page, from the results in a folder; return the page's path."""
    charts = study_charts(read_study(folder))
    _remove_others(folder, draw_pictures(folder, charts))
    path = folder / PAGE
    write_page(stored_page(folder), path)
    return path


def stored_page(folder: Path) -> Page:
    """Return the page of the results in a folder."""
    study = read_study(folder)
    return study_page(study, study_charts(study), _read(folder / MODEL), _read(folder / f"{VERDICTS}.json"))


def _remove_others(folder: Path, drawn: Sequence[Path]) -> None:
    """Remove pictures of results that are no longer used; nothing else that lies in the folder."""
    for path in folder.glob("*.png"):
        if path not in drawn and PICTURE.encode() in path.read_bytes()[:1000]:
            path.unlink()


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_json(path)
    except UserError:
        return {}


@dataclass(frozen=True, kw_only=True)
class Part:
    """What a study says of one analysis: question, numbers, pictures, verdict."""

    title: str
    question: str
    numbers: Sequence[Number]
    charts: Charts
    claims: Sequence[Claim]
    """Those that rest on it."""
    verdict: Verdict


def study_parts(study: Study, charts: Mapping[str, Charts]) -> list[Part]:
    """Return what there is to say of each analysis that was run."""
    parts = []
    for analysis, row in ANALYSES.items():
        if analysis not in study.stored:
            continue
        stored = study.stored[analysis]
        claims = [claim for claim in study.claims if analysis in STATEMENTS[claim.name].needs]
        if stored.result is None:
            verdict = Verdict(kind="open", label="does not apply", text=stored.reason)
            parts.append(
                Part(title=row.title, question=row.question, numbers=[], charts={}, claims=[], verdict=verdict)
            )
            continue
        parts.append(
            Part(
                title=row.title,
                question=row.question,
                numbers=_numbers(analysis, stored.result),
                charts=charts[analysis],
                claims=claims,
                verdict=_overall(claims),
            )
        )
    return parts


def study_page(
    study: Study, charts: Mapping[str, Charts], model: Mapping[str, Any], verdicts: Mapping[str, Any]
) -> Page:
    """Return the page: the circuit and all verdicts, then a section for each analysis."""
    name = Path(model.get("checkpoint", "a model")).name
    sections = [_summary(study, charts.get("circuit", {}))]
    for part in study_parts(study, charts):
        blocks: list[Block] = [part.question, *part.numbers, *(_figure(chart) for chart in part.charts.values())]
        blocks += [_listed(part.claims)] if part.claims else []
        sections.append(Section(heading=part.title, blocks=blocks, verdict=part.verdict))
    return Page(
        title=f"Inside {name}",
        intro=about_study(study, model),
        sections=sections,
        configuration=model.get("config", {}),
        provenance=verdicts.get("provenance", {}),
    )


def about_study(study: Study, model: Mapping[str, Any]) -> str:
    """Say which model it is, and what it was studied on."""
    size = study.size
    about = f"Method `{model.get('method', '-')}`, model `{model.get('name', '-')}`."
    if size is not None:
        about += f" Studied on problems of {size.nodes} nodes, of which it solves {size.solved:.0%}."
        if size.probes_right is not None:
            names = "repeats a name of the problem" if size.repeats else "has a name of its own"
            about += f" The probe's right-hand side {names}; {size.probes_right:.0%} of probes are answered right."
    if study.left_out:
        about += f" Not used, of what was there: {', '.join(study.left_out)}."
    return about


def _summary(study: Study, circuit: Charts) -> Section:
    held = sum(claim.verdict == "supported" for claim in study.claims)
    asked = sum(claim.verdict in ASKED for claim in study.claims)
    blocks: list[Block] = [
        f"**{study.circuit[:1].upper()}{study.circuit[1:]}.**",
        Number(value=f"{held} of {asked}", label="statements supported", detail="by measurement and intervention"),
        *(_figure(chart) for chart in circuit.values()),
        "\n".join(f"- **{claim.verdict}**: {claim.statement}." for claim in study.claims),
    ]
    return Section(heading="What was found", blocks=blocks)


def _listed(claims: Sequence[Claim]) -> str:
    """Return statements with their verdicts, what was measured and what the intervention gave, as a list."""
    lines = []
    for claim in claims:
        parts = [f"**{claim.verdict}**: {claim.statement}."]
        parts += [f"Measured: {claim.evidence}."] if claim.evidence else []
        parts.append(f"Check: {claim.check}." if claim.evidence else f"({claim.check})")
        lines.append(f"- {' '.join(parts)}")
    return "\n".join(lines)


def _overall(claims: Sequence[Claim]) -> Verdict:
    asked = [claim for claim in claims if claim.verdict in ASKED]
    if not claims:
        return Verdict(kind="open", label="numbers", text="no statement rests on it: the numbers are all it says")
    if not asked:
        return Verdict(kind="open", label="numbers", text=f"{_unasked(claims)}: the numbers are all it says")
    held = sum(claim.verdict == "supported" for claim in asked)
    kind = "yes" if held == len(asked) else "no" if held == 0 else "partly"
    text = "statements that rest on it" if len(asked) > 1 else "the statement that rests on it"
    return Verdict(kind=kind, label=f"{held} of {len(asked)} supported", text=text)


def _unasked(claims: Sequence[Claim]) -> str:
    """Say why the statements that rest on an analysis have no verdict."""
    several = len(claims) > 1
    start = f"the {len(claims)} statements that rest on it" if several else "the statement that rests on it"
    reasons = [claim.verdict for claim in claims]
    if "not computed" not in reasons:
        return f"{start} {'do' if several else 'does'} not apply"
    if "does not apply" not in reasons:
        return f"{start} {'are' if several else 'is'} not computed"
    return f"{start} do not apply or are not computed"


def _figure(chart: Chart | Diagram) -> FigureBlock:
    pixels = DIAGRAM_PIXELS * chart.height if isinstance(chart, Diagram) else PIXELS * chart.height * chart.rows + 90
    return FigureBlock(figure=plotly(chart), caption=chart.caption, height=int(pixels))


def _token(place: str) -> str:
    """Write in words which token of a probe is meant, or which one before it."""
    word = place.removeprefix("earlier ")
    said = TOKENS.get(word, word)
    return said if word == place and word not in TOKENS else f"{'the' if word == place else 'an earlier'} {said}"


def _numbers(analysis: str, result: Any) -> list[Number]:
    """Return the figures that matter of one result."""
    match analysis:
        case "heads":
            return [
                *(
                    Number(
                        value=listed(heads),
                        label=f"layer {layer + 1}, {group}",
                        detail=f"head{'s' * (len(heads) > 1)}",
                    )
                    for layer in range(len(result.layers))
                    for group, heads in result.groups(layer).items()
                    if group.endswith(OPERANDS) or "shared" in group or group == "look-up"
                ),
                Number(
                    value=f"{result.rule.threshold:g}",
                    label="least relative variance of a group's heads",
                    detail=f"{result.rule.dominance:g} times that of any other place",
                ),
            ]
        case "flow":
            return [
                Number(value=f"{result.right:.0%}", label="of unpatched probes right"),
                *(
                    Number(
                        value=f"{one.moved:.0%}",
                        label=f"of answers move with layer {one.layer + 1}, {GROUP_KINDS[one.kind]} of {one.operand}",
                        detail=f"heads {', '.join(map(str, one.heads))} patched alone",
                    )
                    for one in result.groups
                ),
            ]
        case "residual":
            return [
                Number(value=f"{np.median(change):.2f}", label=name, detail="median relative change")
                for name, change in zip(result.mlps, result.change, strict=True)
            ]
        case "embeddings":
            explained = result.main.explained
            return [
                *(Number(value=f"{score:.2f}", label=f"circulant, {kind}") for kind, score in result.circulant.items()),
                *(
                    Number(value=f"{score:.2f}", label=f"orthogonal, {kind}")
                    for kind, score in result.orthogonality.items()
                ),
                Number(value=f"{explained:.0%}", label="explained by one vector for each operand's value"),
            ]
        case "fourier":
            return [
                Number(
                    value=f"{one.sites[-1].diagonal:.0%}",
                    label=f"of the read-out in (a,a,a): {one.name}",
                    detail=f"{one.right:.1%} of {one.triples:,} triples right",
                )
                for one in result.patterns
            ]
        case "errors":
            doubt = dict.fromkeys(result.doubtful, ", which its threshold does not tell here")
            return [
                *(
                    Number(
                        value=f"{count:,}",
                        label=f"wrong: {source}{doubt.get(source, '')}",
                        detail=f"of {result.checked:,} values",
                    )
                    for source, count in result.counts.items()
                ),
                Number(value=f"{result.below('attention'):.0%}", label="of right values' look-ups below the threshold"),
                Number(value=f"{result.below('cosine'):.0%}", label="of right values' cosines below it"),
                *(
                    [
                        Number(
                            value=f"{result.below('weights_cosine'):.0%}",
                            label="of right values' cosines below it, with vectors from weights, as in the paper",
                            detail=", ".join(f"{source} {count:,}" for source, count in result.weights_counts.items()),
                        )
                    ]
                    if result.weights_counts is not None
                    else []
                ),
            ]
        case "ablation":
            return [
                Number(value=f"{result.solved:.0%}", label="solved with all parts", detail=f"{result.nodes} nodes"),
                *(
                    Number(value=f"{part.solved:.0%}", label=f"without layer {part.layer + 1}, {part.part}")
                    for part in sorted(result.parts, key=lambda part: part.solved)[:WORST]
                    if part.solved < result.solved
                ),
            ]
        case "circuits":
            return [
                Number(
                    value=f"{one.margin:.1f}x",
                    label=f"layer {one.layer + 1}, {one.group}: {one.copied}",
                    detail=f"over the next factor, {one.input}",
                )
                for one in result.groups
                if one.copied is not None
            ]
        case "sinks":
            return [
                Number(
                    value=found.rpartition(" ")[2],
                    label=f"of the attention of {head} goes to {_token(found.rpartition(' ')[0])}",
                    detail="where its operand is missing",
                )
                for head, found in result.sinks.items()
            ]
        case "sharpness":
            return [
                Number(
                    value=f"{found[-1].mean():.2f} nats",
                    label=f"layer {layer + 1}, right-hand sides, N = {result.sizes[-1]}",
                    detail=f"{found[0].mean():.2f} at N = {result.sizes[0]}",
                )
                for layer, found in enumerate(result.at_rhs)
            ] + [
                Number(
                    value=f"{found[-1]:.2f} nats",
                    label=f"layer {layer + 1}, {LINKS[link]}, N = {result.sizes[-1]}",
                    detail=f"{found[0]:.2f} at N = {result.sizes[0]}; attention there {weight[-1]:.2f}",
                )
                for link in LINKS
                for layer, (found, weight) in enumerate(zip(result.links[link], result.weights[link], strict=True))
                if found is not None
            ]
        case "recompute":
            return [
                Number(value=f"{result.restored:.0%}", label="of wrong values restored"),
                Number(value=f"{result.kept:.0%}", label="kept"),
            ]
        case "keeping":
            return [
                Number(
                    value=f"{kept:.0%}",
                    label=f"of wrong values kept, {count} operand{'s' * (count > 1)}",
                    detail=f"{computed:.0%} become what the operands give",
                )
                for count, kept, computed in zip(result.operands, result.kept, result.computed, strict=True)
            ] + [
                Number(
                    value=f"{result.without[layer][:, head].max():.0%}",
                    label=f"at most without layer {layer + 1}, head {head}",
                    detail=f"its attention to the right-hand side itself is {result.itself[layer][1, :, head].min():.2f}",
                )
                for layer, heads in enumerate(result.heads)
                for head in heads
            ]
        case "iterations":
            return [
                Number(
                    value=f"{result.follow:.0%}",
                    label="of children follow a patched value",
                    detail=f"of {result.children}; {result.left_out} are wrong without a patch",
                )
            ]
        case "drift":
            return [
                Number(
                    value=f"{result.known_right.min():.1%}",
                    label="of known values decode right, at the worst iteration",
                ),
                Number(value=f"{result.change[-1]:.1%}", label="change of vectors at the last iteration"),
            ]
        case _:
            return []
