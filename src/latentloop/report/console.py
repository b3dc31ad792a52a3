"""Problems, solutions and tokens as tables for a terminal."""

from collections.abc import Iterable, Iterator

import numpy as np
from rich.table import Table
from rich.text import Text

from latentloop.task.graph import EMPTY, Problems
from latentloop.task.oracle import Solution
from latentloop.task.text import equation_text
from latentloop.tokens.factored import Tokens, factor_rows
from latentloop.tokens.vocabulary import FACTORS, Vocabulary

EMPTY_MARK = "·"


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


def trace_tables(problems: Problems, states: np.ndarray, row: int = 0, width: int = 80) -> Iterator[Table]:
    """Show values [iteration, batch, node] by iteration, in as many tables as the width asks for."""
    labels = [equation_text(problems, row, node) for node in range(problems.sizes[row])]
    room = max(4, (width - max(map(len, labels)) - 2) // 4)
    for start in range(0, len(states), room):
        block = states[start : start + room, row]
        table = plain_table("equation", *(f"{t}" for t in range(start, start + len(block))))
        for node, label in enumerate(labels):
            before = int(states[start - 1, row, node]) if start else EMPTY
            table.add_row(label, *_history(before, block[:, node].tolist()))
        yield table


def _history(before: int, values: Iterable[int]) -> Iterator[Text]:
    """Show one node's values, the new ones bright."""
    for value in values:
        shown = EMPTY_MARK if value == EMPTY else str(value)
        yield Text(shown, style="dim" if value == before else "bold cyan")
        before = value


def token_table(tokens: Tokens, vocabulary: Vocabulary, row: int = 0, limit: int = 24) -> Table:
    """Show the first tokens of a problem, split into factors."""
    rows = factor_rows(tokens, vocabulary, row)
    table = plain_table("position", *FACTORS)
    for place, factors in enumerate(rows[:limit]):
        table.add_row(str(place), *factors)
    if len(rows) > limit:
        table.add_row("...", f"{len(rows) - limit} more")
    return table
