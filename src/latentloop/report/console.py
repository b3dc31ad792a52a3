"""Problems, solutions and results as tables for a terminal, however narrow."""

import math
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from jaxtyping import Int8
from numpy import ndarray
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.segment import Segment
from rich.style import Style
from rich.table import Column, Table
from rich.text import Text

from latentloop.config import RunConfig
from latentloop.task.graph import EMPTY, Problems
from latentloop.task.oracle import Solution
from latentloop.task.text import equation_text

EMPTY_MARK = "·"
MOST_ITERATIONS = 128
NEW = Style(bold=True, color="cyan")
SAME = Style(dim=True)
WRONG = Style(bold=True, color="red")
HEAD = Style(bold=True)


class FittedTable(Table):
    """A table whose cells are never split: where the terminal is too narrow, columns are left out, from the right."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Any]:
        """Render as many columns as fit, and name those that do not."""
        shown = copy(self)
        shown.columns = list(self.columns)
        while len(shown.columns) > 1 and _least_width(shown) > options.max_width:
            shown.columns.pop()
        if left_out := self.columns[len(shown.columns) :]:
            shown.caption = f"no room for: {', '.join(map(_summary, left_out))}"
        yield from Table.__rich_console__(shown, console, options)


def _summary(column: Column) -> str:
    """Return a column's head and, where it holds numbers, the largest: a guard that was hit is never silent."""
    head = str(column.header).replace("\n", " ")
    try:
        largest = max(float(str(cell).replace(",", "")) for cell in column.cells if str(cell).strip())
    except ValueError:  # words, or nothing at all
        return head
    return f"{head} ({'all 0' if largest == 0 else f'up to {largest:g}'})"


def _least_width(table: Table, gap: int = 2, sentence: int = 14) -> int:
    """Return the columns of text a table needs: its first column folded between words, all others as they are."""
    texts = [[str(cell) for cell in (column.header, *column.cells)] for column in table.columns]
    lines, words = ([max(map(cell_len, text.split(by)), default=0) for text in texts[0]] for by in ("\n", None))
    first = max(*words, min(sentence, max(lines)))
    return first + sum(
        gap + max(cell_len(line) for text in column for line in text.split("\n")) for column in texts[1:]
    )


def plain_table(*columns: str, title: str | None = None) -> Table:
    """Make a table in the house style, without lines; the most important columns come first.

    Only the first column, which may hold a sentence, is folded.
    """
    table = FittedTable(
        box=None,
        header_style="bold",
        title=title,
        title_justify="left",
        title_style="bold",
        caption_justify="left",
        pad_edge=False,
    )
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=bool(table.columns))
    return table


def answer_table(problems: Problems, solution: Solution, values: Int8[ndarray, "node"] | None = None) -> Table:
    """Show the first problem of a batch, solved: its equations with the true values, or with a model's.

    Where a model is wrong, its values are marked and the true ones stand beside them.
    """
    truth = solution.values[0, : problems.sizes[0]]
    values = truth if values is None else values
    wrong = values != truth
    table = plain_table("equation", "value", *(["true"] if wrong.any() else []), "depth")
    for node in range(problems.sizes[0]):
        shown = Text(f"{_number(values[node])}{'!' if wrong[node] else ''}", style=WRONG if wrong[node] else NEW)
        right = [str(truth[node])] if wrong.any() else []
        table.add_row(equation_text(problems, 0, node), shown, *right, str(solution.depths[0, node]))
    return table


def _number(value: int | np.integer) -> str:
    return EMPTY_MARK if value == EMPTY else str(value)


def trace_tables(
    problems: Problems,
    states: Int8[ndarray, "iteration batch node"],
    *,
    truth: Int8[ndarray, "batch node"] | None = None,
    width: int = 80,
) -> "Iterator[TraceTable]":
    """Show values by iteration, in as many tables as the width asks for; with the truth, wrong ones are marked.

    Of a very long trace only some iterations are shown, evenly spaced.
    """
    labels = [equation_text(problems, 0, node) for node in range(problems.sizes[0])]
    if max(map(len, labels)) > width // 2:
        labels = [f"x{name}" for name in problems.names[0, : problems.sizes[0]]]
    shown = np.unique(np.linspace(0, len(states) - 1, min(len(states), MOST_ITERATIONS)).astype(int))
    cell = max(len(str(shown[-1])), 2 if truth is None else 3) + 1
    fixed = max(8, *map(len, labels)) + 1 + (0 if truth is None else 4)
    room = max(1, (width - fixed) // cell)
    for start in range(0, len(shown), room):
        columns = shown[start : start + room]
        yield TraceTable(
            labels=labels,
            iterations=columns.tolist(),
            before=states[shown[start - 1], 0] if start else np.full_like(states[0, 0], EMPTY),
            states=states[columns, 0],
            truth=None if truth is None else truth[0],
            cell=cell,
        )


@dataclass(frozen=True, kw_only=True)
class TraceTable:
    """Values of nodes, a row each, after some iterations, a column each: new ones bright, wrong ones red.

    Written to the terminal line by line, because tables of rich take half a minute for a chain of 4,096 nodes.
    """

    labels: list[str]
    iterations: list[int]
    before: Int8[ndarray, "node"]
    """Values after the iteration before the first one shown."""
    states: Int8[ndarray, "iteration node"]
    truth: Int8[ndarray, "node"] | None
    cell: int
    """Characters of a column."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        """Render the head and the rows."""
        margin = max(8, *map(len, self.labels)) + 1
        head = "equation".ljust(margin) + "".join(str(number).ljust(self.cell) for number in self.iterations)
        yield Segment(head + ("" if self.truth is None else "true"), HEAD)
        yield Segment.line()
        for node, label in enumerate(self.labels):
            yield Segment(label.ljust(margin))
            truth = None if self.truth is None else int(self.truth[node])
            cells = self._cells(int(self.before[node]), self.states[:, node].tolist(), truth)
            for style, run in groupby(cells, key=lambda cell: cell[0]):
                yield Segment("".join(text for _, text in run), style)
            if truth is not None:
                yield Segment(str(truth))
            yield Segment.line()

    def _cells(self, before: int, values: list[int], truth: int | None) -> Iterator[tuple[Style, str]]:
        for value in values:
            wrong = truth is not None and value not in (truth, EMPTY)
            style = WRONG if wrong else SAME if value == before else NEW
            yield style, f"{_number(value)}{'!' if wrong else ''}".ljust(self.cell)
            before = value


def model_title(document: dict[str, Any]) -> str:
    """Return the name a model was asked for by, with its method and size."""
    model = document["model"]
    size = f"{model['method']} {model['name']}"
    return f"{model['checkpoint']} ({size})" if "checkpoint" in model else size


def evaluation_table(document: dict[str, Any]) -> Table:
    """Show an evaluation, a row for each size."""
    approximate = " (approximate)" if document["approximate_fixpoint"] else ""
    halt = f"{document['settings']['halt']}{approximate}"
    title = f"{model_title(document)}: halt at {halt}; validation loss {document['validation']['loss']:.2g}"
    heads = ("nodes", "solved %", "95 % interval", "values %", "iterations", "/ depth")
    table = plain_table(*heads, title=title)
    extra = {"false_halts": "false halts %", "cycles": "cycles %", "caps": "caps %", "structure_right": "structure %"}
    unasked = {
        "fixed": ("false_halts", "cycles", "caps"),
        "end": ("false_halts", "cycles"),
    }  # no fixed point was looked for
    for key in unasked.get(document["settings"]["halt"], ()):
        del extra[key]
    extra = {key: head for key, head in extra.items() if any(row.get(key) is not None for row in document["rows"])}
    for head in extra.values():
        table.add_column(head, no_wrap=True)
    for row in document["rows"]:
        interval = f"{100 * row['solved_low']:.1f}-{100 * row['solved_high']:.1f}"
        cells = [f"{row['nodes']}", f"{100 * row['solved']:.2f}", interval, f"{100 * row['nodes_right']:.2f}"]
        cells += [f"{row['iterations']:.1f}", f"{row['iterations_by_depth']:.2f}"]
        table.add_row(*cells, *(f"{100 * row[key]:.2f}" for key in extra))
    table.add_row("mean", f"{100 * document['average']:.2f}")
    return table


def certificate_table(document: dict[str, Any]) -> Table:
    """Show a certificate: entries, wrong ones and margins by pattern and size, and how clearly look-ups find their key."""
    heads = ("nodes", "equation", "wrong", "entries", "smallest\nmargin", "median\nmargin")
    table = plain_table(*heads, title=f"{model_title(document)}: every entry of the arithmetic")
    for size in document["sizes"]:
        for name, found in size["patterns"].items():
            margins = f"{found['smallest_margin']:.2f}", f"{found['median_margin']:.2f}"
            table.add_row(str(size["nodes"]), name, str(found["wrong"]), f"{found['entries']:,}", *margins)
        looked = size["lookup"]
        margins = f"{looked['smallest_margin']:.2f}", f"{looked['median_margin']:.2f}"
        table.add_row(str(size["nodes"]), "look-up", "", "", *margins)
    return table


def verdict(document: dict[str, Any], most: int = 10) -> str:
    """Return in a line what a certificate found, and in one more for each of the first entries that are wrong."""
    lines = []
    for size in document["sizes"]:
        lines.append(f"{size['nodes']} nodes: {len(size['wrong'])} of {size['entries']:,} entries wrong")
        lines += [
            f"  {entry['pattern']} of {', '.join(map(str, entry['operands']))}: says {entry['said']}"
            for entry in size["wrong"][:most]
        ]
        if len(size["wrong"]) > most:
            lines.append(f"  and {len(size['wrong']) - most:,} more")
    if "worst_lookups" in document:
        lines.append(worst_lookups_line(document["worst_lookups"]))
    return "\n".join(lines)


def rounded_down(share: float) -> str:
    """Write a bound from below: never more than it is."""
    return f"{math.floor(10_000 * share) / 10_000:.4f}"


def worst_lookups_line(found: dict[str, Any] | None) -> str:
    """Return in a line each what look-ups find at least in the worst problem and state, and what they do not find."""
    if found is None:
        return "no worst case of look-ups: it needs a first layer without positions, local or nope"
    kinds = {"known": "a definition with a number gets", "empty": "where it is empty, tokens without a number get"}
    lines = ["look-ups in the worst problem and the worst state, share of the attention:"]
    for case, what in kinds.items():
        each = ", ".join(
            f"{rounded_down(least[case])} at {int(nodes):,} nodes" for nodes, least in found["attention"].items()
        )
        largest = found["largest"][case]
        where = "for all of its names" if largest == found["names"] else f"up to {largest:,} nodes"
        lines.append(f"- {what} at least {each}; {found['share']} or more {where}")
    return "\n".join(lines)


def stress_table(document: dict[str, Any]) -> Table:
    """Show a stress test, a row for each scenario."""
    heads = ("scenario", "nodes", "solved %", "problems", "solved % at\n4x the depth", "iterations", "/ depth")
    counted = ("false halts", "cycles", "caps")
    table = plain_table(*heads, *counted, title=f"{model_title(document)}: where it was not trained")
    for row in document["rows"]:
        solved = f"{100 * row['solved']:.2f}"
        longer = f"{100 * row['solved_4x']:.2f}"
        counts = [f"{row[key] * row['problems']:.0f}" for key in ("false_halts", "cycles", "caps")]
        spent = [f"{row['iterations']:.1f}", f"{row['iterations_by_depth']:.2f}"]
        table.add_row(row["scenario"], str(row["nodes"]), solved, str(row["problems"]), longer, *spent, *counts)
    return table


def claims_table(document: dict[str, Any], title: str) -> Table:
    """Show the verdict on every statement, with what was measured and what the intervention gave."""
    table = Table(
        box=None, header_style="bold", title=f"{title}: what it has learned", title_justify="left", pad_edge=False
    )
    for column in ("statement", "verdict", "measured", "causal check"):
        table.add_column(column, overflow="fold")
    styles = {"supported": "green", "not supported": "red", "does not apply": "dim", "not computed": "yellow"}
    for claim in document["claims"]:
        cells = (
            claim["statement"],
            Text(claim["verdict"], style=styles[claim["verdict"]]),
            claim["evidence"],
            claim["check"],
        )
        table.add_row(*cells)
    return table


def presets_table(presets: Mapping[str, RunConfig], costs: Mapping[str, Any]) -> Table:
    """Show named runs and what they cost."""
    heads = (
        "preset",
        "time on\ntwo cores",
        "steps",
        "method",
        "parameters",
        "model",
        "tokens\na step",
        "GFLOP\na step",
    )
    table = plain_table(*heads)
    for name, run in presets.items():
        cost = costs[name]
        hours = cost.hours_on_two_cores
        units = (1 / 60, 3600, "s"), (1, 60, "min"), (48, 1, "h"), (float("inf"), 1 / 24, "days")
        time = next(f"{hours * factor:.0f} {unit}" for below, factor, unit in units if hours < below)
        work = (
            f"{cost.flops_per_step / 1e9:,.2g}" if cost.flops_per_step < 1e10 else f"{cost.flops_per_step / 1e9:,.0f}"
        )
        step = (f"{cost.tokens_per_step:,}", work)
        table.add_row(name, time, f"{cost.steps:,}", run.method.name, f"{cost.parameters:,}", run.name, *step)
    return table
