"""The figures of an interpretation, each from one result alone: the paper's, and those of the causal checks."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from latentloop.interpret.attribution import ATTENTION, COSINE
from latentloop.interpret.drift import Drift
from latentloop.interpret.embeddings import NewValues
from latentloop.interpret.errors import Errors
from latentloop.interpret.findings import MOST
from latentloop.interpret.fourier import Site, Spectra
from latentloop.interpret.iterations import BetweenIterations
from latentloop.interpret.keeping import Keeping
from latentloop.interpret.probes import OPERANDS
from latentloop.interpret.recompute import Recomputation
from latentloop.interpret.residual import Changes
from latentloop.interpret.sharpness import Sharpness
from latentloop.report.charts import COLORS, WIDTH, Chart, Charts, Line, Panel
from latentloop.report.circuit_figures import ablation_charts, circuits_charts, flow_charts, heads_charts, sinks_charts

BINS = 24

LINK_NAMES = {
    "look-up": "head that looks up",
    "name": "head that reads an operand",
    "value": "head that reads a definition",
}
"""Of the links of ``sharpness``, in a legend."""
DEAD = 1e-9
"""Most energy outside of the constant part, of an MLP that adds the same whatever the operands are."""
SEEN = 0.05
"""Least attention to be drawn."""
DONE = 0.5
"""Least attention, at the smallest size, of a head that does what a link is for."""


def residual_charts(result: Changes) -> Charts:
    """Histograms of the relative change."""
    edges = np.geomspace(max(float(result.change.min()) / 1.1, 1e-4), float(result.change.max()) * 1.1 + 1e-3, BINS + 1)
    lines = [
        Line(name=name, y=np.histogram(change.clip(edges[0]), edges)[0])
        for name, change in zip(result.mlps, result.change, strict=True)
    ]
    panel = Panel(
        kind="steps",
        x=edges,
        lines=lines,
        log_x=True,
        x_label="|change| / |before|",
        y_label=f"of {result.change.shape[1]} probes",
    )
    return {
        "residual": Chart(
            panels=[panel], columns=1, height=2.6, caption="Relative L2 change of the residual stream by each MLP."
        )
    }


def embeddings_charts(result: NewValues) -> Charts:
    """Cosine similarities of new-value embeddings."""
    panels = []
    names = {"weights": result.similarity, "raw weights": result.raw_similarity, "measured": result.measured_similarity}
    for title, similarity in names.items():
        if similarity is None:
            continue
        size = len(similarity) // len(OPERANDS)
        labels = [
            f"{place} {result.symbols[value]}" if value % 6 == 0 and value < min(20, size) else ""
            for place in OPERANDS
            for value in range(size)
        ]
        panels.append(Panel(kind="heatmap", title=title, x=labels, y=labels, z=similarity, low=-1.0, high=1.0))
    return {
        "embeddings": Chart(
            panels=panels,
            columns=len(panels),
            height=2.5 if len(panels) > 1 else 3.6,
            caption="Cosine similarity of new-value embeddings, operand by operand. In those from weights, N/A and empty come "
            "after an operand's numbers.",
        )
    }


def shown_sites(sites: Sequence[Site]) -> list[Site]:
    """Return the places whose histograms are drawn: the first MLP's units, the last one's and its output, the read-out.

    An MLP that adds the same whatever the operands are is passed over.
    """
    alive = [site for site in sites if site.energy[1:].sum() > DEAD]
    return list({site.name: site for site in (*alive[:2], *alive[-4:])}.values())


def with_data(site: Site) -> tuple[np.ndarray, np.ndarray]:
    """Return the edges and counts of a histogram without the empty bins at its ends."""
    filled = np.flatnonzero(site.counts.any(0))
    if not len(filled):
        return site.edges, site.counts
    first, last = int(filled[0]), int(filled[-1])
    return site.edges[first : last + 2], site.counts[:, first : last + 1]


def fourier_charts(result: Spectra) -> Charts:
    """Histograms of norms by frequency group, energy by site, and what is left without some frequencies."""
    found: dict[str, Chart] = {}
    energy = []
    for pattern in result.patterns:
        names = [site.name for site in pattern.sites]
        lines = [
            Line(name=group, y=[site.energy[place] for site in pattern.sites])
            for place, group in enumerate(result.groups)
        ]
        energy.append(Panel(kind="bars", title=pattern.name, x=names, lines=lines, y_label="share of energy", top=1.0))
    found["fourier-energy"] = Chart(
        panels=energy,
        columns=1,
        height=2.5,
        width=WIDTH,
        caption="Energy by frequency group at each place, from the first MLP to the read-out.",
    )
    columns = 3 if len(shown_sites(result.patterns[0].sites)) > 4 else 2
    histograms = []
    for pattern in result.patterns:
        for place, site in enumerate(shown_sites(pattern.sites)):
            edges, counts = with_data(site)
            histograms.append(
                Panel(
                    kind="steps",
                    title=f"{pattern.name}: {site.name}",
                    x=edges,
                    lines=[Line(name=group, y=count) for group, count in zip(result.groups, counts, strict=True)],
                    log_x=True,
                    log_y=True,
                    x_label="norm",
                    y_label="" if place % columns else "frequencies",
                )
            )
    found["fourier-histograms"] = Chart(
        panels=histograms,
        columns=columns,
        caption="Norms of the transform at single frequencies, by group, for each operation; axes begin where there are any. "
        "MLPs that add the same whatever the operands are are left out.",
    )
    checks = []
    for pattern in result.patterns:
        without = pattern.without
        numbers = list(range(1, len(without.entering) + 1))
        checks += [
            Panel(
                kind="bars",
                title=f"{pattern.name}: without a group",
                x=result.groups,
                y_label="share",
                top=1.0,
                lines=[
                    Line(name="problems solved", y=without.solved_without),
                    Line(name="triples right", y=without.triples_without),
                ],
            ),
            Panel(
                kind="bars",
                title="where values enter: energy",
                x=numbers,
                x_label="frequency",
                y_label="share of energy",
                lines=[Line(name="energy", y=without.entering, color=COLORS[2])],
            ),
            Panel(
                kind="lines",
                title="... with the strongest alone",
                x=numbers,
                x_label="frequencies kept",
                y_label="share",
                top=1.0,
                lines=[
                    Line(name="triples right", y=without.triples_strongest, color=COLORS[1]),
                    Line(name="triples right, in a random basis", y=without.triples_random, color=COLORS[3]),
                ],
            ),
        ]
    found["fourier-checks"] = Chart(
        panels=checks,
        columns=3,
        height=2.5,
        caption="Without one frequency group of what the MLPs add; and with few frequencies where values enter them.",
    )
    return found


def errors_charts(result: Errors) -> Charts:
    """Histograms of attention and of cosines, for right and wrong values."""
    panels = []
    rows = (
        ("attention, depth ≥ iteration", result.attention_edges, result.attention[0], ATTENTION),
        ("cosine, depth ≥ iteration", result.cosine_edges, result.cosine[0], COSINE),
        ("attention, depth < iteration", result.attention_edges, result.attention[1], ATTENTION),
    )
    if result.weights_cosine is not None:
        rows = (
            *rows,
            ("cosine with weights, depth ≥ iteration", result.cosine_edges, result.weights_cosine[0], COSINE),
        )
    for title, edges, counts, threshold in rows:
        for which, place in enumerate(OPERANDS):
            lines = [
                Line(name="right", y=counts[which, 1], color=COLORS[0]),
                Line(name="wrong", y=counts[which, 0], color=COLORS[3]),
            ]
            if title.startswith("cosine,") and not result.grouped:
                place = f"{place}, all heads"
            panels.append(
                Panel(
                    kind="steps",
                    title=f"{place}\n{title}",
                    x=edges,
                    lines=lines,
                    log_y=True,
                    threshold=threshold,
                    x_label=title.partition(",")[0],
                    y_label="" if which else "operands",
                )
            )
    return {
        "errors": Chart(
            panels=panels,
            columns=3,
            caption=f"{result.instances} problems of {result.nodes} nodes. First layer's attention by group, and cosine of "
            "what the last layer's heads add with what they should, as measured and, where operands have heads of their own, "
            "from weights. Dotted: the least that counts as right.",
        )
    }


def sharpness_charts(result: Sharpness) -> Charts:
    """Entropy by size: of the head that does what a circuit needs, and of every head."""
    panels = []
    for layer, (rhs, operands) in enumerate(zip(result.at_rhs, result.at_operands, strict=True)):
        doing = {link: y for link, found in result.links.items() if (y := found[layer]) is not None}
        doing = {link: y for link, y in doing.items() if result.weights[link][layer][0] >= DONE}  # pyrefly: ignore
        for title, found, links in (("right-hand sides", rhs, ("name", "value")), ("operands", operands, ("look-up",))):
            if found is not None:
                lines = [Line(name=f"head {head}", y=found[:, head]) for head in range(found.shape[1])]
                lines += [
                    Line(name=LINK_NAMES[link], y=doing[link], color="#000000", dashed=link != "value")
                    for link in links
                    if link in doing
                ]
                panels.append(
                    Panel(
                        kind="lines",
                        title=f"layer {layer + 1}, at {title}",
                        x=result.sizes,
                        lines=lines,
                        x_label="nodes",
                        y_label="nats",
                        top=max(1.0, 1.05 * max(float(np.max(one.y)) for one in lines)),
                    )
                )
    return {
        "sharpness": Chart(
            panels=panels,
            columns=min(2, len(panels)),
            height=2.3,
            caption="Entropy of attention by size, each head, at the iteration at which an equation is computed. Black: of the "
            "head that attends most to the token in question, where it gives it half of its attention at least.",
        )
    }


def recompute_charts(result: Recomputation) -> Charts:
    """What becomes of wrong values."""
    names = ["restored", "kept", "follow a wrong operand", "stay in spite of it", "undisturbed"]
    shares = [result.restored, result.kept, result.follow, result.stay, result.undisturbed]
    panel = Panel(kind="sideways", x=names, lines=[Line(name="", y=shares)], y_label="share of values", top=1.0)
    return {
        "recompute": Chart(
            panels=[panel],
            columns=1,
            height=2.0,
            caption=f"One iteration of a solved state with wrong values: {result.wrong} made wrong, "
            f"{result.affected} with a wrong operand.",
        )
    }


def keeping_charts(result: Keeping) -> Charts:
    """What is kept without each head, and where heads look."""
    counts = [f"{count} operand{'s' * (count > 1)}" for count in result.operands]
    shares = ("kept", result.kept), ("computed anew", result.computed)
    outcome = [Line(name=name, y=share, color=COLORS[5 + place]) for place, (name, share) in enumerate(shares)]
    panels = [Panel(kind="bars", title="wrong values", x=counts, lines=outcome, y_label="share", top=1.0)]
    keeps = result.kept.mean() > MOST  # or else there is nothing to take away
    for layer, (without, itself) in enumerate(zip(result.without, result.itself, strict=True)):
        heads = list(range(without.shape[1]))
        both = [
            Panel(
                kind="bars",
                title=f"layer {layer + 1}: kept without a head",
                x=heads,
                x_label="head",
                y_label="share of wrong values",
                top=1.0,
                lines=[Line(name=name, y=without[row], color=COLORS[row]) for row, name in enumerate(counts)],
            ),
            Panel(
                kind="bars",
                title=f"layer {layer + 1}: attention of RHS to itself",
                x=heads,
                x_label="head",
                y_label="weight",
                top=1.0,
                lines=[
                    Line(name="a value is there", y=itself[1].mean(0), color=COLORS[3]),
                    Line(name="empty", y=itself[0].mean(0), color=COLORS[4]),
                ],
            ),
        ]
        panels += both[: 1 + (itself.max() >= SEEN)] if keeps else []
    kept = ", ".join(f"{share:.0%}" for share in result.kept)
    copied = ", ".join(f"{share:.0%}" for share in result.copied)
    some = any(result.heads)
    return {
        "keeping": Chart(
            panels=panels,
            columns=2 if keeps else 1,
            height=2.3,
            caption=f"Of wrong values at right-hand sides of equations with 1, 2 and 3 operands {kept} are kept."
            + " Then: share kept where one head adds what it does when the right-hand side is empty; and attention of the "
            "right-hand side to itself, where there is any."
            * bool(keeps)
            + (f" Heads that are needed, given what they add where another value is: {copied} become that one." * some),
        )
    }


def iterations_charts(result: BetweenIterations) -> Charts:
    """What becomes of a patched value."""
    names = ["takes the value", "children follow", "children unmoved", "restored", "kept"]
    shares = [result.taken, result.follow, result.unmoved, result.restored, result.kept]
    panel = Panel(kind="sideways", x=names, lines=[Line(name="", y=shares)], y_label="share of values", top=1.0)
    return {
        "iterations": Chart(
            panels=[panel],
            columns=1,
            height=2.0,
            caption=f"{result.patched} values patched between two iterations, "
            f"and {result.children} values computed from them at the next.",
        )
    }


def drift_charts(result: Drift) -> Charts:
    """Decoded values, change and margin over iterations."""
    times = list(range(1, len(result.right) + 1))
    panels = [
        Panel(
            kind="lines",
            title="decoded right",
            x=times,
            x_label="iteration",
            y_label="share",
            top=1.0,
            lines=[Line(name="all", y=result.right), Line(name="known by then", y=result.known_right, dashed=True)],
        ),
        Panel(
            kind="lines",
            title="change of vectors",
            x=times[1:],
            x_label="iteration",
            y_label="|change| / |before|",
            lines=[Line(name="change", y=result.change, color=COLORS[2])],
        ),
        Panel(
            kind="lines",
            title="margin of values",
            x=times,
            x_label="iteration",
            y_label="logits",
            lines=[Line(name="margin", y=result.margin, color=COLORS[4])],
        ),
    ]
    return {
        "drift": Chart(
            panels=panels,
            columns=3,
            caption=f"Over iterations; the deepest problem needs {result.deepest}.",
        )
    }


FIGURES: dict[str, Callable[[Any], Charts]] = {
    "heads": heads_charts,
    "circuits": circuits_charts,
    "flow": flow_charts,
    "ablation": ablation_charts,
    "sinks": sinks_charts,
    "residual": residual_charts,
    "embeddings": embeddings_charts,
    "fourier": fourier_charts,
    "errors": errors_charts,
    "sharpness": sharpness_charts,
    "recompute": recompute_charts,
    "keeping": keeping_charts,
    "iterations": iterations_charts,
    "drift": drift_charts,
}
"""By analysis: a result in, charts out."""
