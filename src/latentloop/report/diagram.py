"""Diagrams as plain data, boxes and arrows, drawn twice as charts are: by matplotlib, and as plotly's JSON."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from matplotlib.path import Path

WIDTH = 7.0
"""Inches, of every diagram."""
BOX, LABEL, NOTE = 8.0, 7.2, 7.2
"""Sizes of letters, in points: in boxes, on arrows and of notes."""
LETTER, LINE = 0.58 / 72, 1.25 / 72
"""Inches that a letter is wide on average, and a line is high, for each point of their size."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """A box of a diagram, at a place between 0 and 1."""

    label: str
    x: float
    y: float
    color: str = "#e8eef5"

    @property
    def half(self) -> tuple[float, float]:
        """Half of its width, of the diagram's, and half of its height in inches."""
        wide, high = text_size(self.label, BOX)
        return (wide / 2 + 0.06) / WIDTH, high / 2 + 0.06


@dataclass(frozen=True, kw_only=True)
class Edge:
    """An arrow from one box down to another; or, with a ``rise``, from a box's left side over others onto one's top."""

    start: int
    end: int
    label: str
    color: str
    detail: str = ""
    """A second line of the label."""
    width: float = 2.0
    at: float = 0.5
    """Where along the arrow its label stands best."""
    rise: float = 0.0
    """How far over its start the arrow bends."""
    dashed: bool = False

    @property
    def text(self) -> str:
        """All that is written on it."""
        return "\n".join(line for line in (self.label, self.detail) if line)


@dataclass(frozen=True, kw_only=True)
class Diagram:
    """Boxes and arrows."""

    nodes: Sequence[Node]
    edges: Sequence[Edge]
    caption: str = ""
    notes: Sequence[tuple[float, float, str]] = field(default=())
    """Free text at places."""
    height: float = 5.6
    """In inches."""


def text_size(text: str, size: float) -> tuple[float, float]:
    """Return about how wide and how high a text is, in inches."""
    lines = text.split("\n")
    return LETTER * size * max(map(len, lines)), LINE * size * len(lines)


Curve = tuple[tuple[float, float], tuple[float, float], tuple[float, float]]
"""Start, control point and end of an arrow: a quadratic curve, or a straight line where the control point lies on it."""


def curves(diagram: Diagram) -> list[Curve]:
    """Return the course of every arrow: below the boxes of its start's row and above those of its end's, or in an arc.

    Arrows come to a box's top side by side; slanted ones to the left side, one above the other, where a box has no neighbors.
    """
    nodes, found = diagram.nodes, []
    rows = [node.y for node in nodes]
    for edge in diagram.edges:
        start, end = nodes[edge.start], nodes[edge.end]
        wide, high = end.half[0], end.half[1] / diagram.height
        others = sorted({nodes[other.start].x for other in diagram.edges if other.end == edge.end})
        beside = [x for x in others if x < end.x] if rows.count(end.y) == 1 else []
        if start.x in beside:
            x, y = end.x - wide, end.y + _spread(beside, start.x, 0.75 * high)
        else:
            x, y = end.x + _spread([x for x in others if x not in beside], start.x, 0.7 * wide), end.y + high
        if edge.rise:
            corner = start.x - start.half[0], start.y + 0.8 * start.half[1] / diagram.height
            found.append((corner, (x, start.y + edge.rise), (x, y)))
            continue
        first = x if start.x == end.x else start.x + math.copysign(0.01, end.x - start.x)  # upright, or off to a side
        low = start.y - start.half[1] / diagram.height
        found.append(((first, low), ((first + x) / 2, (low + y) / 2), (x, y)))
    return found


def _spread(places: Sequence[float], one: float, reach: float) -> float:
    """Return how far from the middle one of some ordered places comes, within reach."""
    return reach * (2 * places.index(one) / (len(places) - 1) - 1) if len(places) > 1 else 0.0


def along(curve: Curve, at: float) -> tuple[float, float]:
    """Return a point of an arrow's course, from 0 at its start to 1 at its end."""
    (x0, y0), (x1, y1), (x2, y2) = curve
    first, second, third = (1 - at) ** 2, 2 * at * (1 - at), at**2
    return first * x0 + second * x1 + third * x2, first * y0 + second * y1 + third * y2


Box = tuple[float, float, float, float]
"""Left, lower, right and upper end, of the diagram's size."""


def _box(x: float, y: float, text: str, diagram: Diagram) -> Box:
    wide, high = text_size(text, LABEL)
    half_wide, half_high = (wide / 2 + 0.04) / WIDTH, high / 2 / diagram.height
    return x - half_wide, y - half_high, x + half_wide, y + half_high


def _meet(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def label_places(diagram: Diagram) -> list[float]:
    """Return where along each arrow its label stands: off boxes, notes and other labels, and off other arrows if possible."""
    routes = curves(diagram)
    courses = [[along(curve, at / 40) for at in range(41)] for curve in routes]
    boxes = [
        (node.x - wide, node.y - high / diagram.height, node.x + wide, node.y + high / diagram.height)
        for node in diagram.nodes
        for wide, high in [node.half]
    ]
    for x, y, text in diagram.notes:
        wide, high = text_size(text, NOTE)
        boxes.append((x, y - high / 2 / diagram.height, x + wide / WIDTH, y + high / 2 / diagram.height))
    places = [edge.at for edge in diagram.edges]
    labels = [
        _box(*along(curve, edge.at), edge.text, diagram) for edge, curve in zip(diagram.edges, routes, strict=True)
    ]

    def cost(number: int, at: float) -> float:
        edge, own = diagram.edges[number], _box(*along(routes[number], at), diagram.edges[number].text, diagram)
        if own[2] > 1:
            return math.inf
        others = [box for place, box in enumerate(labels) if place != number and diagram.edges[place].text]
        hidden = sum(_meet(own, box) for box in (*boxes, *others))
        crossed = sum(
            any(own[0] < x < own[2] and own[1] < y < own[3] for x, y in course)
            for place, course in enumerate(courses)
            if place != number
        )
        return 100 * hidden + crossed + abs(at - edge.at)

    for _ in range(3):  # labels make room for each other
        for number, edge in enumerate(diagram.edges):
            if edge.text:
                places[number] = min((step / 40 for step in range(4, 37)), key=lambda at: cost(number, at))
                labels[number] = _box(*along(routes[number], places[number]), edge.text, diagram)
    return places


def draw_diagram(diagram: Diagram) -> Figure:
    """Draw a diagram with matplotlib."""
    figure = Figure(figsize=(WIDTH, diagram.height))
    axes = figure.add_axes((0.005, 0, 0.99, 1))
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_axis_off()
    routes = curves(diagram)
    for edge, curve in zip(diagram.edges, routes, strict=True):
        path = Path(list(curve), [Path.MOVETO, Path.CURVE3, Path.CURVE3])
        style = {"color": edge.color, "lw": edge.width, "linestyle": "--" if edge.dashed else "-"}
        axes.add_patch(FancyArrowPatch(path=path, arrowstyle="-|>", mutation_scale=9, **style))
    for edge, curve, at in zip(diagram.edges, routes, label_places(diagram), strict=True):  # over all arrows
        if edge.text:
            axes.text(
                *along(curve, at), edge.text, ha="center", va="center", fontsize=LABEL, color=edge.color, linespacing=1.1,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
            )  # fmt: skip
    for node in diagram.nodes:
        box = {"boxstyle": "round,pad=0.45", "facecolor": node.color, "edgecolor": "#5b7aa0", "linewidth": 0.8}
        axes.text(node.x, node.y, node.label, ha="center", va="center", fontsize=BOX, linespacing=1.15, bbox=box)
    for x, y, text in diagram.notes:
        axes.text(x, y, text, ha="left", va="center", fontsize=NOTE, color="#444444")
    return figure


def plotly_diagram(diagram: Diagram) -> dict[str, Any]:
    """Return a diagram as plotly's data and layout."""
    axis = {"range": [0, 1], "visible": False, "fixedrange": True}
    notes: list[dict[str, Any]] = []
    shapes = []
    for edge, curve, at in zip(diagram.edges, curves(diagram), label_places(diagram), strict=True):
        (x0, y0), (x1, y1), (x, y) = curve
        line = {"color": edge.color, "width": edge.width, "dash": "dash" if edge.dashed else "solid"}
        shapes.append(
            {"type": "path", "path": f"M {x0:.4f},{y0:.4f} Q {x1:.4f},{y1:.4f} {x:.4f},{y:.4f}", "line": line}
        )
        before = along(curve, 0.97)  # an arrow's head alone
        notes.append(
            {
                "x": x, "y": y, "ax": before[0], "ay": before[1], "xref": "x", "yref": "y", "axref": "x", "ayref": "y",
                "showarrow": True, "arrowhead": 2, "arrowcolor": edge.color, "arrowwidth": edge.width, "text": "",
            }
        )  # fmt: skip
        if edge.text:
            look = {"font": {"color": edge.color, "size": 12}, "bgcolor": "#ffffff"}
            notes.append(_text(*along(curve, at), edge.text.replace("\n", "<br>")) | look)
    for node in diagram.nodes:
        box = {
            "bgcolor": node.color,
            "bordercolor": "#5b7aa0",
            "borderpad": 6,
            "font": {"color": "#222222", "size": 13},
        }
        notes.append(_text(node.x, node.y, node.label.replace("\n", "<br>")) | box)
    notes += [
        _text(x, y, text.replace("\n", "<br>")) | {"xanchor": "left", "align": "left"} for x, y, text in diagram.notes
    ]
    margin = {"l": 10, "r": 10, "t": 10, "b": 10}
    layout = {"xaxis": axis, "yaxis": axis, "annotations": notes, "shapes": shapes, "margin": margin}
    return {
        "data": [{"type": "scatter", "x": [0.5], "y": [0.5], "mode": "markers", "marker": {"opacity": 0}}],
        "layout": layout,
    }


def _text(x: float, y: float, text: str) -> dict[str, Any]:
    return {"x": x, "y": y, "xref": "x", "yref": "y", "text": text, "showarrow": False}
