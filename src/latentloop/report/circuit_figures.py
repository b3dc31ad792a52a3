"""Figures of the circuit, each from its results alone: heads, what they copy, what patching moves, attention maps."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest

import numpy as np

from latentloop.interpret.ablation import Ablations
from latentloop.interpret.circuits import Copies
from latentloop.interpret.flow import KINDS, Flow
from latentloop.interpret.groups import Heads
from latentloop.interpret.probes import OPERANDS, RHS
from latentloop.interpret.sinks import Map, Sinks
from latentloop.report.charts import COLORS, WIDTH, Chart, Charts, Level, Line, Panel
from latentloop.report.circuit_diagram import listed

BINS = 24
ABLATED_SIDE_BY_SIDE = 10
"""Parts of a layer whose bars fit into half of a figure."""
SHOWN_HEADS = 12
"""Heads of a layer whose attention is shown, at most; groups take turns."""
SHOWN_OTHERS = 2
"""Heads that are shown of a layer without a group that serves an operand."""
SERVING = ("name of VAR", "names, shared", "value", "look-up")
"""How the names of groups begin that serve an operand."""
GROUP_COLORS = {
    "name of VAR0": "#0b13bc",
    "name of VAR1": "#ca7510",
    "name of VAR2": "#1e2c15",
    "name of RHS": "#7c3c03",
    "names, shared": "#4d0151",
    "value of VAR0": "#5a76fc",
    "value of VAR1": "#eac300",
    "value of VAR2": "#7abe71",
    "values, shared": "#a55ca3",
    "look-up": "#b0004f",
    "literal": "#6a31a1",
    "operation": "#10d7fe",
    "others": "#999999",
}
"""A color for every group, told apart by everybody: blue, orange and green for operands, names darker than values."""
GROUP_KINDS = {
    "names_at_rhs": "name",
    "names_shared": "name by shared heads",
    "names_together": "name by own and shared heads",
    "values_at_rhs": "value",
    "values_shared": "value by shared heads",
    "values_together": "value by own and shared heads",
    "lookups": "look-up",
}
"""What a group of heads brings."""


def heads_charts(result: Heads) -> Charts:
    """Relative variance by name and by value before the last layer, and by value at the right-hand side of the last one."""
    before, last = result.layers[:-1] or result.layers, result.layers[-1]

    def maps(layer: int, what: str, ratios: np.ndarray, places: tuple[str, ...]) -> list[Panel]:
        heads = list(range(ratios.shape[2]))
        titles = [f"layer {layer + 1}: {what} of {place}" for place in places]
        return [
            Panel(kind="heatmap", title=title, x=heads, y=result.positions, z=ratio, x_label="head")
            for title, ratio in zip(titles, ratios, strict=True)
        ]

    names = [maps(layer, "name", one.by_name, (*OPERANDS, RHS)) for layer, one in enumerate(before)]
    values = [maps(layer, "value", one.by_value, OPERANDS) for layer, one in enumerate(before)]
    bars = []
    for which, place in enumerate(OPERANDS):
        ratio = last.by_value[which, -1]
        for measure, numbers, top in (
            ("variance", last.variance[which], None),
            ("squared norm", last.norm[which], None),
            ("relative variance", ratio, 1.0),
        ):
            line = Line(name="", y=numbers, color=COLORS[which])
            heads = list(range(len(ratio)))
            bars.append(
                Panel(kind="bars", title=place, x=heads, lines=[line], x_label="head", y_label=measure, top=top)
            )
    some = "First layer" if len(before) == 1 else "Layers before the last one"
    return {
        "heads-names": Chart(
            panels=[panel for layer in names for panel in layer],
            columns=len(names[0]),
            caption=f"{some}: relative variance of each head's output at each token of the probe, when one name varies.",
        ),
        "heads-lookups": Chart(
            panels=[panel for layer in values for panel in layer],
            columns=len(values[0]),
            caption=f"{some}: the same when one value varies.",
        ),
        "heads-values": Chart(
            panels=bars,
            columns=3,
            height=1.9,
            caption="Last layer, at the right-hand side, when one value varies: variance, mean squared norm, and their ratio.",
        ),
    }


def circuits_charts(result: Copies) -> Charts:
    """Norm amplification by group and factor: means, and histograms over embeddings."""
    layers = sorted({group.layer for group in result.groups})
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
                    color=GROUP_COLORS[group.group],
                )
                for group in mine
            ]
            histograms.append(
                Panel(
                    kind="steps",
                    title=f"layer {layer + 1}: {factor}",
                    x=edges,
                    lines=lines,
                    x_label="amplification",
                    y_label="embeddings" if factor == result.factors[0] else "",
                )
            )
    return {
        "circuits-means": Chart(
            panels=bars,
            columns=2 if len(bars) % 3 else 3,
            height=2.5,
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
                title = f"{what}, layer {layer + 1}: other {kind}"
                panels.append(
                    Panel(
                        kind="heatmap", title=title, x=result.positions, y=OPERANDS, z=found[kind][layer], numbers=True
                    )
                )
    caption = (
        f"Share of answers that become those of another value, or name, when one token's activation is patched ({result.pairs}"
        " pairs for each operand). Of the last layer only the right-hand side is patched: nothing else is read there, and the "
        "other cells are blank."
    )
    charts: dict[str, Chart] = {"flow": Chart(panels=panels, columns=2, height=1.6, caption=caption)}
    if result.groups:
        layers = sorted({group.layer for group in result.groups})
        bars = []
        for layer in layers:
            mine = [group for group in result.groups if group.layer == layer]
            names = [f"{kind} of {place}" for kind, place in ((GROUP_KINDS[one.kind], one.operand) for one in mine)]
            line = Line(name="", y=[group.moved for group in mine])
            title = f"layer {layer + 1}"
            bars.append(Panel(kind="sideways", title=title, x=names, lines=[line], y_label="share", top=1.0))
        caption = "Share of answers that move when one group of heads is patched alone, where its operand is read."
        charts["flow-groups"] = Chart(panels=bars, columns=1, height=1.9, width=5.0, caption=caption)
    return charts


def ablation_charts(result: Ablations) -> Charts:
    """Problems solved without each part."""
    panels = []
    levels = [
        Level(name="problems solved, whole model", y=result.solved, color=COLORS[0]),
        Level(name="values right, whole model", y=result.values, color=COLORS[1]),
    ]
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
                top=1.0,
                numbers=True,
                levels=levels,
            )
        )
    caption = (
        f"{result.problems} problems of {result.nodes} nodes without one part: "
        "what a group, a head or an MLP adds is its mean over tokens of the same kind. "
        "Dashed: the whole model."
    )
    columns = 2 if all(len(panel.x) <= ABLATED_SIDE_BY_SIDE for panel in panels) else 1
    return {"ablation": Chart(panels=panels, columns=columns, height=2.7, width=WIDTH / columns, caption=caption)}


def sinks_charts(result: Sinks, heads: Heads | None = None) -> Charts:
    """Attention maps with three, two and one operands, of the heads that serve an operand as far as groups are known."""
    panels, left_out = [], []
    for layer in sorted({one.layer for one in result.maps}):
        mine = sorted((one for one in result.maps if one.layer == layer), key=lambda one: -one.operands)
        groups = {} if heads is None else heads.groups(layer)
        serving = {name: some for name, some in groups.items() if name.startswith(SERVING)}
        shown, left = shown_heads(mine[0], serving)
        left_out += [f"{layer + 1}.{head}" for head in left]
        for head in shown:
            own = [
                f"{name}: head{'s' * (len(some) > 1)} {listed(some)}" for name, some in groups.items() if head in some
            ]
            title = "\n".join([f"layer {layer + 1}, head {head}", *(["; ".join(own)] if own else [])])
            panels.append(_attention_panel(title, mine, head))
    caption = (
        "Attention from the tokens of the probe to the last tokens of the sequence, with three, two and one operands from "
        "top to bottom; a column is one token, def. is where an operand is defined, and gray is what is not there. "
        "Heads that serve an operand, each under the whole of its groups; of a layer without any, "
        f"the {SHOWN_OTHERS} that attend most from the right-hand side."
    )
    caption += f" Not shown, as layer.head: {', '.join(left_out)}." if left_out else ""
    return {"sinks": Chart(panels=panels, columns=2, height=3.6, caption=caption)}


def _attention_panel(title: str, maps: Sequence[Map], head: int) -> Panel:
    """Return the maps of one head on top of each other, those with most operands first; each token has one column."""
    whole, fewest = maps[0], maps[-1]
    before = len(fewest.columns) - len(fewest.rows)
    words = [*fewest.columns[:before], *whole.rows]
    parts, rows = [], []
    for one in maps:
        count = len(one.rows)
        part = np.full((count + (one is not fewest), len(words)), np.nan)  # a blank row between two maps
        weights, context = one.weights[head], len(one.columns) - count
        part[:count, before - context : before + 1] = weights[:, : context + 1]
        part[:count, len(words) - count + 1 :] = weights[:, context + 1 :]  # what is missing is at the probe's start
        parts.append(part)
        rows += [*one.rows, ""][: len(part)]
    places = {before + place: name for place, name in enumerate(whole.rows)}
    written = dict(zip(whole.rows, whole.columns[-len(whole.rows) :], strict=True))
    for place in range(1, before):
        defined = [name for name in OPERANDS if written.get(name) == words[place]]
        if defined and words[place - 1] == "=":
            places[place] = f"def. {defined[0]}"
    return Panel(
        kind="heatmap",
        title=title,
        x=words,
        y=rows,
        z=np.concatenate(parts),
        ticks={place: name for place, name in sorted(places.items()) if len(name) > 2},
        ticks_above={place: name for place, name in places.items() if len(name) == 1},
    )


def shown_heads(attention: Map, groups: Mapping[str, Sequence[int]]) -> tuple[list[int], list[int]]:
    """Return the heads whose attention is shown, and those of groups for which there is no room.

    Groups take turns, each with its head that attends most from the right-hand side first; a group's heads stay together.
    """
    strength = attention.weights[:, -1].max(-1)
    if not groups:
        return sorted(strength.argsort()[::-1][:SHOWN_OTHERS].tolist()), []
    ranked = [sorted(some, key=lambda head: -strength[head]) for some in groups.values()]
    turns = dict.fromkeys(head for turn in zip_longest(*ranked) for head in turn if head is not None)
    chosen = set(list(turns)[:SHOWN_HEADS])
    together = list(dict.fromkeys(head for some in groups.values() for head in some))
    return [head for head in together if head in chosen], [head for head in together if head not in chosen]
