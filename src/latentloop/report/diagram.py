"""Diagrams as plain data, boxes and arrows, drawn twice as charts are: by matplotlib, and as plotly's JSON."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from matplotlib.path import Path


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
        lines = self.label.split("\n")
        return 0.012 + 0.003 * max(map(len, lines)), 0.12 + 0.09 * len(lines)


@dataclass(frozen=True, kw_only=True)
class Edge:
    """An arrow from one box down to another; or, with a ``rise``, from a box's left side over others onto one's top."""

    start: int
    end: int
    label: str
    color: str
    width: float = 2.0
    at: float = 0.5
    """Where along the arrow its label stands."""
    rise: float = 0.0
    """How far over its start the arrow bends."""
    dashed: bool = False


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
            found.append(((start.x - start.half[0], start.y), (x, start.y + edge.rise), (x, y)))
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


def draw_diagram(diagram: Diagram) -> Figure:
    """Draw a diagram with matplotlib."""
    figure = Figure(figsize=(11, diagram.height), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_axis_off()
    routes = curves(diagram)
    for edge, curve in zip(diagram.edges, routes, strict=True):
        path = Path(list(curve), [Path.MOVETO, Path.CURVE3, Path.CURVE3])
        style = {"color": edge.color, "lw": edge.width, "linestyle": "--" if edge.dashed else "-"}
        axes.add_patch(FancyArrowPatch(path=path, arrowstyle="-|>", mutation_scale=14, **style))
    for edge, curve in zip(diagram.edges, routes, strict=True):  # over all arrows
        axes.text(
            *along(curve, edge.at), edge.label, ha="center", va="center", fontsize=10, color=edge.color,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0},
        )  # fmt: skip
    for node in diagram.nodes:
        box = {"boxstyle": "round,pad=0.45", "facecolor": node.color, "edgecolor": "#5b7aa0"}
        axes.text(node.x, node.y, node.label, ha="center", va="center", fontsize=11, bbox=box)
    for x, y, text in diagram.notes:
        axes.text(x, y, text, ha="left", va="center", fontsize=10.5, color="#444444")
    return figure


def plotly_diagram(diagram: Diagram) -> dict[str, Any]:
    """Return a diagram as plotly's data and layout."""
    axis = {"range": [0, 1], "visible": False, "fixedrange": True}
    notes: list[dict[str, Any]] = []
    shapes = []
    for edge, curve in zip(diagram.edges, curves(diagram), strict=True):
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
        notes.append(_text(*along(curve, edge.at), edge.label) | {"font": {"color": edge.color, "size": 12}})
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
