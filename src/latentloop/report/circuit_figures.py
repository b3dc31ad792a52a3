"""Figures of the circuit, each from its results alone: heads, what they copy, what patching moves, attention maps."""

from dataclasses import replace

import numpy as np

from latentloop.interpret.ablation import Ablations
from latentloop.interpret.circuits import Copies
from latentloop.interpret.flow import KINDS, Flow
from latentloop.interpret.heads import Heads
from latentloop.interpret.probes import OPERANDS, RHS
from latentloop.interpret.sinks import Sinks
from latentloop.report.charts import COLORS, MOST_COLUMNS, Chart, Charts, Diagram, Edge, Line, Node, Panel

BINS = 24
SHOWN_HEADS = 4
"""Heads of a layer whose attention is shown, those of groups first."""
SHOWN_KEYS = 28
"""Last tokens that an attention map shows."""
GROUP_KINDS = {"names_at_rhs": "name", "values_at_rhs": "value", "lookups": "look-up"}
"""What a group of heads brings."""
FAINT = 0.1
"""Share of answers that move for an arrow to be drawn; the more of them, the thicker it is."""


def heads_charts(result: Heads) -> Charts:
    """Relative variance by name in the first layer, by value where operands stand, and by value at the right-hand side."""
    first, last = result.layers[0], result.layers[-1]
    names = list(range(first.by_name.shape[2]))

    def maps(ratios: np.ndarray, what: str, places: tuple[str, ...]) -> list[Panel]:
        return [
            Panel(
                kind="heatmap", title=f"{what} of {place} varied", x=names, y=result.positions, z=ratio, x_label="head"
            )
            for place, ratio in zip(places, ratios, strict=True)
        ]

    bars = []
    for which, place in enumerate(OPERANDS):
        ratio = last.by_value[which, -1]
        for title, numbers, top in (
            ("variance", last.variance[which], None),
            ("squared norm", last.norm[which], None),
            ("relative variance", ratio, 1.0),
        ):
            heads = list(range(len(ratio)))
            line = Line(name="", y=numbers, color=COLORS[which])
            bars.append(Panel(kind="bars", title=f"{place}: {title}", x=heads, lines=[line], x_label="head", top=top))
    return {
        "heads-names": Chart(
            panels=maps(first.by_name, "name", (*OPERANDS, RHS)),
            caption="First layer: relative variance of each head's output at each token of the probe, when one name varies.",
        ),
        "heads-lookups": Chart(
            panels=maps(first.by_value, "value", OPERANDS),
            columns=3,
            caption="First layer: the same when one value varies.",
        ),
        "heads-values": Chart(
            panels=bars,
            columns=3,
            height=2.1,
            caption="Last layer, at the right-hand side, when one value varies: variance, mean squared norm, and their ratio.",
        ),
    }


def circuits_charts(result: Copies) -> Charts:
    """Norm amplification by group and factor: means, and histograms over embeddings."""
    layers = sorted({group.layer for group in result.groups})
    names = list(dict.fromkeys(group.group for group in result.groups))
    bars, histograms = [], []
    for layer in layers:
        mine = [group for group in result.groups if group.layer == layer]
        kinds = [kind for kind in ("normed", "looked up", "raw") if any(kind in group.amplification for group in mine)]
        for kind in kinds:
            lines = [
                Line(
                    name=factor,
                    y=[float(group.amplification[kind][factor].mean()) for group in mine],
                    color=COLORS[place],
                )
                for place, factor in enumerate(result.factors)
            ]
            title, some = f"layer {layer + 1}, {kind}", [group.group for group in mine]
            bars.append(Panel(kind="bars", title=title, x=some, lines=lines, y_label="|W x| / |x|"))
        for factor in result.factors:
            every = np.concatenate([group.amplification[group.input][factor] for group in mine])
            edges = np.linspace(0, max(float(every.max()), 1e-6) * 1.05, BINS + 1)
            lines = [
                Line(
                    name=group.group,
                    y=np.histogram(group.amplification[group.input][factor], edges)[0],
                    color=COLORS[names.index(group.group) % len(COLORS)],
                )
                for group in mine
            ]
            histograms.append(
                Panel(kind="steps", title=f"layer {layer + 1}: {factor}", x=edges, lines=lines, x_label="amplification")
            )
    return {
        "circuits-means": Chart(
            panels=bars,
            columns=min(3, len(bars)),
            height=3.1,
            caption="Mean norm amplification of each factor by each group's combined OV matrix.",
        ),
        "circuits-histograms": Chart(
            panels=histograms,
            columns=4,
            caption="The same for every embedding: after the layer's LayerNorm, or, where a group of the last layer reads "
            "values, as the look-up brings it.",
        ),
    }


def flow_charts(result: Flow) -> Charts:
    """Shares of answers that move, by layer and token."""
    panels = []
    for what, found in (("attention", result.attention), ("stream", result.residual)):
        for kind in KINDS:
            for layer in range(len(found[kind])):
                title = f"{what}, layer {layer + 1}\nother {kind}"
                panels.append(
                    Panel(
                        kind="heatmap", title=title, x=result.positions, y=OPERANDS, z=found[kind][layer], numbers=True
                    )
                )
    caption = (
        f"Share of answers that become those of another value, or name, when one token's activation is patched ({result.pairs}"
        " pairs for each operand). Of the last layer only the right-hand side is patched: nothing else is read there."
    )
    charts: dict[str, Chart | Diagram] = {
        "flow": Chart(panels=panels, columns=min(MOST_COLUMNS, len(panels) // 2), height=2.4, caption=caption)
    }
    if result.groups:
        layers = sorted({group.layer for group in result.groups})
        bars = []
        for layer in layers:
            mine = [group for group in result.groups if group.layer == layer]
            names = [f"{kind} of {place}" for kind, place in ((GROUP_KINDS[one.kind], one.operand) for one in mine)]
            line = Line(name="", y=[group.moved for group in mine])
            title = f"layer {layer + 1}"
            bars.append(Panel(kind="bars", title=title, x=names, lines=[line], y_label="share", top=1.2, numbers=True))
        caption = "Share of answers that move when one group of heads is patched alone, where its operand is read."
        charts["flow-groups"] = Chart(panels=bars, columns=len(bars), height=3.0, width=3.6, caption=caption)
    return charts


def ablation_charts(result: Ablations) -> Charts:
    """Problems solved without each part."""
    panels = []
    for layer in sorted({part.layer for part in result.parts}):
        mine = [part for part in result.parts if part.layer == layer]
        lines = [
            Line(name="problems solved", y=[part.solved for part in mine]),
            Line(name="values right", y=[part.values for part in mine]),
        ]
        panels.append(
            Panel(
                kind="bars",
                title=f"layer {layer + 1}",
                x=[part.part for part in mine],
                lines=lines,
                y_label="share",
                top=1.2,
                numbers=True,
            )
        )
    caption = (
        f"{result.problems} problems of {result.nodes} nodes without one part: "
        "the output of a group or head is its mean, that of an MLP is 0."
    )
    columns = 1 if len(result.parts) > 24 else 2
    return {"ablation": Chart(panels=panels, columns=columns, height=3.4, width=9.0 / columns, caption=caption)}


def sinks_charts(result: Sinks) -> Charts:
    """Attention maps of a few heads, with three, two and one operands."""
    panels = []
    for layer in sorted({one.layer for one in result.maps}):
        mine = sorted((one for one in result.maps if one.layer == layer), key=lambda one: -one.operands)
        named = [int(name.rpartition(" ")[2]) for name in result.sinks if name.startswith(f"layer {layer + 1},")]
        strongest = mine[0].weights[:, -1].max(-1).argsort()[::-1].tolist()
        for head in list(dict.fromkeys([*named, *strongest]))[:SHOWN_HEADS]:
            for one in mine:
                columns = one.columns[-SHOWN_KEYS:]
                title = f"layer {layer + 1}, head {head}: {one.operands} operand{'s' * (one.operands > 1)}"
                weights = one.weights[head][:, -SHOWN_KEYS:]
                panels.append(Panel(kind="heatmap", title=title, x=columns, y=one.rows, z=weights))
    return {
        "sinks": Chart(
            panels=panels,
            columns=3,
            height=2.5,
            width=4.4,
            caption="Attention from the tokens of the probe to the last tokens of the sequence.",
        )
    }


def circuit_diagram(heads: Heads, flow: Flow) -> Diagram:
    """Draw the circuit that patching found: an arrow wherever answers move with what a layer's attention brings.

    Columns are tokens; rows are the stream before the first layer, and after the attention of each layer that moves answers.
    """
    last = len(heads.layers) - 1
    columns = [*(f"definition of {place}" for place in OPERANDS), *OPERANDS, RHS]
    across = dict(zip(columns, np.linspace(0.08, 0.92, len(columns)).tolist(), strict=True))
    layers = [layer for layer in range(last + 1) if layer in (0, last) or flow.attention["value"][layer].max() >= FAINT]
    heights = np.linspace(0.9, 0.34, len(layers) + 1).tolist()
    nodes = [
        Node(label=name.replace(" of ", "\nof "), x=x, y=y, color="#fbe9d7" if name == RHS else "#e8eef5")
        for y in heights[:-1]
        for name, x in across.items()
    ]
    nodes += [
        Node(label=RHS, x=across[RHS], y=heights[-1], color="#fbe9d7"),
        Node(label="result", x=across[RHS], y=0.08, color="#e3f1e7"),
    ]
    final = len(layers) * len(columns)

    def node(row: int, name: str) -> int:
        return row * len(columns) + columns.index(name) if row < len(layers) else final

    edges: list[Edge] = []
    where = 0.3 if len(layers) < 3 else 0.45  # labels stay clear of boxes

    def arrow(start: int, end: int, what: str, share: float, color: str) -> None:
        edges.append(
            Edge(start=start, end=end, label=f"{what} {share:.0%}", color=color, at=where, width=0.6 + 1.4 * share)
        )

    for which, place in enumerate(OPERANDS):
        at, color = f"definition of {place}", COLORS[which]  # where the operand's value is found
        for row, layer in enumerate(layers):
            values, names = flow.attention["value"][layer, which], flow.attention["name"][layer, which]
            if values[-1] >= FAINT:
                arrow(node(row, at), node(row + 1, RHS), "value", values[-1], color)
            if layer == 0 < last and names[-1] >= FAINT:
                arrow(node(row, place), node(row + 1, RHS), "name", names[-1], color)
            brought = values[flow.positions.index(place)]
            if layer < last and brought >= FAINT:
                arrow(node(row, at), node(row + 1, place), "value", brought, color)
                at = place
    for place in OPERANDS:  # what was brought to an operand stays there until it is used
        touched = [row for row in range(1, len(layers)) if any(node(row, place) in (e.start, e.end) for e in edges)]
        edges += [
            Edge(start=node(row, place), end=node(row + 1, place), label="", color="#777777", width=1.0)
            for row in range(min(touched, default=0), max(touched, default=0))
        ]
    arrived = {edge.end for edge in edges if edge.label.startswith("value")}
    gathered = [row for row in range(1, len(layers)) if node(row, RHS) in arrived]
    edges += [
        Edge(start=node(row, RHS), end=node(row + 1, RHS), label="stream", color="#777777", width=1.0)
        for row in range(min(gathered, default=len(layers)), len(layers))
    ]
    if any(edge.end == final for edge in edges):
        edges.append(Edge(start=final, end=final + 1, label="MLPs", color="#3a8f5c"))
    # Of the rows after the first, only what an arrow touches is drawn.
    used = {*range(len(columns)), final, final + 1, *(end for edge in edges for end in (edge.start, edge.end))}
    order = {old: new for new, old in enumerate(sorted(used))}
    nodes = [nodes[old] for old in order]
    edges = [replace(edge, start=order[edge.start], end=order[edge.end]) for edge in edges]
    notes = [(0.02, (heights[row] + heights[row + 1]) / 2, f"layer {layer + 1}") for row, layer in enumerate(layers)]
    spacing = min(0.07, 0.22 / len(heads.layers))
    for number, layer in enumerate(heads.layers):
        groups = layer.groups(last=number == last)
        text = "; ".join(f"{name}: {', '.join(map(str, some))}" for name, some in groups.items())
        notes.append((0.02, 0.2 - spacing * number, f"heads of layer {number + 1} — {text}"))
    return Diagram(
        nodes=nodes,
        edges=edges,
        notes=notes,
        caption="The circuit, drawn from measurements: an arrow ends where patched attention moves the answer, with the share "
        "of answers that do; where it starts is inferred. The stream carries on what a layer has brought.",
    )
