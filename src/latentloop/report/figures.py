"""Figures of stored results: nothing is computed here."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure


def generalization_figure(documents: Mapping[str, dict[str, Any]]) -> Figure:
    """Draw % fully solved by size, one line for each evaluation, with 95 % intervals; what was trained on is shaded."""
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.add_subplot()
    sizes = sorted({row["nodes"] for document in documents.values() for row in document["rows"]})
    trained_to = max(document["model"]["config"]["graph"]["nodes"] for document in documents.values())
    axes.axvspan(min(sizes) - 2, trained_to, color="#e8eef5", zorder=0)
    axes.text(trained_to - 1, 2, "trained on", ha="right", va="bottom", fontsize=9, color="#5b7aa0")
    for label, document in documents.items():
        rows = document["rows"]
        nodes = [row["nodes"] for row in rows]
        (line,) = axes.plot(nodes, [100 * row["solved"] for row in rows], marker="o", markersize=4, label=label)
        low, high = ([100 * row[key] for row in rows] for key in ("solved_low", "solved_high"))
        axes.fill_between(nodes, low, high, color=line.get_color(), alpha=0.18, linewidth=0)
    axes.set_xlabel("nodes in the graph")
    axes.set_ylabel("problems fully solved, %")
    axes.set_xlim(min(sizes) - 2, max(sizes) + 2)
    axes.set_ylim(-2, 103)
    axes.set_xticks([n for n in sizes if n % 16 == 0] if len(sizes) > 8 else sizes)
    axes.grid(axis="y", color="#dddddd", linewidth=0.7)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower right" if len(documents) < 4 else "best", frameon=False, fontsize=9, title="95 % intervals")
    return figure


def ablation_figure(results: Mapping[str, Sequence[dict[str, Any]]], base: str) -> Figure:
    """Draw learning curves, a panel for each choice: its runs in color over those of the base in gray."""
    names = [name for name in results if name != base]
    columns = 4
    rows = max(1, -(-len(names) // columns))
    figure = Figure(figsize=(11, 1.9 * rows + 0.5), layout="constrained")
    panels = list(figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat)
    for axes, name in zip(panels, names, strict=False):
        for runs, color, width in ((results[base], "#b8b8b8", 1.0), (results[name], "#c2452d", 1.3)):
            for run in runs:
                asked = [row for row in run["curve"] if "right_three" in row]
                minutes, shares = [row["minutes"] for row in asked], [100 * row["right_three"] for row in asked]
                axes.plot(minutes, shares, color=color, linewidth=width)
        axes.set_title(name, fontsize=10)
        axes.set_ylim(0, 103)
        axes.grid(color="#e4e4e4", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in panels[len(names) :]:
        axes.set_axis_off()
    for axes in panels[max(0, len(names) - columns) : len(names)]:  # the lowest one of each column
        axes.tick_params(labelbottom=True)
    figure.supxlabel("minutes of one core", fontsize=10)
    figure.supylabel("equations of three operands right, %", fontsize=10)
    return figure
