"""Parts of figures: lines by size, bars with intervals, legends, panels."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from latentloop.errors import UserError
from latentloop.evaluate.metrics import wilson
from latentloop.experiments.scores import Scores, comparable, least_loss
from latentloop.report.palette import COLUMN, ENCODING_LOOKS, METHOD_LOOKS, PAGE, SMALLEST, TRAINED, Look

T = TypeVar("T")
Groups = Mapping[str, Scores]
"""Scores by point, in the table's order."""
SOLVED = "problems fully solved, %"
TRAJECTORIES = {"value": "Val", "equation-value": "Eq-Val", "equation-operands-value": "Eq-Op-Val"}
"""Formats of a chain of thought, as the paper's figures abbreviate them."""
AIDS = {
    "lookup_weight": "read-outs",
    "partial_weight": "read-outs",
    "positions": "look-up head and window",
    "first_heads": "look-up head and window",
    "lookup_noise": "look-up head and window",
    "skew": "skewed states",
    "true_states": "random states",
    "curriculum": "curriculum",
}
"""What an override takes away, in words."""
LAYERS_FIXED = ("corrected",)
"""Methods whose claims are about the number of layers of their preset."""
WHOLE = 100.0
"""Where an axis of percentages ends."""
ENDS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
"""Where it may end sooner: all that it shows is small."""


class NothingStoredError(UserError):
    """None of the results that a figure is drawn from are there."""


def some(found: T) -> T:
    """Return what was found; raise if it is nothing."""
    if not found:
        raise NothingStoredError
    return found


def of_methods(groups: Groups, methods: Iterable[str]) -> list[Scores]:
    """Return the points of some methods."""
    wanted = set(methods)
    return [scores for scores in groups.values() if scores.method in wanted]


def own(groups: Groups, method: str) -> Scores | None:
    """Return the point of a method that has its preset's settings and budget: what others are compared with."""
    for scores in of_methods(groups, [method]):
        as_preset = scores.labels["budget"] == 1 and set(scores.labels["overrides"]) <= {"steps"}
        if as_preset or scores.labels["scale"] == "further":  # there a method has one point only
            return scores
    return None


def peers(groups: Groups, method: str) -> list[Scores]:
    """Return a method's points whose validation losses can be compared with that of its own point, or else of its first."""
    found = of_methods(groups, [method])
    first = own(groups, method) or next(iter(found), None)
    return [scores for scores in found if first and comparable(scores, first)]


def best(groups: Groups, method: str) -> Scores | None:
    """Return a method's point with the lowest validation loss, as ``Evidence.best`` does for verdicts."""
    first = own(groups, method)
    if first is None:
        return None
    layers = first.labels["layers"] if method in LAYERS_FIXED else None
    return least_loss(s for s in peers(groups, method) if layers in (None, s.labels["layers"]))


def spread(scores: Scores, sizes: Sequence[int], kind: str = "solved") -> tuple[float, float]:
    """Return an average's interval, from the lowest end to the highest of the 95 % Wilson intervals of its seeds."""
    ends = [Scores(results=(result,)).interval(sizes, kind) for result in scores.results]
    return min(low for low, _ in ends), max(high for _, high in ends)


def spread_of(shares: Sequence[float], problems: int) -> tuple[float, float]:
    """Return the same of shares that are in no row, one for each seed."""
    ends = [wilson(round(share * problems), problems) for share in shares]
    return min(low for low, _ in ends), max(high for _, high in ends)


def axis_end(shares: Iterable[float]) -> float:
    """Return the percentage at which an axis ends: 100, or less where all of some shares are small."""
    most = 100 * max(shares, default=1.0)
    return next((end for end in ENDS if most <= end), WHOLE)


def highest(groups: Iterable[Scores]) -> list[float]:
    """Return the upper end of every interval that is drawn by size."""
    return [spread(scores, [nodes])[1] for scores in groups for nodes in scores.sizes]


def with_end(label: str, end: float) -> str:
    """Return an axis' label, which says where the axis ends if that is not at 100 %."""
    return label if end == WHOLE else f"{label} (axis ends at {end:g})"


def described(scores: Scores) -> str:
    """Return what tells a configuration from others of its method."""
    labels = scores.labels
    parts = [labels["model"]]
    if labels["trajectory"]:
        parts = [f"{TRAJECTORIES[labels['trajectory']]} {labels['model']}"]
        parts += [] if labels["variable_size"] else ["fixed N"]
    if labels["corruption"]:
        parts.append(f"{100 * labels['corruption']:g} % corrupted")
    without = taken_away(scores)
    if without and labels["scale"] == "laptop":
        parts.append("plain" if is_plain(scores) else ", ".join(f"no {aid}" for aid in without))
    if few_names(scores):
        parts.append("few names first")
    if labels["budget"] != 1:
        parts.append(
            f"{labels['budget']:g}x the budget" + (" on given weights" if "start" in labels["overrides"] else "")
        )
    return ", ".join(parts)


def taken_away(scores: Scores) -> list[str]:
    """Return the training aids that a point goes without; another encoding alone is told by the model's name."""
    found = dict.fromkeys(AIDS[name] for name in scores.labels["overrides"] if name in AIDS)
    if scores.labels["curriculum"]:  # another one is no curriculum less
        found.pop(AIDS["curriculum"], None)
    if list(found) == [AIDS["positions"]] or "first_heads" not in scores.labels["overrides"]:
        found.pop(AIDS["positions"], None)
    return list(found)


def is_plain(scores: Scores) -> bool:
    """Return whether a point goes without several training aids, the architecture's extra MLP among them: it has none left."""
    return len(taken_away(scores)) > 1 and "mlp_depth" in scores.labels["overrides"]


def few_names(scores: Scores) -> bool:
    """Return whether a point's curriculum begins with few names."""
    return any("@" in stage for stage in scores.labels["curriculum"])


def page_figure(height: float, rows: int = 1, columns: int = 1, **settings: Any) -> tuple[Figure, list[Axes]]:
    """Make a figure as wide as a page, with panels."""
    figure = Figure(figsize=(PAGE, height), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False, **settings).flat)


def column_figure(height: float) -> tuple[Figure, Axes]:
    """Make a figure as wide as a column."""
    figure = Figure(figsize=(COLUMN, height), layout="constrained")
    return figure, figure.add_subplot()


def line(axes: Axes, xs: Sequence[int | float], scores: Sequence[int | float], look: Look, **settings: Any) -> None:
    """Draw a line of percentages with a look's color and marker."""
    given: dict[str, Any] = {"color": look.color, "marker": look.marker, "label": look.label, "zorder": 3} | settings
    if look.marker == "*":  # a star looks smaller than it is
        given.setdefault("markersize", 5.5)
    axes.plot(xs, [100 * score for score in scores], markeredgewidth=given.pop("markeredgewidth", 0.4), **given)


def by_size(
    axes: Axes, scores: Scores, look: Look, *, kind: str = "solved", with_band: bool = True, **settings: Any
) -> None:
    """Draw the share solved by size: the median of the seeds, and a band of its spread."""
    line(axes, scores.sizes, [scores.solved(nodes, kind) for nodes in scores.sizes], look, **settings)
    if with_band:
        ends = [spread(scores, [nodes], kind) for nodes in scores.sizes]
        band(axes, scores.sizes, ends, settings.get("color", look.color))


def band(axes: Axes, xs: Sequence[int | float], ends: Iterable[tuple[float, float]], color: str) -> None:
    """Draw a band between the ends of intervals, which are shares."""
    low, high = ([100 * end for end in side] for side in zip(*ends, strict=True))
    axes.fill_between(xs, low, high, color=color, alpha=0.16, linewidth=0)


def size_axes(
    axes: Axes, groups: Iterable[Scores], *, percent: bool = True, label: bool = True, end: float = WHOLE
) -> None:
    """Set up axes of sizes: those trained on are shaded."""
    groups = list(groups)
    sizes = sorted({nodes for scores in groups for nodes in scores.sizes})
    trained_to = max(scores.labels["trained_to"] for scores in groups)
    margin = 0.02 * (sizes[-1] - sizes[0])
    axes.axvspan(sizes[0] - margin, min(trained_to, sizes[-1] + margin), color=TRAINED, zorder=0, linewidth=0)
    axes.set_xlim(sizes[0] - margin, sizes[-1] + margin)
    every = 8 if sizes[-1] <= 64 else 16
    every *= 1 if figure_of(axes).get_figwidth() / columns_of(axes) > 2.6 else 2  # inches
    chosen = [nodes for nodes in sizes if nodes % every == 0]
    axes.set_xticks(chosen if len(chosen) > 1 else sizes)
    if percent:
        percent_axis(axes, end)
    if label:
        axes.set_xlabel("nodes in the graph, N")


def figure_of(axes: Axes) -> Figure:
    """Return the figure that axes are in."""
    figure = axes.get_figure(root=True)
    assert isinstance(figure, Figure)
    return figure


def columns_of(axes: Axes) -> int:
    """Return how many panels are side by side."""
    grid = axes.get_gridspec()
    return grid.ncols if grid else 1


def percent_axis(axes: Axes, end: float = WHOLE) -> None:
    """Set up a vertical axis of percentages, with room for markers at both ends."""
    axes.set_ylim(-0.04 * end, 1.04 * end)
    axes.set_yticks(percent_ticks(end, 4))


def percent_ticks(end: float, parts: int) -> list[float]:
    """Return ticks of an axis of percentages: a number of parts, and five where it ends before 100."""
    parts = parts if end == WHOLE else 5
    return [end * part / parts for part in range(parts + 1)]


def trained_patch() -> Patch:
    """Return the legend's entry of the shade."""
    return Patch(facecolor=TRAINED, label="sizes trained on")


def entry(look: Look, **settings: Any) -> Line2D:
    """Return a legend's entry of a look."""
    given: dict[str, Any] = {"color": look.color, "marker": look.marker, "label": look.label, "markeredgewidth": 0.4}
    return Line2D([], [], **given | {"markersize": 5.5 if look.marker == "*" else 3.6} | settings)


def legend_above(figure: Figure, handles: Sequence[Any], columns: int) -> None:
    """Put a legend above all panels, read from left to right; what is alone needs none."""
    if len(handles) < 2:
        return
    rows = -(-len(handles) // columns)
    places = [row * columns + column for column in range(columns) for row in range(rows)]  # columns are filled first
    ordered = [handles[place] for place in places if place < len(handles)]
    figure.legend(handles=ordered, loc="outside upper center", ncols=columns)


def bars(axes: Axes, rows: Sequence[tuple[str, float, tuple[float, float], str]], label: str) -> None:
    """Draw horizontal bars: name, share, interval and color of each, the first on top."""
    places = range(len(rows))
    axes.barh(places, [100 * share for _, share, _, _ in rows], color=[color for *_, color in rows], height=0.72)
    errors = [
        [100 * max(0.0, s - low) for _, s, (low, _), _ in rows],
        [100 * max(0.0, high - s) for _, s, (_, high), _ in rows],
    ]
    axes.errorbar(
        [100 * share for _, share, _, _ in rows],
        places,
        xerr=errors,
        fmt="none",
        ecolor="#444444",
        elinewidth=0.8,
        capsize=1.5,
    )
    end = axis_end(high for _, _, (_, high), _ in rows)
    for place, (_, share, (_, high), _) in enumerate(rows):
        at = 100 * max(share, high) + end / 100
        axes.text(at, place, percentage(share, end), va="center", fontsize=SMALLEST)
    axes.set_yticks(places, [name for name, *_ in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, 1.09 * end)
    axes.set_xticks(percent_ticks(end, 5))
    axes.set_xlabel(with_end(label, end))
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)


def percentage(share: float, end: float) -> str:
    """Write a share beside its bar: one digit after the point, or two where the axis is cut short."""
    return f"{100 * share:.{1 if end == WHOLE else 2}f}"


def method_entries(groups: Groups, chosen: Mapping[str, Scores]) -> list[Line2D]:
    """Return legend entries of the points chosen for methods, in the order of the ladder."""
    return [entry(look, label=titled(groups, chosen[name])) for name, look in METHOD_LOOKS.items() if name in chosen]


def titled(groups: Groups, scores: Scores) -> str:
    """Name a point by its method, and by what tells it from the method's own point."""
    first = own(groups, scores.method) or scores
    parts = [METHOD_LOOKS[scores.method].label]
    if scores.labels["encoding"] != first.labels["encoding"]:
        parts.append(ENCODING_LOOKS[scores.labels["encoding"]].label)
    if few_names(scores) and not few_names(first):
        parts.append("few names first")
    if (scores.labels["iterations"], scores.labels["layers"]) != (first.labels["iterations"], first.labels["layers"]):
        parts.append(scores.labels["model"].split("-")[-1])
    return ", ".join(parts)
