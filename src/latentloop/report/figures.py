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


def results_figure(models: Mapping[str, Sequence[dict[str, Any]]]) -> Figure:
    """Draw % fully solved by size, a panel for each model: the shipped weights first, then other seeds of the same recipe.

    Intervals are those of the shipped weights, at 95 %. Sizes trained on are shaded.
    """
    figure = Figure(figsize=(10.5, 4.4), layout="constrained")
    panels = figure.subplots(1, len(models), sharex=True, sharey=True, squeeze=False)[0]
    sizes = sorted({row["nodes"] for documents in models.values() for one in documents for row in one["rows"]})
    left, right = min(sizes) / 6, max(sizes) * 1.25
    for axes, (name, documents) in zip(panels, models.items(), strict=True):
        about = documents[0]["model"]
        trained_to = about["config"]["graph"]["nodes"]
        axes.axvspan(left, trained_to, color="#dfe8f3", zorder=0, linewidth=0)
        axes.text(left * 1.1, 5, f"trained:\nN ≤ {trained_to}", fontsize=12, color="#35587f")
        names = about["config"]["task"]["names"]
        if names < max(sizes):
            axes.text(right / 1.1, 50, f"{names} names:\nno larger\ngraphs", fontsize=12, color="#777777", ha="right")
        rows = documents[0]["rows"]
        shares = [100 * row["solved"] for row in rows]
        below = [100 * (row["solved"] - row["solved_low"]) for row in rows]
        above = [100 * (row["solved_high"] - row["solved"]) for row in rows]
        axes.errorbar(
            [row["nodes"] for row in rows], shares, yerr=[below, above],
            color="#1f5fa8", marker="o", markersize=5, linewidth=1.6, capsize=3,
            label="seed 0 (shipped), 95 % interval", zorder=3,
        )  # fmt: skip
        for number, document in enumerate(documents[1:]):
            axes.plot(
                [row["nodes"] for row in document["rows"]], [100 * row["solved"] for row in document["rows"]],
                color="#d9822b", linestyle="none", marker="o", markersize=10, markerfacecolor="none",
                label=None if number else "other seeds", zorder=4,
            )  # fmt: skip
        axes.set_title(f"{name}\n{' '.join(about['config']['task']['operations'])}", fontsize=13)
        axes.set_xscale("log", base=2)
        axes.set_xlim(left, right)
        axes.set_ylim(0, 106)
        axes.set_xticks([size for size in sizes if size & (size - 1) == 0])
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.tick_params(labelsize=11.5)
        axes.tick_params(axis="x", rotation=45)
        axes.grid(color="#dddddd", linewidth=0.7)
        axes.spines[["top", "right"]].set_visible(False)
    handles, labels = panels[0].get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda place: "seed 0" not in labels[place])
    figure.legend(
        [handles[place] for place in order], [labels[place] for place in order],
        loc="outside upper center", ncols=2, frameon=False, fontsize=12,
    )  # fmt: skip
    figure.supxlabel("nodes in the graph (log scale)", fontsize=13)
    figure.supylabel("problems fully solved, %", fontsize=13)
    return figure


def ablation_figure(results: Mapping[str, Sequence[dict[str, Any]]], base: str) -> Figure:
    """Draw learning curves, a panel for each choice: its runs in color over those of the base in gray."""
    names = [name for name in results if name != base]
    columns = min((4, 3), key=lambda each: -len(names) % each)  # fewest empty places
    rows = max(1, -(-len(names) // columns))
    figure = Figure(figsize=(11, 1.9 * rows + 0.5), layout="constrained")
    panels = list(figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat)
    for axes, name in zip(panels, names, strict=False):
        for runs, color, width in ((results[base], "#b8b8b8", 1.0), (results[name], "#c2452d", 1.3)):
            for run in runs:
                asked = [row for row in run["curve"] if "right_three" in row]
                times, shares = [row["share"] for row in asked], [100 * row["right_three"] for row in asked]
                axes.plot(times, shares, color=color, linewidth=width)
        axes.set_title(name, fontsize=10)
        axes.set_ylim(0, 103)
        axes.grid(color="#e4e4e4", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in panels[len(names) :]:
        axes.set_axis_off()
    for axes in panels[max(0, len(names) - columns) : len(names)]:  # the lowest one of each column
        axes.tick_params(labelbottom=True)
    figure.supxlabel("time, % of what every run gets", fontsize=10)
    figure.supylabel("equations of three operands right, %", fontsize=10)
    return figure
