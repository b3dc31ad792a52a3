"""Figures that compare configurations of a method: encodings, layers and iterations, formats, corruption, training aids."""

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from latentloop.experiments.jobs import Scale
from latentloop.experiments.scores import Scores, comparable, least_loss
from latentloop.experiments.table import EXPERIMENTS
from latentloop.report.ladder_parts import (
    SOLVED,
    Groups,
    bars,
    best,
    by_size,
    column_figure,
    described,
    entry,
    few_names,
    is_plain,
    legend_above,
    line,
    of_methods,
    own,
    page_figure,
    percent_axis,
    size_axes,
    some,
    spread,
    taken_away,
    trained_patch,
)
from latentloop.report.palette import ENCODING_LOOKS, FAMILIES, METHOD_LOOKS, PAGE, Look, shades

SHORT = {"feedforward": "feedf.", "recurrent": "recurr."}
ROW = 0.165
"""Inches of height that a bar takes."""


def _bar_figure(count: int) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(PAGE, ROW * count + 0.95), layout="constrained")
    return figure, figure.add_subplot()


def average_bars(family: str) -> Callable[[Groups], Figure]:
    """Return the figure of the average score of every configuration of a family."""

    def draw(groups: Groups) -> Figure:
        found = some(of_methods(groups, FAMILIES[family]))
        found.sort(key=lambda scores: -scores.average(scores.sizes))
        figure, axes = _bar_figure(len(found))
        rows = [(described(s), s.average(s.sizes), spread(s, s.sizes), METHOD_LOOKS[s.method].color) for s in found]
        bars(axes, rows)
        axes.set_xlabel("average solved, %")
        present = {scores.method for scores in found}
        handles = [
            Patch(facecolor=look.color, label=look.label) for name, look in METHOD_LOOKS.items() if name in present
        ]
        legend_above(figure, handles, len(handles))
        return figure

    return draw


def structure(groups: Groups) -> Figure:
    """Draw chains of thought with the right equations, and among them those that are solved."""
    found = some(of_methods(groups, ["cot"]))
    found.sort(key=lambda scores: -scores.average(scores.sizes, "structure_right"))
    figure, axes = _bar_figure(len(found))
    color = METHOD_LOOKS["cot"].color
    rows = [
        (described(s), s.average(s.sizes, "structure_right"), spread(s, s.sizes, "structure_right"), "#f3d9a4")
        for s in found
    ]
    bars(axes, rows)
    axes.barh(range(len(found)), [100 * s.average(s.sizes) for s in found], color=color, height=0.36)
    axes.set_xlabel("average of problems, %")
    handles = [
        Patch(facecolor="#f3d9a4", label="all equations right"),
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
    figure, panels = page_figure(2.5, 1, len(present), sharey=True)
    for axes, (family, found) in zip(panels, present.items(), strict=True):
        for scores in found:
            look = ENCODING_LOOKS[scores.labels["encoding"]]
            for result in scores.results:
                alone = Scores(results=(result,))
                by_size(axes, alone, look, band=False, marker="", linewidth=0.9, alpha=0.8)
        axes.set_title(family)
        size_axes(axes, found)
    panels[0].set_ylabel(SOLVED)
    looks = _encodings_in(scores for found in present.values() for scores in found)
    legend_above(figure, [*(entry(look, marker="") for look in looks.values()), trained_patch()], 6)
    return figure


def _best_by_encoding(groups: Groups, method: str) -> dict[str, Scores]:
    """Return a method's best point of each encoding, by validation loss."""
    found = {name: best(groups, method, lambda s, name=name: s.labels["encoding"] == name) for name in ENCODING_LOOKS}
    return {name: scores for name, scores in found.items() if scores}


def best_per_encoding(groups: Groups) -> Figure:
    """Draw the average score of the best configuration of each encoding, methods side by side."""
    methods = some([method for method in ("feedforward", "recurrent", "cot", "discrete") if own(groups, method)])
    found = {method: _best_by_encoding(groups, method) for method in methods}
    planned = _planned(next(iter(groups.values())).labels["scale"])
    looks = {
        name: look for name, look in ENCODING_LOOKS.items() if any((method, name) in planned for method in methods)
    }
    figure, (axes,) = page_figure(2.3)
    width = 0.8 / len(looks)
    for place, (encoding, look) in enumerate(looks.items()):
        for number, (method, by_encoding) in enumerate(found.items()):
            x = number + (place - (len(looks) - 1) / 2) * width
            if encoding not in by_encoding:
                axes.text(x, 2, "?" if (method, encoding) in planned else "\N{EN DASH}", ha="center", color=look.color)
                continue
            scores = by_encoding[encoding]
            share = scores.average(scores.sizes)
            low, high = spread(scores, scores.sizes)
            axes.bar(x, 100 * share, width=0.9 * width, color=look.color)
            axes.plot([x, x], [100 * low, 100 * high], color="#444444", linewidth=0.8)
            axes.text(x, 100 * max(high, share) + 1.5, f"{100 * share:.1f}", ha="center", fontsize=7.0)
    names = {"discrete": "latent (discrete)"}
    axes.set_xticks(range(len(methods)), [names.get(method, METHOD_LOOKS[method].label) for method in methods])
    axes.tick_params(axis="x", length=0, labelsize=8.0)
    axes.grid(axis="x", visible=False)
    axes.set_xlim(-0.5, len(methods) - 0.5)
    axes.set_ylim(0, 112)
    axes.set_yticks(range(0, 101, 25))
    axes.set_ylabel("average solved, %")
    legend_above(figure, [Patch(facecolor=look.color, label=look.label) for look in looks.values()], len(looks))
    return figure


def _planned(scale: Scale) -> set[tuple[str, str]]:
    """Return which method is run with which encoding, at a scale."""
    points = [point for name in ("encodings", "paper") for point in EXPERIMENTS[name].points if point.scale == scale]
    return {(point.run.method.name, point.run.model.positions.name) for point in points}


def encodings_of(method: str) -> Callable[[Groups], Figure]:
    """Return the figure of the share solved by size, for a method's best configuration of each encoding."""

    def draw(groups: Groups) -> Figure:
        found = some(_best_by_encoding(groups, method))
        figure, axes = column_figure(2.6)
        for name, scores in found.items():
            by_size(axes, scores, ENCODING_LOOKS[name])
        size_axes(axes, found.values())
        axes.set_ylabel(SOLVED)
        legend_above(figure, [*(entry(ENCODING_LOOKS[name]) for name in found), trained_patch()], 3)
        return figure

    return draw


def architectures(family: str) -> Callable[[Groups], Figure]:
    """Return the figure of the best configuration of each architecture: iterations T, layers L."""

    def draw(groups: Groups) -> Figure:
        found: dict[tuple[str, int, int], list[Scores]] = {}
        for method in FAMILIES[family]:
            first = own(groups, method)
            for scores in of_methods(groups, [method]):
                if first and comparable(scores, first):
                    key = method, scores.labels["iterations"] or 0, scores.labels["layers"]
                    found.setdefault(key, []).append(scores)
        chosen = {key: least_loss(candidates) for key, candidates in sorted(some(found).items(), key=_by_depth)}
        figure, axes = column_figure(3.0)
        handles: list[Any] = []
        for (method, iterations, layers), scores in chosen.items():
            settings = _architecture_look(family, method, layers, [key[1] * key[2] for key in chosen], iterations)
            by_size(axes, scores, METHOD_LOOKS[method], **settings)
            name = f"L{layers}" if not iterations else f"T{iterations}L{layers}"
            label = name if family == "chain of thought" else f"{SHORT.get(method, method)} {name}"
            handles.append(entry(METHOD_LOOKS[method], **settings | {"label": label}))
        size_axes(axes, chosen.values())
        axes.set_ylabel(SOLVED)
        legend_above(figure, [*handles, trained_patch()], 3)
        return figure

    return draw


def _by_depth(item: tuple[tuple[str, int, int], list[Scores]]) -> tuple[int, int, int]:
    method, iterations, layers = item[0]
    return list(METHOD_LOOKS).index(method), iterations * layers, layers


def _architecture_look(family: str, method: str, layers: int, depths: Sequence[int], iterations: int) -> dict[str, Any]:
    """Return how an architecture is drawn: by its depth T x L, or where iterations adapt by its layers."""
    if family == "latent":
        return {"linestyle": "-" if layers > 2 else (0, (3, 1.5)), "markerfacecolor": "white" if layers == 2 else None}
    return {
        "color": shades(depths)[iterations * layers],
        "linestyle": (0, (3, 1.5)) if method == "feedforward" else "-",
    }


def entropy(groups: Groups) -> Figure:
    """Draw the entropy of attention by size, by method and by encoding."""
    by_method = some({m: s for m in METHOD_LOOKS if (s := best(groups, m)) and s.results[0]["entropy"]})
    by_encoding = _best_by_encoding(groups, "feedforward")
    panels: list[tuple[str, dict[str, Scores], dict[str, Look]]] = [("by method", by_method, METHOD_LOOKS)]
    if by_encoding:
        panels.append(("feedforward, by encoding", by_encoding, ENCODING_LOOKS))
    figure, everywhere = page_figure(2.6, 1, len(panels), sharey=True)
    for axes, (title, found, looks) in zip(everywhere, panels, strict=True):
        for name, scores in found.items():
            _entropy_line(axes, scores, looks[name])
        axes.set_title(title)
        size_axes(axes, found.values(), percent=False)
        axes.legend(handles=[entry(looks[name]) for name in found], loc="lower right", ncols=2)
    everywhere[0].set_ylabel("entropy of attention, nats")
    everywhere[0].set_ylim(bottom=0)
    return figure


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
        handles.append(entry(METHOD_LOOKS["corrected"], **style, label=f"{layers} layers", markersize=5.0))
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
    kinds = {key: place for place, key in enumerate(dict.fromkeys((s.method, *taken_away(s)) for s in groups.values()))}
    found = sorted(
        some(groups.values()), key=lambda scores: (kinds[scores.method, *taken_away(scores)], few_names(scores))
    )
    figure, (axes,) = page_figure(0.6 + 0.2 * len(found))
    _inside_and_outside(axes, found, [_first_names(scores) for scores in found])
    axes.set_xlabel(f"{SOLVED}, average")
    legend_above(figure, _inside_and_outside_entries(), 2)
    return figure


def _first_names(scores: Scores) -> str:
    """Name a configuration by its method, its training aids and its curriculum."""
    method = METHOD_LOOKS[scores.method].label
    away = taken_away(scores)
    words = ["few names first"] if few_names(scores) else []
    words += [] if scores.method != "discrete" else ["no read-outs" if away == ["read-outs"] else "plain"]
    return f"{method}: {', '.join(words[::-1])}" if words else method


def _inside_and_outside(axes: Axes, found: Sequence[Scores], labels: Sequence[str]) -> None:
    """Draw a row for each configuration: its average in distribution hollow, and beyond it filled."""
    for place, scores in enumerate(found):
        color = METHOD_LOOKS[scores.method].color
        for sizes, face in ((scores.inside, "white"), (scores.outside, color)):
            low, high = spread(scores, sizes)
            axes.plot([100 * low, 100 * high], [place] * 2, color=color, linewidth=1.0, zorder=2)
            axes.plot(
                100 * scores.average(sizes), place, color=color, marker="o", markersize=5,
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
    away = taken_away(scores) or ["look-up head\nand window"]
    return "no " + ",\nno ".join(away) + (",\nfew names first" if few_names(scores) else "")
