"""Problems, solutions and tokens as tables for a terminal."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from jaxtyping import Int8
from numpy import ndarray
from rich.table import Table
from rich.text import Text

from latentloop.config import RunConfig
from latentloop.task.graph import EMPTY, Problems
from latentloop.task.oracle import Solution
from latentloop.task.text import equation_text
from latentloop.tokens.factored import Tokens, factor_rows
from latentloop.tokens.vocabulary import FACTORS, Vocabulary

EMPTY_MARK = "·"
MOST_ITERATIONS = 128


def plain_table(*columns: str, title: str | None = None) -> Table:
    """Make a table in the house style: no box but a rule under the heads."""
    table = Table(box=None, header_style="bold", title=title, title_justify="left", title_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def layer_table(problems: Problems, solution: Solution, row: int = 0) -> Table:
    """Show a problem's solution layer by layer: what each iteration of the algorithm computes."""
    table = plain_table("iteration", "equation", "value")
    depths = solution.depths[row, : problems.sizes[row]]
    for node, depth in enumerate(depths):
        first = node == 0 or depth != depths[node - 1]
        value = Text(str(solution.values[row, node]), style="bold cyan")
        table.add_row(str(depth) if first else "", equation_text(problems, row, node), value)
    return table


def trace_tables(
    problems: Problems, states: Int8[ndarray, "iteration batch node"], *, truth: ndarray | None = None, width: int = 80
) -> Iterator[Table]:
    """Show values by iteration, in as many tables as the width asks for; with the truth, wrong ones are marked.

    Of a very long trace only some iterations are shown, evenly spaced.
    """
    labels = [equation_text(problems, 0, node) for node in range(problems.sizes[0])]
    shown = np.unique(np.linspace(0, len(states) - 1, min(len(states), MOST_ITERATIONS)).astype(int))
    digits = max(len(str(shown[-1])), 2)
    room = max(4, (width - max(map(len, labels)) - 10) // (digits + 2))
    for start in range(0, len(shown), room):
        columns = shown[start : start + room]
        table = plain_table("equation", *map(str, columns), *(["oracle"] if truth is not None else []))
        for node, label in enumerate(labels):
            before = int(states[shown[start - 1], 0, node]) if start else EMPTY
            right = None if truth is None else int(truth[0, node])
            cells = list(_history(before, states[columns, 0, node].tolist(), right))
            table.add_row(label, *cells, *([] if right is None else [str(right)]))
        yield table


def _history(before: int, values: Iterable[int], truth: int | None) -> Iterator[Text]:
    """Show one node's values: new ones bright, wrong ones red."""
    for value in values:
        wrong = truth is not None and value not in (truth, EMPTY)
        shown = EMPTY_MARK if value == EMPTY else f"{value}!" if wrong else str(value)
        yield Text(shown, style="bold red" if wrong else "dim" if value == before else "bold cyan")
        before = value


def evaluation_table(document: dict[str, Any]) -> Table:
    """Show an evaluation, a row for each size."""
    model, approximate = document["model"], document["approximate_fixpoint"]
    halt = f"{document['settings']['halt']}{' (approximate)' if approximate else ''}"
    title = f"{model['method']} {model['name']}, {halt}; validation loss {document['validation']['loss']:.2g}"
    table = plain_table("nodes", "solved %", "95 %", "values %", "iter.", "/ depth", title=title)
    extra = {"false_halts": "false %", "cycles": "cycle %", "caps": "cap %", "structure_right": "structure %"}
    extra = {key: head for key, head in extra.items() if any(row.get(key) is not None for row in document["rows"])}
    for head in extra.values():
        table.add_column(head)
    for row in document["rows"]:
        interval = f"{100 * row['solved_low']:.1f}-{100 * row['solved_high']:.1f}"
        cells = [f"{row['nodes']}", f"{100 * row['solved']:.2f}", interval, f"{100 * row['nodes_right']:.2f}"]
        cells += [f"{row['iterations']:.1f}", f"{row['iterations_by_depth']:.2f}"]
        table.add_row(*cells, *(f"{100 * row[key]:.2f}" for key in extra))
    table.add_row("mean", f"{100 * document['average']:.2f}")
    return table


def certificate_table(document: dict[str, Any]) -> Table:
    """Show a certificate: entries, wrong ones and margins by pattern and size, and how clearly look-ups find their key."""
    model = document["model"]
    heads = ("nodes", "equation", "entries", "wrong", "smallest margin", "median margin")
    table = plain_table(*heads, title=f"{model['method']} {model['name']}: every entry of the arithmetic")
    for size in document["sizes"]:
        for name, found in size["patterns"].items():
            margins = f"{found['smallest_margin']:.2f}", f"{found['median_margin']:.2f}"
            table.add_row(str(size["nodes"]), name, f"{found['entries']:,}", str(found["wrong"]), *margins)
        looked = size["lookup"]
        margins = f"{looked['smallest_margin']:.2f}", f"{looked['median_margin']:.2f}"
        table.add_row(str(size["nodes"]), "look-up", "", "", *margins)
    return table


def verdict(document: dict[str, Any], most: int = 10) -> str:
    """Say in a line what a certificate found, and in one more for each of the first entries that are wrong."""
    lines = []
    for size in document["sizes"]:
        lines.append(f"{size['nodes']} nodes: {len(size['wrong'])} of {size['entries']:,} entries wrong")
        lines += [
            f"  {entry['pattern']} of {', '.join(map(str, entry['operands']))}: says {entry['said']}"
            for entry in size["wrong"][:most]
        ]
        if len(size["wrong"]) > most:
            lines.append(f"  and {len(size['wrong']) - most:,} more")
    return "\n".join(lines)


def stress_table(document: dict[str, Any]) -> Table:
    """Show a stress test, a row for each scenario."""
    model = document["model"]
    heads = (
        "scenario",
        "nodes",
        "problems",
        "solved %",
        "4x %",
        "iterations",
        "/ depth",
        "false halts",
        "cycles",
        "caps",
    )
    table = plain_table(*heads, title=f"{model['method']} {model['name']}: where it was not trained")
    for row in document["rows"]:
        shares = [f"{100 * row[key]:.2f}" for key in ("solved", "solved_4x")]
        counts = [f"{row[key] * row['problems']:.0f}" for key in ("false_halts", "cycles", "caps")]
        spent = [f"{row['iterations']:.1f}", f"{row['iterations_by_depth']:.2f}"]
        table.add_row(row["scenario"], str(row["nodes"]), str(row["problems"]), *shares, *spent, *counts)
    return table


def presets_table(presets: Mapping[str, RunConfig], costs: Mapping[str, Any]) -> Table:
    """Show named runs and what they cost."""
    heads = ("preset", "method", "model", "parameters", "tokens a step", "GFLOP a step", "steps", "two cores")
    table = plain_table(*heads)
    for name, run in presets.items():
        cost = costs[name]
        hours = cost.hours_on_two_cores
        units = (1 / 60, 3600, "s"), (1, 60, "min"), (48, 1, "h"), (float("inf"), 1 / 24, "days")
        time = next(f"{hours * factor:.0f} {unit}" for below, factor, unit in units if hours < below)
        work = (
            f"{cost.flops_per_step / 1e9:,.2g}" if cost.flops_per_step < 1e10 else f"{cost.flops_per_step / 1e9:,.0f}"
        )
        figures = (f"{cost.parameters:,}", f"{cost.tokens_per_step:,}", work, f"{cost.steps:,}", time)
        table.add_row(name, run.method, run.model.name, *figures)
    return table


def token_table(tokens: Tokens, vocabulary: Vocabulary, row: int = 0, *, start: int = 0, limit: int = 24) -> Table:
    """Show some tokens of a problem, split into factors."""
    rows = factor_rows(tokens, vocabulary, row)
    table = plain_table("position", *FACTORS)
    for place in range(start, min(start + limit, len(rows))):
        table.add_row(str(place), *rows[place])
    table.add_row("...", f"{len(rows)} in all")
    return table
