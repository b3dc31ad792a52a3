"""Figures that compare configurations of a method: encodings, layers and iterations, formats, corruption, training aids."""

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from latentloop.experiments.jobs import Scale
from latentloop.experiments.scores import Scores, least_loss
from latentloop.experiments.table import EXPERIMENTS
from latentloop.presets import preset
from latentloop.report.ladder_parts import (
    SOLVED,
    WHOLE,
    Groups,
    axis_end,
    bars,
    best,
    by_size,
    column_figure,
    described,
    entry,
    few_names,
    highest,
    is_plain,
    legend_above,
    line,
    of_methods,
    own,
    page_figure,
    peers,
    percent_axis,
    percentage,
    size_axes,
    some,
    spread,
    taken_away,
    trained_patch,
    with_end,
)
from latentloop.report.palette import ENCODING_LOOKS, FAMILIES, METHOD_LOOKS, PAGE, SMALLEST, Look, shades
from latentloop.schema import changed

SHORT = {"feedforward": "feedf.", "recurrent": "recurr."}
ROW = 0.165
"""Inches of height that a bar takes."""
APART = 0.17
"""What two markers of one row are moved up and down, in rows, so that neither hides the other."""
ENCODING_WIDTHS = {name: 2.7 - 0.5 * place for place, name in enumerate(ENCODING_LOOKS)}
"""Widths of lines of which many coincide: a later one leaves the edges of those below it to be seen."""
LAYER_MARKERS = {2: "o", 4: "s", 8: "D"}
LAYER_LINES: dict[int, dict[str, Any]] = {
    2: {"linestyle": (0, (3, 1.5)), "markerfacecolor": "white"},
    4: {"linestyle": "-"},
    8: {"linestyle": (0, (1, 1))},
}
"""By the number of layers, where the marker tells the method."""


def _bar_figure(count: int) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(PAGE, ROW * count + 0.95), layout="constrained")
    return figure, figure.add_subplot()


def average_bars(family: str) -> Callable[[Groups], Figure]:
    """Return the figure of the average score of every configuration of a family."""

    def draw(groups: Groups) -> Figure:
        found = some(of_methods(groups, FAMILIES[family]))
        found.sort(key=lambda scores: -scores.average(scores.sizes))
        figure, axes = _bar_figure(len(found))
        present = {scores.method for scores in found}
        names = [f"{s.method}: {described(s)}" if len(FAMILIES[family]) > 1 else described(s) for s in found]
        rows = [
            (name, s.average(s.sizes), spread(s, s.sizes), METHOD_LOOKS[s.method].color)
            for name, s in zip(names, found, strict=True)
        ]
        bars(axes, rows, "average solved, %")
        handles = [
            Patch(facecolor=look.color, label=look.label) for name, look in METHOD_LOOKS.items() if name in present
        ]
        legend_above(figure, handles, len(handles))
        return figure

    return draw


def structure(groups: Groups) -> Figure:
    """Draw chains of thought that are right but for numbers, and those that are solved."""
    found = some(of_methods(groups, ["cot"]))
    found.sort(key=lambda scores: -scores.average(scores.sizes, "structure_right"))
    figure, axes = _bar_figure(len(found))
    color = METHOD_LOOKS["cot"].color
    rows = [
        (described(s), s.average(s.sizes, "structure_right"), spread(s, s.sizes, "structure_right"), "#f3d9a4")
        for s in found
    ]
    bars(axes, rows, "average of problems, %")
    axes.barh(range(len(found)), [100 * s.average(s.sizes) for s in found], color=color, height=0.36)
    handles = [
        Patch(facecolor="#f3d9a4", label="all but numbers right"),
        Patch(facecolor=color, label="all values right"),
    ]
    legend_above(figure, handles, 2)
    return figure


def _encodings_in(found: Iterable[Scores]) -> dict[str, Look]:
    present = {scores.labels["encoding"] for scores in found}
    return {name: look for name, look in ENCODING_LOOKS.items() if name in present}


def lines_by_encoding(groups: Groups) -> Figure:
    """Draw every run as a line in the color of its encoding, a panel for each family."""
    present = some({family: found for family, names in FAMILIES.items() if (found := of_methods(groups, names))})
    figure, panels = page_figure(2.5, 1, len(present))
    for axes, (family, found) in zip(panels, present.items(), strict=True):
        for scores in sorted(found, key=lambda scores: list(ENCODING_LOOKS).index(scores.labels["encoding"])):
            look = ENCODING_LOOKS[scores.labels["encoding"]]
            width = ENCODING_WIDTHS[scores.labels["encoding"]]
            for result in scores.results:
                alone = Scores(results=(result,))
                by_size(axes, alone, look, with_band=False, marker="", linewidth=width, alpha=0.8)
        end = axis_end(row["solved"] for s in found for one in s.results for row in one["rows"])
        axes.set_title(with_end(family, end))
        size_axes(axes, found, end=end)
    panels[0].set_ylabel(SOLVED)
    looks = _encodings_in(scores for found in present.values() for scores in found)
    legend_above(figure, [*(entry(look, marker="") for look in looks.values()), trained_patch()], 6)
    return figure


def _by_encoding(groups: Groups, method: str) -> dict[str, Scores]:
    """Return a method's point with each encoding, all else being equal; at the paper's scale, that with the lowest loss.

    Where few names first start a method, all of its encodings begin so, and the method's own point is not among them.
    """
    compared = {point.name for point in EXPERIMENTS["encodings"].points}
    points = [s for s in peers(groups, method) if s.labels["scale"] != "laptop" or s.name in compared]
    found = {name: [s for s in points if s.labels["encoding"] == name] for name in ENCODING_LOOKS}
    return {name: least_loss(candidates) for name, candidates in found.items() if candidates}


def best_per_encoding(groups: Groups) -> Figure:
    """Draw the average score of the best configuration of each encoding, a panel for each method."""
    found = {method: _by_encoding(groups, method) for method in ("feedforward", "recurrent", "cot", "discrete")}
    found = some({method: by_encoding for method, by_encoding in found.items() if by_encoding})
    planned = _planned(next(iter(groups.values())).labels["scale"])
    figure, panels = page_figure(2.3, 1, len(found))
    for axes, (method, by_encoding) in zip(panels, found.items(), strict=True):
        encodings = [name for name in ENCODING_LOOKS if (method, name) in planned or name in by_encoding]
        end = axis_end(spread(scores, scores.sizes)[1] for scores in by_encoding.values())
        for x, encoding in enumerate(encodings):
            color = ENCODING_LOOKS[encoding].color
            if encoding not in by_encoding:
                axes.text(x, 0.02 * end, "?", ha="center", color=color)
                continue
            scores = by_encoding[encoding]
            share = scores.average(scores.sizes)
            low, high = spread(scores, scores.sizes)
            axes.bar(x, 100 * share, width=0.8, color=color)
            axes.plot([x, x], [100 * low, 100 * high], color="#444444", linewidth=0.8)
            axes.text(x, 100 * max(high, share) + end / 70, percentage(share, end), ha="center", fontsize=SMALLEST)
        title = {"discrete": "latent (discrete)"}.get(method, METHOD_LOOKS[method].label)
        axes.set_title(title if end == WHOLE else f"{title}\n(axis ends at {end:g})")
        axes.set_xticks([])
        axes.set_xlim(-0.6, len(encodings) - 0.4)
        percent_axis(axes, end)
        axes.set_ylim(0, 1.12 * end)
    panels[0].set_ylabel("average solved, %")
    shown = {name for method, name in planned if method in found} | {name for one in found.values() for name in one}
    looks = [look for name, look in ENCODING_LOOKS.items() if name in shown]
    legend_above(figure, [Patch(facecolor=look.color, label=look.label) for look in looks], len(looks))
    return figure


def _planned(scale: Scale) -> set[tuple[str, str]]:
    """Return which method is run with which encoding, at a scale, timed or not."""
    points = [point for name in ("encodings", "paper") for point in EXPERIMENTS[name].points if point.scale == scale]
    runs = [changed(preset(point.preset), **point.overrides) for point in points]
    return {(run.method.name, run.model.positions.name) for run in runs}


def encodings_of(method: str) -> Callable[[Groups], Figure]:
    """Return the figure of the share solved by size, for a method's best configuration of each encoding."""

    def draw(groups: Groups) -> Figure:
        found = some(_by_encoding(groups, method))
        figure, axes = column_figure(2.6)
        end = axis_end(highest(found.values()))
        for name, scores in found.items():
            by_size(axes, scores, ENCODING_LOOKS[name])
        size_axes(axes, found.values(), end=end)
        axes.set_ylabel(with_end(SOLVED, end))
        legend_above(figure, [*(entry(ENCODING_LOOKS[name]) for name in found), trained_patch()], 3)
        return figure

    return draw


def architectures(family: str) -> Callable[[Groups], Figure]:
    """Return the figure of the best configuration of each architecture: iterations T, layers L."""

    def draw(groups: Groups) -> Figure:
        found: dict[Architecture, list[Scores]] = {}
        for method in FAMILIES[family]:
            for scores in peers(groups, method):
                key = method, scores.labels["iterations"] or 0, scores.labels["layers"]
                found.setdefault(key, []).append(scores)
        chosen = {key: least_loss(candidates) for key, candidates in sorted(some(found).items(), key=_by_depth)}
        figure, axes = column_figure(3.0)
        handles: list[Any] = []
        for (method, iterations, layers), scores in chosen.items():
            settings = architecture_look(chosen, (method, iterations, layers))
            by_size(axes, scores, METHOD_LOOKS[method], **settings)
            name = f"L{layers}" if not iterations else f"T{iterations}L{layers}"
            label = name if family == "chain of thought" else f"{SHORT.get(method, method)} {name}"
            handles.append(entry(METHOD_LOOKS[method], **settings | {"label": label}))
        end = axis_end(highest(chosen.values()))
        size_axes(axes, chosen.values(), end=end)
        axes.set_ylabel(with_end(SOLVED, end))
        legend_above(figure, [*handles, trained_patch()], 3)
        return figure

    return draw


Architecture = tuple[str, int, int]
"""Method, iterations (0: as many as a problem needs) and layers."""


def _by_depth(item: tuple[Architecture, list[Scores]]) -> tuple[int, int, int]:
    method, iterations, layers = item[0]
    return list(METHOD_LOOKS).index(method), iterations * layers, layers


def architecture_look(shown: Iterable[Architecture], one: Architecture) -> dict[str, Any]:
    """Return how an architecture is drawn, of those shown: no two look alike.

    Where iterations adapt, color and marker are the method's, and the line tells the layers. Else the color tells the depth
    T x L, the marker the layers, and the line the method.
    """
    method, iterations, layers = one
    if not iterations:
        return LAYER_LINES.get(layers, {"linestyle": (0, (5, 1, 1, 1))})
    depths = [iterations * layers for _, iterations, layers in shown]
    return {
        "color": shades(depths)[iterations * layers],
        "marker": LAYER_MARKERS.get(layers, "X"),
        "linestyle": (0, (3, 1.5)) if method == "feedforward" else "-",
    }


def entropy(groups: Groups) -> Figure:
    """Draw the entropy of attention by size, by method and by encoding."""
    by_method = some({m: s for m in METHOD_LOOKS if (s := best(groups, m)) and s.results[0]["entropy"]})
    by_encoding = _by_encoding(groups, "feedforward")
    panels = [("by method", [(s, METHOD_LOOKS[m], f"{METHOD_LOOKS[m].label}, {_of(s)}") for m, s in by_method.items()])]
    if by_encoding:
        looks = [(scores, ENCODING_LOOKS[name], ENCODING_LOOKS[name].label) for name, scores in by_encoding.items()]
        layers = next(iter(by_encoding.values())).labels["layers"]
        panels.append((f"feedforward, {layers} layers, by encoding", looks))
    figure, everywhere = page_figure(3.0, 1, len(panels), sharey=True)
    for axes, (title, found) in zip(everywhere, panels, strict=True):
        for scores, look, _ in found:
            _entropy_line(axes, scores, look)
        axes.set_title(title)
        size_axes(axes, [scores for scores, *_ in found], percent=False)
        axes.legend(
            handles=[entry(look, label=words) for _, look, words in found],
            loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2,
        )  # fmt: skip
    everywhere[0].set_ylabel("entropy of attention, nats")
    everywhere[0].set_ylim(bottom=0)
    return figure


def _of(scores: Scores) -> str:
    """Return a model's encoding and layers, in short."""
    return f"{ENCODING_LOOKS[scores.labels['encoding']].label.removesuffix(' (ours)')} L{scores.labels['layers']}"


def _entropy_line(axes: Axes, scores: Scores, look: Look) -> None:
    """Draw the mean entropy of all heads: the median of the seeds, and their range."""
    sizes = [int(nodes) for nodes in scores.results[0]["entropy"]]
    found = [[result["entropy"][str(nodes)]["mean"] for result in scores.results] for nodes in sizes]
    axes.plot(sizes, [median(means) for means in found], color=look.color, marker=look.marker)
    axes.fill_between(
        sizes, [min(m) for m in found], [max(m) for m in found], color=look.color, alpha=0.16, linewidth=0
    )


def correction(groups: Groups) -> Figure:
    """Draw the average out of distribution by the probability of corruption, a line for each number of layers."""
    found = some([*of_methods(groups, ["discrete"]), *of_methods(groups, ["corrected"])])
    probabilities = sorted({scores.labels["corruption"] or 0.0 for scores in found})
    figure, axes = column_figure(2.5)
    handles = []
    for layers in sorted({scores.labels["layers"] for scores in found}):
        chosen = {s.labels["corruption"] or 0.0: s for s in found if s.labels["layers"] == layers}
        xs = [place for place, probability in enumerate(probabilities) if probability in chosen]
        style: dict[str, Any] = {"linestyle": "-" if layers > 2 else (0, (3, 1.5))}
        style |= {"markerfacecolor": "white", "markeredgewidth": 0.9} if layers == 2 else {}
        for x in xs:
            scores = chosen[probabilities[x]]
            low, high = spread(scores, scores.outside)
            axes.plot([x, x], [100 * low, 100 * high], color=METHOD_LOOKS[scores.method].color, linewidth=1.2)
        averages = [chosen[probabilities[x]].average(chosen[probabilities[x]].outside) for x in xs]
        line(axes, xs, averages, METHOD_LOOKS["corrected"], **style, markersize=5.0)
        if 0 in xs:
            line(axes, [0], averages[:1], METHOD_LOOKS["discrete"], **style, markersize=5.0)
        handles.append(entry(Look(label=f"{layers} layers", color="#444444", marker="o"), **style, markersize=5.0))
    axes.set_xticks(range(len(probabilities)), ["0\n(discrete)" if p == 0 else f"{p:g}" for p in probabilities])
    axes.set_xlabel("probability that a batch is corrupted")
    axes.set_ylabel("solved out of distribution, %")
    axes.set_xlim(-0.25, len(probabilities) - 0.75)
    percent_axis(axes)
    legend_above(figure, handles, len(handles))
    return figure


def built_in(groups: Groups) -> Figure:
    """Draw what each training aid is worth: averages in and out of distribution without it."""
    methods = some([method for method in ("discrete", "stable") if own(groups, method)])
    rows = max(len(of_methods(groups, [method])) for method in methods)
    figure, panels = page_figure(0.8 + 0.36 * rows, 1, len(methods), sharex=True)
    for axes, method in zip(panels, methods, strict=True):
        found = of_methods(groups, [method])
        _inside_and_outside(axes, found, [_aids_left(scores) for scores in found])
        axes.set_title(METHOD_LOOKS[method].label)
        axes.set_xlabel(f"{SOLVED}, average")
    legend_above(figure, _inside_and_outside_entries(), 2)
    return figure


def curricula(groups: Groups) -> Figure:
    """Draw averages in and out of distribution without and with a curriculum of few names."""
    found = sorted(
        some(groups.values()), key=lambda scores: (list(METHOD_LOOKS).index(scores.method), few_names(scores))
    )
    figure, (axes,) = page_figure(0.6 + 0.2 * len(found))
    _inside_and_outside(axes, found, [_first_names(scores) for scores in found])
    end = axis_end(spread(scores, sizes)[1] for scores in found for sizes in (scores.inside, scores.outside))
    axes.set_xlim(-0.04 * end, 1.04 * end)
    axes.set_xlabel(with_end(f"{SOLVED}, average", end))
    legend_above(figure, _inside_and_outside_entries(), 2)
    return figure


def _first_names(scores: Scores) -> str:
    """Name a configuration by its method and its curriculum."""
    return METHOD_LOOKS[scores.method].label + (": few names first" if few_names(scores) else "")


def _inside_and_outside(axes: Axes, found: Sequence[Scores], labels: Sequence[str]) -> None:
    """Draw a row for each configuration: its average in distribution hollow, and beyond it filled, a little lower."""
    for place, scores in enumerate(found):
        color = METHOD_LOOKS[scores.method].color
        for sizes, face, y in ((scores.inside, "white", place - APART), (scores.outside, color, place + APART)):
            low, high = spread(scores, sizes)
            axes.plot([100 * low, 100 * high], [y] * 2, color=color, linewidth=1.0, zorder=2)
            axes.plot(
                100 * scores.average(sizes), y, color=color, marker="o", markersize=5,
                markerfacecolor=face, markeredgewidth=1.0, zorder=3,
            )  # fmt: skip
    axes.set_yticks(range(len(found)), labels)
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.set_xlim(-4, 104)
    axes.tick_params(axis="y", length=0)


def _inside_and_outside_entries() -> list[Line2D]:
    dot = Look(label="", color="#444444", marker="o")
    inside = entry(dot, label="in distribution", linestyle="none", markerfacecolor="white", markeredgecolor="#444444")
    return [inside, entry(dot, label="out of distribution", linestyle="none")]


def _aids_left(scores: Scores) -> str:
    """Say what a configuration goes without."""
    if not scores.labels["overrides"]:
        return "with all training aids"
    if is_plain(scores):
        return "plain: with none"
    away = taken_away(scores)
    if not away:
        return f"{ENCODING_LOOKS[scores.labels['encoding']].label} in place of\nlook-up head and window"
    return "no " + ",\nno ".join(away) + (",\nfew names first" if few_names(scores) else "")
