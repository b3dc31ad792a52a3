"""Figures that compare methods: accuracy by size, iterations, operations, what is allowed, halting, learning."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from latentloop.config.train import Stage
from latentloop.experiments.scores import CONFIGURATIONS, Scores
from latentloop.experiments.store import ALLOWED_PROBLEMS
from latentloop.experiments.table import EXPERIMENTS, FEW_NAMES
from latentloop.methods import METHODS
from latentloop.report.ladder_parts import (
    SOLVED,
    Groups,
    band,
    best,
    by_size,
    entry,
    few_names,
    is_plain,
    legend_above,
    line,
    method_entries,
    of_methods,
    own,
    page_figure,
    percent_axis,
    size_axes,
    some,
    spread,
    spread_of,
    taken_away,
    trained_patch,
)
from latentloop.report.palette import ENCODING_LOOKS, METHOD_LOOKS, OTHERS, Look, shades

LONGER: dict[str, Any] = {"linestyle": (0, (4, 2)), "markerfacecolor": "white", "markeredgewidth": 0.9, "zorder": 4}
"""How more than the usual budget is drawn."""
PRESET: dict[str, Any] = {"linestyle": (0, (1, 1)), "linewidth": 0.9, "markersize": 2.2, "zorder": 2.5}
"""How a method's own preset is drawn, where another configuration has a lower validation loss."""
RULES = {
    "fixpoint": Look(label="fixed point (ours)", color="#6a3d00", marker="X"),
    "depth": Look(label="depth", color="#b8860b", marker="p"),
    "paper": Look(label="largest depth + 1 (paper)", color="#5c8f9e", marker="h"),
    "2x": Look(label="2x depth", color="#b8b8b8", marker="<"),
    "4x": Look(label="4x depth", color="#757575", marker=">"),
}
"""How halting rules are drawn: unlike any method."""
FAILURES: dict[str, tuple[str, Any]] = {
    "false_halts": ("wrong fixed point", "-"),
    "cycles": ("cycle", "--"),
    "caps": ("did not halt", ":"),
}


def best_of_each(groups: Groups) -> dict[str, Scores]:
    """Return every method's point with the lowest validation loss."""
    found = {method: best(groups, method) for method in METHOD_LOOKS}
    return {method: scores for method, scores in found.items() if scores}


def with_longer(groups: Groups, methods: Iterable[str]) -> list[Scores]:
    """Return the point of each method that has more than the usual budget: of several, that most like its best one."""
    found = []
    for method in methods:
        longer = [s for s in of_methods(groups, [method]) if s.labels["budget"] > 1 and s.labels["scale"] == "laptop"]
        first = best(groups, method)
        alike = [scores for scores in longer if first and scores.labels["encoding"] == first.labels["encoding"]]
        found += (alike or longer)[:1]
    return found


def _presets(groups: Groups, chosen: Mapping[str, Scores]) -> dict[str, Scores]:
    """Return the presets' points of methods for which another configuration is chosen."""
    firsts = {method: own(groups, method) for method in chosen}
    return {method: first for method, first in firsts.items() if first and first is not chosen[method]}


def _preset_entry(presets: Mapping[str, Scores]) -> list[Line2D]:
    """Return the legend's entry of presets, if there are any."""
    return [entry(Look(label="its preset", color="#666666", marker="o"), **PRESET)] if presets else []


def _adaptive(groups: Groups, choose: Callable[[Groups, str], Scores | None]) -> dict[str, Scores]:
    """Return a point of each method that adapts, and those with more than the usual budget, by the title of their panel."""
    chosen: dict[str, Scores] = {}
    for method, look in METHOD_LOOKS.items():
        first = choose(groups, method) if METHODS[method].adaptive else None
        if first:
            for scores, more in [
                (first, ""),
                *((s, f", {s.labels['budget']:g}x") for s in with_longer(groups, [method])),
            ]:
                chosen[f"{look.label}{more}\n{ENCODING_LOOKS[scores.labels['encoding']].label}"] = scores
    return chosen


def methods(groups: Groups) -> Figure:
    """Draw the share solved by size, a panel for each method: its own line, and those of the others in gray."""
    chosen = some(best_of_each(groups))
    longer = with_longer(groups, chosen)
    presets = _presets(groups, chosen)
    columns = min(4, len(chosen))
    rows = -(-len(chosen) // columns)
    figure, panels = page_figure(1.65 * rows + 0.45, rows, columns, sharex=True, sharey=True)
    for axes, (method, scores) in zip(panels, chosen.items(), strict=False):
        look = METHOD_LOOKS[method]
        for other in chosen.values():
            by_size(axes, other, OTHERS, with_band=False, marker="", linewidth=0.7, zorder=1.5)
        if method in presets:
            by_size(axes, presets[method], look, with_band=False, **PRESET)
        by_size(axes, scores, look)
        for more in (one for one in longer if one.method == method):
            by_size(axes, more, look, **LONGER)
        seeds = f"{len(scores.results)} seed{'s' if len(scores.results) > 1 else ''}"
        about = f"few names first, {seeds}" if few_names(scores) else seeds
        axes.set_title(f"{look.label}\n{scores.labels['model']}\n{about}")
        size_axes(axes, [*chosen.values(), *longer], label=False)
    for axes in panels[len(chosen) :]:
        axes.set_axis_off()
    for axes in panels[max(0, len(chosen) - columns) : len(chosen)]:  # the lowest of each column
        axes.set_xlabel("nodes in the graph, N")
        axes.tick_params(axis="x", labelbottom=True)
    for axes in panels[::columns]:
        axes.set_ylabel("solved, %")
    handles = [
        entry(Look(label="the method", color="#666666", marker="o")),
        *_preset_entry(presets),
        *_longer_entry(longer),
        entry(OTHERS, marker="", linewidth=0.7),
        trained_patch(),
    ]
    legend_above(figure, handles, len(handles))
    return figure


def iterations(groups: Groups) -> Figure:
    """Draw the share solved after each iteration, a line for each size, a panel for each adaptive method."""
    chosen = some(_adaptive(groups, best))
    figure, panels = page_figure(2.2, 1, len(chosen), sharey=True, sharex=True)
    sizes = sorted({nodes for scores in chosen.values() for nodes in scores.sizes})
    colors = shades(sizes)
    last = 1
    for axes, (title, scores) in zip(panels, chosen.items(), strict=True):
        for nodes in scores.sizes:
            curves = [result["curves"][str(nodes)]["solved_by_iteration"] for result in scores.results]
            shares = [[curve[min(t, len(curve) - 1)] for curve in curves] for t in range(max(map(len, curves)))]
            middle = [median(of_seeds) for of_seeds in shares]
            axes.plot(range(len(middle)), [100 * share for share in middle], color=colors[nodes], linewidth=1.0)
            ends = [spread_of(of_seeds, scores.rows(nodes)[0]["problems"]) for of_seeds in shares]
            band(axes, range(len(ends)), ends, colors[nodes])
            last = max(last, next(t for t, share in enumerate(middle) if share >= 0.99 * max(middle)))
        axes.set_title(title)
        axes.set_xlabel("iterations")
        percent_axis(axes)
    panels[0].set_xlim(0, 1.3 * last)
    panels[0].set_ylabel(SOLVED)
    palette = ListedColormap([colors[nodes] for nodes in sizes])
    norm = BoundaryNorm([place - 0.5 for place in range(len(sizes) + 1)], len(sizes))
    every = 1 if len(sizes) < 5 else 2
    bar = figure.colorbar(
        ScalarMappable(norm, palette), ax=panels, ticks=range(0, len(sizes), every), aspect=14, pad=0.01
    )
    bar.ax.set_yticklabels([str(nodes) for nodes in sizes[::every]])
    bar.ax.tick_params(length=0)
    bar.set_label("nodes, N")
    return figure


def _three_sizes(chosen: Mapping[str, Scores]) -> list[int]:
    """Return the largest size trained on, twice and four times as large, as far as they were tested."""
    first = next(iter(chosen.values()))
    wanted = [times * first.labels["trained_to"] for times in (1, 2, 4)]
    return [nodes for nodes in wanted if nodes in first.sizes] or first.sizes[-1:]


def compute(groups: Groups) -> Figure:
    """Draw the share solved against the operations that one problem takes, a panel for each size."""
    chosen = some(best_of_each(groups))
    sizes = _three_sizes(chosen)
    figure, panels = page_figure(2.5, 1, len(sizes), sharey=True, sharex=True)
    points: list[tuple[str, Scores, dict[str, Any]]] = [(method, scores, {}) for method, scores in chosen.items()]
    presets = _presets(groups, chosen)
    points += [(method, scores, PRESET) for method, scores in presets.items()]
    longer = with_longer(groups, chosen)
    points += [(scores.method, scores, LONGER) for scores in longer]
    for axes, nodes in zip(panels, sizes, strict=True):
        for method, scores, settings in points:
            look = METHOD_LOOKS[method]
            operations = scores.solved(nodes, "operations") / 1e6
            low, high = spread(scores, [nodes])
            axes.plot([operations] * 2, [100 * low, 100 * high], color=look.color, linewidth=1.0, zorder=2)
            size = (9.0 if look.marker == "*" else 6.0) * (0.6 if settings is PRESET else 1)
            line(
                axes, [operations], [scores.solved(nodes)], look, **settings | {"markersize": size, "linestyle": "none"}
            )
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")
        axes.xaxis.set_minor_formatter("")
        axes.set_title(f"N = {nodes}")
        percent_axis(axes)
    panels[len(panels) // 2].set_xlabel("million operations per problem (log scale)")
    panels[0].set_ylabel(SOLVED)
    handles = [*method_entries(groups, chosen), *_preset_entry(presets), *_longer_entry(longer)]
    for handle in handles:
        handle.set_linestyle("none")
    legend_above(figure, handles, 3)
    return figure


def allowed(groups: Groups) -> Figure:
    """Draw the share solved when a model is allowed 1, 2, 4 and 16 times the iterations it needs."""
    usual = some({method: scores for method, scores in best_of_each(groups).items() if scores.results[0]["allowed"]})
    longer = [scores for scores in with_longer(groups, usual) if scores.results[0]["allowed"]]
    presets = _presets(groups, usual)
    chosen = [*((scores, {}) for scores in usual.values()), *((scores, LONGER) for scores in longer)]
    chosen += [(scores, PRESET) for scores in presets.values()]
    chosen.sort(key=lambda pair: list(METHOD_LOOKS).index(pair[0].method))
    sizes = sorted({int(nodes) for scores, _ in chosen for nodes in scores.results[0]["allowed"]})
    figure, panels = page_figure(2.5, 1, len(sizes), sharey=True)
    apart = min(0.11, 0.75 / len(chosen))  # many are equal, so they are drawn side by side
    for axes, nodes in zip(panels, sizes, strict=True):
        for place, (scores, settings) in enumerate(chosen):
            shares = [result["allowed"][str(nodes)] for result in scores.results]
            times = list(shares[0])
            found = [[share[name] for share in shares] for name in times]
            look = METHOD_LOOKS[scores.method]
            beside = [number + apart * (place - (len(chosen) - 1) / 2) for number in range(len(times))]
            line(axes, beside, [median(values) for values in found], look, **settings)
            if settings is not PRESET:
                band(axes, beside, [spread_of(values, ALLOWED_PROBLEMS) for values in found], look.color)
            axes.set_xticks(range(len(times)), times)
        axes.set_title(f"N = {nodes}")
        percent_axis(axes)
    panels[len(panels) // 2].set_xlabel("iterations allowed, as multiples of those needed")
    panels[0].set_ylabel(SOLVED)
    handles = [*method_entries(groups, usual), *_preset_entry(presets), *_longer_entry(longer)]
    legend_above(figure, handles, -(-len(handles) // 2))
    return figure


def _longer_entry(longer: Iterable[Scores]) -> list[Line2D]:
    """Return the legend's entry of points with more than the usual budget, if there are any."""
    times = sorted({scores.labels["budget"] for scores in longer})
    return [entry(Look(label=f"{budget:g}x the budget", color="#666666", marker="o"), **LONGER) for budget in times]


def halting(groups: Groups) -> Figure:
    """Draw the share solved under each halting rule; below how the fixed-point rule fails, and how long it takes."""
    chosen = some(_adaptive(groups, own))
    count = len(chosen)
    figure, panels = page_figure(5.4, 3, count, sharex=True, sharey="row")
    upper, middle, lower = panels[:count], panels[count : 2 * count], panels[2 * count :]
    for top, between, bottom, (title, scores) in zip(upper, middle, lower, chosen.items(), strict=True):
        for place, (rule, look) in enumerate(reversed(RULES.items())):
            by_size(
                top,
                scores,
                look,
                kind=f"solved_{rule}",
                with_band=rule == "fixpoint",  # five of them, mostly equal, would be one gray
                linewidth=1.0,
                markevery=(place, len(RULES)),
                zorder=3 + place,
            )
        for failure, (_, style) in FAILURES.items():
            shares = [100 * scores.solved(nodes, failure) for nodes in scores.sizes]
            between.plot(scores.sizes, shares, color="#444444", linestyle=style)
            band(between, scores.sizes, [spread(scores, [nodes], failure) for nodes in scores.sizes], "#444444")
        exact = "\n(approximate)" if scores.results[0]["approximate_fixpoint"] else ""
        top.set_title(title + exact)
        for axes in (top, between):
            size_axes(axes, [scores], label=False)
        bottom.plot(
            scores.sizes, [scores.solved(nodes, "iterations_by_depth") for nodes in scores.sizes], color="#444444"
        )
        size_axes(bottom, [scores], percent=False, label=False)
        bottom.set_xlabel("nodes, N")
    lower[0].set_yscale("log")
    lower[0].yaxis.set_major_locator(FixedLocator([1, 2, 4, 8, 16]))
    lower[0].yaxis.set_major_formatter("{x:g}")
    lower[0].yaxis.set_minor_locator(NullLocator())
    lower[0].set_ylim(0.9, max(2.2, lower[0].get_ylim()[1]))
    upper[0].set_ylabel(SOLVED)
    middle[0].set_ylabel("fixed-point rule fails, %")
    lower[0].set_ylabel("iterations / depth")
    rules = [entry(look, linewidth=1.0) for look in RULES.values()]
    failures = [Line2D([], [], color="#444444", linestyle=style, label=name) for name, style in FAILURES.values()]
    legend_above(figure, [*rules, *failures], len(rules))
    return figure


def problems_seen(curriculum: Sequence[str], training: Mapping[str, Any]) -> list[float]:
    """Return how many problems a run had seen at each point of its curve: stages of a curriculum may have larger batches."""
    parts = [(stage.share, stage.times) for stage in map(Stage.read, curriculum)]
    parts.append((1 - sum(share for share, _ in parts), 1))

    def batches(done: float) -> float:
        """Return the batches, of the run's own size, in a share of the steps."""
        found, begin = 0.0, 0.0
        for share, times in parts:
            found += times * min(max(done - begin, 0.0), share)
            begin += share
        return found

    shares = [step / training["steps"] for step in training["curve"]["step"]]
    return [training["problems"] * batches(done) / batches(1.0) for done in shares]


def _curve(axes: Axes, scores: Scores, kind: str, **settings: Any) -> None:
    """Draw what each seed learns, against the problems seen."""
    for result in scores.results:
        training, curve = result["training"], result["training"]["curve"]
        if kind in curve:
            seen = [problems / 1000 for problems in problems_seen(scores.labels["curriculum"], training)]
            shares = [None if share is None else 100 * share for share in curve[kind]]
            axes.plot(seen, shares, **settings)  # pyrefly: ignore


CHOSEN = "lowest validation loss"
VARIANTS: dict[str, dict[str, Any]] = {
    "the ladder's own settings": {"linestyle": "-", "linewidth": 0.8},
    CHOSEN: {"linestyle": (0, (6, 1, 1, 1, 1, 1)), "linewidth": 1.2},
    "few names first": {"linestyle": (0, (6, 1.5)), "linewidth": 1.6, "alpha": 0.6},
    "4x the budget, or more": {"linestyle": (0, (4, 2)), "linewidth": 1.1},
    "without read-outs": {"linestyle": (0, (1, 1)), "linewidth": 1.2},
    "plain: without any training aid": {"linestyle": (0, (5, 1, 1, 1)), "linewidth": 1.2},
}


def _variant(scores: Scores) -> str | None:
    """Return which line of its method's panel a point is, if any."""
    away = taken_away(scores)
    if scores.labels["budget"] > 1:
        return "4x the budget, or more"
    if scores.name in (scores.method, f"paper-{scores.method}"):
        return "the ladder's own settings"
    if few_names(scores):
        return "few names first" if FEW_NAMES.keys() >= set(scores.labels["overrides"]) else None
    if away == ["read-outs"]:
        return "without read-outs"
    return "plain: without any training aid" if is_plain(scores) else None


def learning(groups: Groups) -> Figure:
    """Draw learning curves, a panel for each method."""
    present = some([method for method in METHOD_LOOKS if of_methods(groups, [method])])
    columns = min(4, len(present))
    rows = -(-len(present) // columns)
    figure, panels = page_figure(1.45 * rows + 0.6, rows, columns, sharey=True)
    compared = {point.name for name in CONFIGURATIONS for point in EXPERIMENTS[name].points}
    candidates = {name: s for name, s in groups.items() if name in compared or s.labels["scale"] != "laptop"}
    shown: set[str] = set()
    for axes, method in zip(panels, present, strict=False):
        for scores in of_methods(groups, [method]):
            variant = _variant(scores) or (CHOSEN if scores is best(candidates, method) else None)
            if variant:
                shown.add(variant)
                kind = "right_number" if method == "cot" else "right_three"
                _curve(axes, scores, kind, color=METHOD_LOOKS[method].color, **VARIANTS[variant])
        axes.set_title(METHOD_LOOKS[method].label + ("\n(all numbers)" if method == "cot" else ""))
        axes.set_xlim(left=0)
        percent_axis(axes)
    for axes in panels[len(present) :]:
        axes.set_axis_off()
    for axes in panels[max(0, len(present) - columns) : len(present)]:
        axes.set_xlabel("problems seen, thousands")
    for axes in panels[::columns]:
        axes.set_ylabel("values right, %")
    handles = [Line2D([], [], color="#444444", label=name, **VARIANTS[name]) for name in VARIANTS if name in shown]
    legend_above(figure, handles, 3)
    return figure


def plain(groups: Groups) -> Figure:
    """Draw the learning curves of equations with one, two and three operands, a panel for each run."""
    found = some(list(groups.values()))
    figure, panels = page_figure(2.4, 1, len(found), sharey=True)
    styles: dict[str, dict[str, Any]] = {"one": {"linestyle": ":"}, "two": {"linestyle": "--"}, "three": {}}
    words = {"one": "one operand", "two": "two", "three": "three"}
    for axes, scores in zip(panels, found, strict=True):
        for number, style in styles.items():
            _curve(axes, scores, f"right_{number}", color=METHOD_LOOKS[scores.method].color, **style)
        begun = "\n(goes on with given weights)" if "start" in scores.labels["overrides"] else ""
        axes.set_title(scores.name + begun)
        axes.set_xlabel("problems seen, thousands")
        axes.set_xlim(left=0)
        percent_axis(axes)
    panels[0].set_ylabel("values right in training, %")
    color = METHOD_LOOKS[found[0].method].color
    legend_above(figure, [Line2D([], [], color=color, label=words[name], **styles[name]) for name in words], 3)
    return figure
