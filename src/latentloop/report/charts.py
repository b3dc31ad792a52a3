"""Charts as plain data, drawn twice: by matplotlib for paper and docs, as plotly's JSON for the page."""

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import XAxis
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, LogLocator, MaxNLocator, NullLocator

from latentloop.report.diagram import Diagram, draw_diagram, plotly_diagram

COLORS = ("#1f5fa8", "#d9822b", "#3a8f5c", "#b23a48", "#7a5aa6", "#8c6d46", "#4f9fb3", "#777777")
SCALE = ((0.0, "#f7fbff"), (0.5, "#6baed6"), (1.0, "#08306b"))
DIVERGING = ((0.0, "#2166ac"), (0.5, "#f7f7f7"), (1.0, "#b2182b"))
"""Colors of heatmaps: of shares, and of numbers on both sides of 0."""
BLANK = "#e4e4e4"
"""Color of a heatmap's cells that have no number."""
Numbers = Sequence[float] | np.ndarray
WIDTH = 7.0
"""Inches that docs show a figure at: none is drawn wider, so that letters have the sizes below."""
TITLE, LABEL, TICK, NUMBER, LEGEND = 8.5, 8, 7, 7, 8
"""Sizes of letters, in points."""
LETTER = 0.58 / 72
"""Inches that a letter is wide on average, for each point of its size."""
MOST_COLUMNS = 4
"""Panels side by side that can still be read."""
TALL = 0.75
"""Share of the axis from which on a bar's number stands inside."""
HEADROOM = 2.0
"""Upper end of a logarithmic y axis, over the highest peak."""
LOG_TICKS = {10: (1, 2, 3, 4, 6, 8), 100: (1, 2, 5)}
"""Digits of ticks on a logarithmic axis whose ends have less than this ratio; beyond, ticks are powers of 10."""
ZERO_WIDTH = "\u200b"
"""A space that is not seen."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One series of numbers with a name; x are the panel's."""

    name: str
    y: Numbers
    color: str | None = None
    dashed: bool = False


@dataclass(frozen=True, kw_only=True)
class Level:
    """A line across bars, to compare them with."""

    name: str
    y: float
    color: str


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One set of axes."""

    kind: Literal["heatmap", "bars", "sideways", "lines", "steps"]
    """Of these, bars that lie sideways leave room for names of any length."""
    title: str = ""
    x: Sequence[Any] | np.ndarray = ()
    """Names of columns, categories of bars, places of points, or edges of bins."""
    y: Sequence[str] = ()
    """Names of a heatmap's rows."""
    ticks: Mapping[int, str] = field(default_factory=dict)
    """Columns of a heatmap to name below, where there is no room for all ..."""
    ticks_above: Mapping[int, str] = field(default_factory=dict)
    """... and those between them, to name above."""
    z: Sequence[Sequence[float]] | np.ndarray = ()
    """A heatmap's numbers, row by row; a cell with NaN stays blank."""
    low: float = 0.0
    high: float = 1.0
    lines: Sequence[Line] = ()
    x_label: str = ""
    y_label: str = ""
    log_x: bool = False
    log_y: bool = False
    top: float | None = None
    """Upper end of the y axis."""
    numbers: bool = False
    """Whether a heatmap's cells, or bars, show their numbers."""
    threshold: float | None = None
    """Where an upright line marks what counts."""
    levels: Sequence[Level] = ()

    @property
    def diverging(self) -> bool:
        """Whether a heatmap has negative numbers."""
        return self.low < 0


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Panels side by side."""

    panels: Sequence[Panel]
    columns: int = MOST_COLUMNS
    caption: str = ""
    height: float = 2.2
    """Of a row, in inches."""
    width: float = 3.5
    """Of a column, in inches, where the figure has room for it."""

    @property
    def rows(self) -> int:
        """Rows of panels."""
        return -(-len(self.panels) // self.columns)


Charts = Mapping[str, Chart | Diagram]


def draw(chart: Chart | Diagram) -> Figure:
    """Draw a chart with matplotlib."""
    if isinstance(chart, Diagram):
        return draw_diagram(chart)
    columns = min(chart.columns, len(chart.panels))
    width = min(WIDTH, max(4.4, chart.width * columns))
    figure = Figure(figsize=(width, chart.height * chart.rows + 0.3), layout="constrained")
    grid = figure.subplots(chart.rows, columns, squeeze=False)
    for axes in grid.flat[len(chart.panels) :]:
        axes.set_axis_off()
    for place, (axes, panel) in enumerate(zip(grid.flat, chart.panels, strict=False)):
        _draw_panel(axes, panel, width / columns)
        if place % columns and panel.kind == "heatmap" and list(panel.y) == list(chart.panels[place - 1].y):
            axes.set_yticklabels([])  # as at its left
    for row in grid:  # heatmaps of a chart have one scale, so that a bar serves a row
        drawn = [axes for axes in row if axes.images]
        if drawn:
            bar = figure.colorbar(drawn[-1].images[0], ax=drawn, fraction=0.05, pad=0.01, aspect=15)
            bar.ax.tick_params(labelsize=TICK)
    handles: dict[str, Any] = {}
    for axes in grid.flat:
        handles |= dict(zip(*axes.get_legend_handles_labels()[::-1], strict=True))
    if len(handles) > 1:
        style = {"ncols": legend_columns(list(handles), width), "frameon": False, "fontsize": LEGEND}
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", **style)
    return figure


def legend_columns(names: Sequence[str], width: float) -> int:
    """Return how many entries of a legend stand side by side within some inches, so that its rows are about as long."""
    entry = 0.55 + 0.055 * max(map(len, names))  # line and gaps, then letters
    rows = -(-len(names) // max(1, int(width // entry)))
    return -(-len(names) // rows)


def _draw_panel(axes: Axes, panel: Panel, width: float) -> None:
    """Draw one panel, so many inches wide."""
    letters = int(width / (LETTER * TITLE))
    lines = [part for line in panel.title.split("\n") for part in textwrap.wrap(line, letters)]
    axes.set_title("\n".join(lines), fontsize=TITLE)
    axes.set_xlabel(panel.x_label, fontsize=LABEL)
    axes.set_ylabel(panel.y_label, fontsize=LABEL)
    axes.tick_params(which="both", labelsize=TICK)
    axes.xaxis.get_offset_text().set_fontsize(TICK)
    axes.yaxis.get_offset_text().set_fontsize(TICK)
    if panel.kind == "heatmap":
        _draw_heatmap(axes, panel, width)
        return
    axes.spines[["top", "right"]].set_visible(False)
    if panel.kind == "sideways":
        _draw_sideways(axes, panel)
        return
    for place, line in enumerate(panel.lines):
        color = line.color or COLORS[place % len(COLORS)]
        if panel.kind == "bars":
            _draw_bars(axes, panel, place, color)
        elif panel.kind == "lines":
            dashes = "--" if line.dashed else "-"
            axes.plot(
                list(panel.x),
                line.y,
                dashes,
                marker="o",
                markersize=3,
                color=color,
                label=line.name,
                linewidth=1.3,
                clip_on=False,
            )
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))  # nodes, iterations, frequencies
        else:
            axes.stairs(line.y, panel.x, color=color, label=line.name, linewidth=1.1)
            axes.yaxis.set_major_locator(MaxNLocator(integer=True))  # counts
    if panel.kind == "bars":
        names = [str(name) for name in panel.x]
        level = max(map(len, names), default=0) * len(names) * LETTER * TICK < width - 0.9
        axes.set_xticks(range(len(names)), names, rotation=0 if level else 45, ha="center" if level else "right")
    for one in panel.levels:
        axes.axhline(one.y, color=one.color, linestyle="--", linewidth=1.2, label=one.name, clip_on=False)
    if panel.threshold is not None:
        axes.axvline(panel.threshold, color="#555555", linestyle=":", linewidth=1)
    if panel.log_x:
        axes.set_xscale("log")
        _log_ticks(axes.xaxis)
    if panel.log_y:
        axes.set_yscale("symlog", linthresh=1)
        axes.yaxis.set_major_formatter(FormatStrFormatter("%g"))  # an exponent would be too small to read
        axes.set_ylim(0, HEADROOM * max([1.0, *(float(np.max(line.y)) for line in panel.lines)]))
    if panel.top is not None:
        axes.set_ylim(0, panel.top)


def _draw_bars(axes: Axes, panel: Panel, place: int, color: str) -> None:
    """Draw one series of bars, with numbers over them or, where they are tall, inside."""
    line, width = panel.lines[place], 0.8 / len(panel.lines)
    across = np.arange(len(panel.x)) + (place - (len(panel.lines) - 1) / 2) * width
    axes.bar(across, line.y, width, color=color, label=line.name)
    if not panel.numbers:
        return
    tall = TALL * (panel.top or float(np.max(line.y)))
    for x, value in zip(across, line.y, strict=True):
        inside = value >= tall
        ink = "black" if not inside or np.dot(to_rgb(color), (0.299, 0.587, 0.114)) > 0.55 else "white"
        axes.annotate(
            f"{value:.2f}", (x, value), (0, -2 if inside else 2), textcoords="offset points", rotation=90,
            ha="center", va="top" if inside else "bottom", fontsize=NUMBER, color=ink,
        )  # fmt: skip


def _draw_sideways(axes: Axes, panel: Panel) -> None:
    """Draw one series of bars that lie, the first one on top, with numbers at their ends."""
    (line,) = panel.lines
    bars = axes.barh([str(name) for name in panel.x], line.y, 0.7, color=line.color or COLORS[0])
    axes.bar_label(bars, fmt="%.2f", padding=2, fontsize=NUMBER)
    axes.invert_yaxis()
    axes.set_xlim(0, panel.top)
    axes.set_xlabel(panel.y_label, fontsize=LABEL)
    axes.set_ylabel(panel.x_label, fontsize=LABEL)


def _log_ticks(axis: XAxis) -> None:
    """Give a logarithmic axis as many ticks as its range needs, with labels of one kind and size, and none between."""
    low, high = axis.get_view_interval()
    digits = next((digits for ratio, digits in LOG_TICKS.items() if high < ratio * low), None)
    axis.set_major_locator(LogLocator(subs=digits or (1,), numticks=6))
    axis.set_major_formatter(FormatStrFormatter("%g"))
    axis.set_minor_locator(NullLocator())


def _draw_heatmap(axes: Axes, panel: Panel, width: float) -> None:
    z = np.asarray(panel.z, float)
    scale = LinearSegmentedColormap.from_list("shares", DIVERGING if panel.diverging else SCALE)
    colors = scale.with_extremes(bad=BLANK)
    axes.imshow(z, aspect="auto", cmap=colors, vmin=panel.low, vmax=panel.high, interpolation="nearest")
    below = dict(panel.ticks) or {place: str(name) for place, name in enumerate(panel.x) if str(name)}
    most = int((width - 0.6) / (1.3 * TICK / 72))  # upright
    below = dict(list(below.items())[:: max(1, -(-len(below) // most))])
    level = len(panel.x) * max(map(len, below.values()), default=0) * LETTER * TICK < width - 0.8
    axes.set_xticks(list(below), list(below.values()), rotation=0 if level else 90)
    named = [place for place, name in enumerate(panel.y) if str(name)]  # a name may be left out on purpose
    axes.set_yticks(named, [str(panel.y[place]) for place in named])
    if panel.ticks_above:
        top = axes.secondary_xaxis("top")
        top.set_xticks(list(panel.ticks_above), list(panel.ticks_above.values()))
        top.tick_params(labelsize=TICK, pad=1, length=2)
    if panel.numbers:
        middle = (panel.low + panel.high) / 2
        for (row, column), value in np.ndenumerate(z):
            if math.isfinite(value):
                color = "white" if value > middle else "black"
                axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=NUMBER, color=color)


def plotly(chart: Chart | Diagram) -> dict[str, Any]:
    """Return a chart as plotly's data and layout."""
    if isinstance(chart, Diagram):
        return plotly_diagram(chart)
    columns = min(chart.columns, len(chart.panels))
    data: list[dict[str, Any]] = []
    layout: dict[str, Any] = {"annotations": [], "margin": {"l": 60, "r": 20, "t": 40, "b": 60}, "barmode": "group"}
    if any(panel.kind == "heatmap" for panel in chart.panels):
        layout["margin"]["r"] = 70  # for the scale
    layout["legend"] = {"orientation": "h", "y": -0.12}
    seen: set[str] = set()
    for number, panel in enumerate(chart.panels):
        row, column = divmod(number, columns)
        wide, high = 1 / columns, 1 / chart.rows
        left, right = (column + max(0.12, _name_room(panel) * columns)) * wide, (column + 0.9) * wide
        top = 1 - row * high - 0.1 * high
        bottom = 1 - (row + 1) * high + (0.25 if panel.x_label or panel.kind != "lines" else 0.18) * high
        suffix = "" if number == 0 else str(number + 1)
        sideways = panel.kind == "sideways"
        titles = (panel.y_label, panel.x_label) if sideways else (panel.x_label, panel.y_label)
        layout[f"xaxis{suffix}"] = _axis(panel, [left, right], f"y{suffix}", titles[0], log=panel.log_x)
        layout[f"yaxis{suffix}"] = _axis(panel, [bottom, top], f"x{suffix}", titles[1], log=panel.log_y)
        if panel.kind == "heatmap" or sideways:
            layout[f"yaxis{suffix}"]["autorange"] = "reversed"
        if panel.top is not None:
            layout[f"{'x' if sideways else 'y'}axis{suffix}"]["range"] = [0, panel.top]
        title = {
            "text": panel.title.replace("\n", "<br>"),
            "x": (left + right) / 2,
            "y": top,
            "xref": "paper",
            "yref": "paper",
        }
        layout["annotations"].append(
            title | {"showarrow": False, "xanchor": "center", "yanchor": "bottom", "font": {"size": 11}}
        )
        axes = {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
        if panel.threshold is not None:
            ends = {"x0": panel.threshold, "x1": panel.threshold, "y0": 0, "y1": 1}
            refs = {
                "xref": f"x{suffix}",
                "yref": f"y{suffix} domain",
                "line": {"color": "#555555", "dash": "dot", "width": 1},
            }
            layout.setdefault("shapes", []).append({"type": "line"} | ends | refs)
        for level in panel.levels:
            ends = {"x0": 0, "x1": 1, "y0": level.y, "y1": level.y, "xref": f"x{suffix} domain", "yref": f"y{suffix}"}
            line = {"line": {"color": level.color, "dash": "dash", "width": 1.5}}
            layout.setdefault("shapes", []).append({"type": "line"} | ends | line)
        data += [trace | axes for trace in _traces(panel, seen)]
        following = chart.panels[number + 1 : (row + 1) * columns]
        if panel.kind == "heatmap" and all(other.kind != "heatmap" for other in following):  # one scale serves a row
            bar = {"len": top - bottom, "y": (top + bottom) / 2, "x": 1.01, "thickness": 10, "tickfont": {"size": 10}}
            data[-1] |= {"showscale": True, "colorbar": bar}
    return {"data": data, "layout": layout}


def _name_room(panel: Panel) -> float:
    """Return the share of a page's width that names beside lying bars take."""
    return 0.0075 * max((len(str(name)) for name in panel.x), default=0) if panel.kind == "sideways" else 0.0


def _axis(panel: Panel, domain: list[float], anchor: str, title: str, *, log: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"domain": domain, "anchor": anchor, "title": {"text": title, "font": {"size": 11}}}
    if log:
        found["type"] = "log"
    elif panel.kind == "heatmap" or (panel.kind, anchor[0]) in (("bars", "y"), ("sideways", "x")):
        found["type"] = "category"
        shown = {**panel.ticks, **panel.ticks_above}
        if shown and anchor.startswith("y"):
            names = _apart(panel.x)
            found |= {"tickvals": [names[place] for place in sorted(shown)]}
            found |= {"ticktext": [shown[place] for place in sorted(shown)], "tickangle": -90}
    return found | {"tickfont": {"size": 10}}


def _apart(names: Sequence[Any] | np.ndarray) -> list[str]:
    """Return names that may repeat as different ones, which a category axis does not merge."""
    return [f"{name}{ZERO_WIDTH * place}" for place, name in enumerate(map(str, names))]


def _traces(panel: Panel, seen: set[str]) -> Iterator[dict[str, Any]]:
    if panel.kind == "heatmap":
        scale = [list(stop) for stop in (DIVERGING if panel.diverging else SCALE)]
        names, rows = _apart(panel.x), _apart(panel.y)
        z = [[round(float(value), 4) if math.isfinite(value) else None for value in row] for row in panel.z]
        common = {"type": "heatmap", "x": names, "y": rows, "showscale": False}
        if any(value is None for row in z for value in row):
            blank = [[0 if value is None else None for value in row] for row in z]
            yield common | {"z": blank, "colorscale": [[0, BLANK], [1, BLANK]], "hoverinfo": "skip"}
        numbers = {"texttemplate": "%{z:.2f}", "textfont": {"size": 10}} if panel.numbers else {}
        yield common | {"z": z, "zmin": panel.low, "zmax": panel.high, "colorscale": scale} | numbers
        return
    for place, line in enumerate(panel.lines):
        color = line.color or COLORS[place % len(COLORS)]
        shown = bool(line.name) and line.name not in seen
        seen.add(line.name)
        y = [None if not math.isfinite(value) else round(float(value), 5) for value in line.y]
        common = {"name": line.name, "legendgroup": line.name, "showlegend": shown}
        if panel.kind == "bars":
            numbers = {"texttemplate": "%{y:.2f}", "textposition": "auto", "textangle": -90} if panel.numbers else {}
            yield common | {"type": "bar", "x": list(panel.x), "y": y, "marker": {"color": color}} | numbers
        elif panel.kind == "sideways":
            bar = {"type": "bar", "orientation": "h", "texttemplate": "%{x:.2f}", "marker": {"color": color}}
            yield common | bar | {"x": y, "y": list(panel.x)}
        elif panel.kind == "lines":
            dash = {"dash": "dash"} if line.dashed else {}
            style = {"mode": "lines+markers", "line": {"color": color} | dash, "marker": {"color": color, "size": 5}}
            yield common | {"type": "scatter", "x": list(panel.x), "y": y} | style
        else:
            x = [float(edge) for edge in panel.x]
            yield common | {
                "type": "scatter", "mode": "lines", "x": x, "y": [*y, y[-1]], "line": {"color": color, "shape": "hv"},
            }  # fmt: skip
