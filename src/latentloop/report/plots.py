"""Interactive figures of stored results, in plotly's plain form; nothing is computed here."""

from collections.abc import Mapping, Sequence
from typing import Any

MOST_POINTS = 1_000
"""Of a curve: more are not seen."""
SHADE = "rgba(90, 130, 180, 0.13)"

Figure = dict[str, Any]


def curve_figure(
    rows: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    title: str,
    *,
    kinds: Sequence[str] = ("train", "validation"),
    log: bool = False,
    percent: bool = False,
) -> Figure | None:
    """Draw measurements by step, those of validation with marks. None where there are none."""
    traces = []
    for kind in kinds:
        for name in names:
            points = [(row["step"], row[name]) for row in rows if row["kind"] == kind and row.get(name) is not None]
            if not points:
                continue
            points = points[:: -(-len(points) // MOST_POINTS)] + points[-1:]
            label = kind if len(names) == 1 else name.removeprefix("right_").replace("_", " ")
            steps, values = zip(*points, strict=True)
            traces.append(
                {
                    "type": "scatter", "mode": "lines" if kind == "train" else "lines+markers", "name": label,
                    "line": {"width": 1.5}, "x": list(steps),
                    "y": [100 * value for value in values] if percent else list(values),
                }
            )  # fmt: skip
    if not traces:
        return None
    axis: Figure = {"title": {"text": title}}
    if log:
        axis |= {"type": "log", "dtick": 1}
    if percent:
        axis |= {"range": [-2, 103]}
    return {"data": traces, "layout": {"xaxis": {"title": {"text": "step"}, "tickformat": ",d"}, "yaxis": axis}}


def sizes_figure(documents: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Draw % fully solved by size, one line for each evaluation, with 95 % intervals; what was trained on is shaded."""
    traces, nodes = [], []
    for name, document in documents.items():
        rows = sorted(document["rows"], key=lambda row: row["nodes"])
        nodes += [row["nodes"] for row in rows]
        traces.append(
            {
                "type": "scatter", "mode": "lines+markers", "name": name, "showlegend": True,
                "x": [row["nodes"] for row in rows], "y": [100 * row["solved"] for row in rows],
                "error_y": {
                    "type": "data", "symmetric": False, "thickness": 1, "width": 3,
                    "array": [100 * (row["solved_high"] - row["solved"]) for row in rows],
                    "arrayminus": [100 * (row["solved"] - row["solved_low"]) for row in rows],
                },
            }
        )  # fmt: skip
    layout: Figure = {
        "xaxis": {"title": {"text": "nodes in the graph (log scale)"}, "type": "log", **_ticks(nodes)},
        "yaxis": {"title": {"text": "problems fully solved, %"}, "range": [-3, 104]},
    }
    trained = [size for document in documents.values() if (size := trained_to(document)) is not None]
    if trained:
        across = {"xref": "x", "x0": min(*nodes, max(trained)) / 1.5, "x1": max(trained)}
        up = {"yref": "paper", "y0": 0, "y1": 1}
        looks = {"type": "rect", "fillcolor": SHADE, "line": {"width": 0}, "layer": "below"}
        layout["shapes"] = [across | up | looks]
    return {"data": traces, "layout": layout}


def trained_to(document: Mapping[str, Any]) -> int | None:
    """Return the largest graphs that an evaluated model was trained on, where it is known."""
    config = document["model"].get("config")
    graph = config.get("graph") if isinstance(config, Mapping) else None
    nodes = graph.get("nodes") if isinstance(graph, Mapping) else None
    return nodes if type(nodes) is int and nodes > 0 else None


def iterations_figure(curves: Mapping[Any, Mapping[str, Any]]) -> Figure:
    """Draw % solved after each iteration, one curve for each size."""
    traces = [
        {
            "type": "scatter", "mode": "lines", "name": f"{int(nodes):,} nodes",
            "y": [100 * share for share in curves[nodes]["solved_by_iteration"]],
            "line": {"color": f"hsl({210 - 190 * place / max(len(curves) - 1, 1):.0f}, 60%, 50%)"},  # seen on both grounds
        }
        for place, nodes in enumerate(sorted(curves, key=int))
    ]  # fmt: skip
    return {
        "data": traces,
        "layout": {
            "xaxis": {"title": {"text": "iterations"}},
            "yaxis": {"title": {"text": "problems fully solved, %"}, "range": [-3, 104]},
        },
    }


def depths_figure(curves: Mapping[Any, Mapping[str, Any]]) -> Figure:
    """Draw % of values right by size and depth of their node."""
    sizes = sorted(curves, key=int)
    right = [{int(depth): share for depth, share in curves[nodes]["right_by_depth"].items()} for nodes in sizes]
    depths = sorted(set().union(*right))
    shares = [[found.get(depth) for depth in depths] for found in right]
    return {
        "data": [
            {
                "type": "heatmap", "x": depths, "y": [f"{int(nodes):,}" for nodes in sizes], "zmin": 0, "zmax": 100,
                "z": [[None if share is None else 100 * share for share in row] for row in shares],
                "colorbar": {"title": {"text": "%"}, "outlinewidth": 0, "thickness": 12},
                "hovertemplate": "%{y} nodes, depth %{x}: %{z:.2f} %<extra></extra>",
            }
        ],
        "layout": {"xaxis": {"title": {"text": "depth of the node"}},
                   "yaxis": {"title": {"text": "nodes in the graph"}, "type": "category"}},
    }  # fmt: skip


def _ticks(nodes: Sequence[int]) -> Figure:
    powers = [2**power for power in range(13) if min(nodes) <= 2**power <= max(nodes)]
    values = powers if len(powers) >= 2 else sorted(set(nodes))
    return {"tickvals": values, "ticktext": [f"{value:,}" for value in values]}
