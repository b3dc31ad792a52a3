"""A picture of a computation graph: generations from left to right, colored by depth."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from numpy import ndarray

from latentloop.errors import UserError
from latentloop.files import writing
from latentloop.task.graph import ABSENT, Problems
from latentloop.task.oracle import Solution
from latentloop.task.text import equation_text

SUFFIXES = (".png", ".svg", ".pdf")
_COLUMN, _LINE = 1.75, 0.8  # inches between generations, and between nodes of one
_WIDE, _TALL = 16, 24  # columns side by side, and nodes on top of each other
_PAPER = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.6}
_LARGEST = 60.0  # inches a side: beyond, everything shrinks


def save_figure(figure: Figure, path: Path, *, dpi: int = 140, source: str | None = None) -> None:
    """Write a figure atomically, in the format its suffix names; ``source``, kept in the file, says what it was drawn from.

    With a source the file has no date: drawn again from the same, it is the same.
    """
    if path.suffix not in SUFFIXES:
        raise UserError(f"cannot draw {path.name}: the name must end in {', '.join(SUFFIXES)}")
    with writing(path, "wb") as file:
        settings: dict[str, Any] = {"format": path.suffix[1:], "dpi": dpi, "facecolor": "white"}
        if source is not None:
            field, date = ("Subject", "CreationDate") if path.suffix == ".pdf" else ("Description", "Date")
            settings["metadata"] = {field: source} | ({} if path.suffix == ".png" else {date: None})
        if path.suffix == ".png":  # almost as small as with more compression, and quicker
            settings["pil_kwargs"] = {"compress_level": 2}
        figure.savefig(file, **settings)


def graph_figure(problems: Problems, solution: Solution, row: int = 0) -> Figure:
    """Draw one problem with its names and true values."""
    size = int(problems.sizes[row])
    depths = solution.depths[row, :size]
    spots, heads = _layout(problems.parents[row, :size], depths)
    children, operands = np.nonzero(problems.parents[row, :size] != ABSENT)
    parents = problems.parents[row, children, operands]
    bends = _bends(spots[parents], spots[children])
    tops = _tops(spots[parents], spots[children], bends)
    inside = np.concatenate([spots, tops])
    low = inside.min(0) - 0.6
    high = inside.max(0) + 0.6
    extent = high - low
    scale = min(1.0, _LARGEST / extent.max())
    figure = Figure(figsize=(max(extent[0] * scale, 3.0), max(extent[1] * scale, 1.8)))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_aspect("equal")
    axes.set_xlim(low[0], high[0])
    axes.set_ylim(low[1], high[1])

    shades = [to_hex(colormaps["viridis"](0.12 + 0.8 * (d - 1) / max(depths.max() - 1, 1))) for d in depths]
    for parent, child, bend in zip(parents, children, bends, strict=True):
        axes.add_artist(_edge(spots[parent], spots[child], bend, shades[parent], scale))
    nodes: PathCollection = axes.scatter(*spots.T, s=(34 * scale) ** 2, c=shades, zorder=2, linewidths=0)
    nodes.set_gid("nodes")
    for node, (x, y) in enumerate(spots):
        ink = "white" if depths[node] <= 1 + 0.6 * (depths.max() - 1) else "black"
        label = f"x{problems.names[row, node]}\n{solution.values[row, node]}"
        axes.text(x, y, label, ha="center", va="center", fontsize=8.5 * scale, color=ink, linespacing=1.0, zorder=3)
        if depths[node] > 1:
            expression = equation_text(problems, row, node).partition(" = ")[0]
            axes.text(
                x,
                y - 0.27,
                expression,
                ha="center",
                va="top",
                fontsize=6 * scale,
                color="#444444",
                zorder=3,
                bbox=_PAPER,
            )
    for depth, (x, y) in enumerate(heads, 1):
        axes.text(x, y, f"depth {depth}", ha="center", fontsize=7.5 * scale, color="#666666")
    return figure


def _bends(starts: ndarray, ends: ndarray) -> ndarray:
    """Return how much each edge [edge, xy] bends: those to a neighbor on the same height are straight."""
    across, up = (ends - starts).T
    return np.where((np.abs(up) < 0.1) & (across <= _COLUMN * 1.1), 0.0, 0.14)


def _tops(starts: ndarray, ends: ndarray, bends: ndarray) -> ndarray:
    """Return the points [edge, xy] where bent edges are farthest from a straight line, so that none leaves the picture."""
    across, up = (ends - starts).T
    return (starts + ends) / 2 + bends[:, None] / 2 * np.stack([up, -across], axis=1)


def _edge(start: ndarray, end: ndarray, bend: float, color: str, scale: float) -> FancyArrowPatch:
    return FancyArrowPatch(
        tuple(start), tuple(end), connectionstyle=f"arc3,rad={bend}", arrowstyle="-|>", mutation_scale=9 * scale,
        shrinkA=17 * scale, shrinkB=17 * scale, linewidth=0.9 * scale, color=color, alpha=0.65, zorder=1, clip_on=False,
    )  # fmt: skip


def _layout(parents: ndarray, depths: ndarray, sweeps: int = 4) -> tuple[ndarray, ndarray]:
    """Place nodes [node, xy] and the heads of generations [depth, xy].

    A generation is a column, or several where it is tall; columns that do not fit side by side go on in a band below.
    """
    height = np.zeros(len(depths))
    for sweep in range(sweeps):
        for depth in range(1, depths.max() + 1):
            column = np.flatnonzero(depths == depth)
            wish = np.array([_pull(node, parents, height, sweep) for node in column])
            height[column[np.argsort(wish, kind="stable")]] = np.arange(len(column)) - (len(column) - 1) / 2

    spots = np.zeros((len(depths), 2))
    heads = np.zeros((depths.max(), 2))
    generations = [np.flatnonzero(depths == depth) for depth in range(1, depths.max() + 1)]
    top = 0.0
    while generations:
        band = []
        columns = 0
        while generations and (not band or columns + -(-len(generations[0]) // _TALL) <= _WIDE):
            band.append(generations.pop(0))
            columns += -(-len(band[-1]) // _TALL)
        tallest = max(-(-len(nodes) // -(-len(nodes) // _TALL)) for nodes in band)
        x = 0
        for nodes in band:
            ordered = nodes[np.argsort(height[nodes], kind="stable")]
            for part in np.array_split(ordered, -(-len(nodes) // _TALL)):
                spots[part, 0] = x * _COLUMN
                spots[part, 1] = -(np.arange(len(part)) + (tallest - len(part)) / 2) * _LINE - top
                x += 1
            heads[depths[nodes[0]] - 1] = spots[nodes, 0].mean(), 0.38 - top
        top += tallest * _LINE + 0.5
    return spots, heads


def _pull(node: int | np.integer, parents: ndarray, height: ndarray, sweep: int) -> float:
    """Return the mean height of a node's parents, and after the first sweep of its children too."""
    near = [height[parent] for parent in parents[node] if parent != ABSENT]
    if sweep:
        near += list(height[np.flatnonzero((parents == node).any(-1))])
    return float(np.mean(near)) if near else float(height[node])
