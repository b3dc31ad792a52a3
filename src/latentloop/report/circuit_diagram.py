"""The diagram of the circuit, drawn from measurements alone: what patching moved, which heads, and which MLPs are needed."""

import textwrap
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from latentloop.interpret.ablation import Ablations, ungrouped
from latentloop.interpret.flow import MOVED, Flow
from latentloop.interpret.groups import OTHERS, Heads
from latentloop.interpret.probes import OPERANDS, RHS
from latentloop.report.charts import COLORS
from latentloop.report.diagram import Diagram, Edge, Node

FAINT = 0.1
"""Share of answers that move for an arrow to be drawn; the more of them, the thicker it is. Also the least share of problems
that are lost without an MLP which is needed."""
STREAM = "#777777"
"""Color of arrows that carry on what is there."""
SERVES_NO_OPERAND = ("name of RHS", "literal", "operation")
"""Groups of heads."""
LEFT, RIGHT = 0.09, 0.97
"""Where columns begin and end."""
DENSE = 0.5
"""Gap after a definition, of that between tokens, where more is written."""
TOP, PITCH, TAIL, LINE = 0.32, 1.3, 0.8, 0.15
"""Inches: above the first row, from row to row, from the last row to the result, and of a line of notes."""
NOTE = 100
"""Letters of a line of notes under the diagram."""
RUN = 3
"""Heads in a row that are written as from the first to the last."""


def circuit_diagram(heads: Heads, flow: Flow, ablation: Ablations | None = None) -> Diagram:
    """Draw the circuit that patching found: an arrow wherever answers move with what a layer's attention brings.

    Columns are tokens; rows are the stream before the first layer, and after each layer that moves answers, or whose MLP is
    needed. An arrow starts where the value was last measured to be: at its definition, until a layer brings it elsewhere.
    """
    return _Circuit(heads, flow, ablation).diagram()


def needed_mlps(ablation: Ablations | None, layer: int) -> dict[str, float]:
    """Return the MLPs of a layer that are needed, with the share of problems solved without each."""
    if ablation is None:
        return {}
    mlps = [part for part in ablation.parts if part.layer == layer and not part.heads]
    return {part.part: part.solved for part in mlps if ablation.solved - part.solved >= FAINT}


def needed_heads(ablation: Ablations | None, layer: int) -> dict[str, float]:
    """Return the heads of a layer that serve no operand and are needed, with the share of problems solved without each."""
    if ablation is None:
        return {}
    alone = [part for part in ungrouped(ablation, layer) if ablation.solved - part.solved >= FAINT]
    found = {f"head {part.heads[0]}": part.solved for part in alone}
    mine = [part for part in ablation.parts if part.layer == layer and part.part in SERVES_NO_OPERAND]
    found |= {part.part: part.solved for part in mine if ablation.solved - part.solved >= FAINT}
    others = next((one for one in ablation.parts if one.layer == layer and one.part == OTHERS and one.heads), None)
    if not alone and others is not None and ablation.solved - others.solved >= FAINT:
        found[f"heads {listed(others.heads)} together"] = others.solved
    return found


def listed(heads: Sequence[int]) -> str:
    """Return numbers of heads, where several follow each other as from the first to the last."""
    runs: list[list[int]] = []
    for head in sorted(heads):
        if runs and runs[-1][-1] == head - 1:
            runs[-1].append(head)
        else:
            runs.append([head])
    parts = [[f"{run[0]}–{run[-1]}"] if len(run) >= RUN else [str(head) for head in run] for run in runs]
    return ", ".join(one for part in parts for one in part)


def definition(place: str) -> str:
    """Return the column of an operand's definition."""
    return f"definition of {place}"


class _Circuit:
    """Boxes by row and column, and the arrows between them."""

    def __init__(self, heads: Heads, flow: Flow, ablation: Ablations | None) -> None:
        self.heads, self.flow, self.ablation = heads, flow, ablation
        self.last = len(heads.layers) - 1
        most = np.nanmax(flow.attention["value"], axis=(1, 2))
        inner = [n for n in range(1, self.last) if most[n] >= FAINT or needed_mlps(ablation, n)]
        self.layers = sorted({0, *inner, self.last})
        self.columns = [*(definition(place) for place in OPERANDS), *self._tokens()]
        self.final = len(self.layers) * len(self.columns)
        self.edges: list[Edge] = []
        self.asked: list[int] = []
        """Rows in which names at the right-hand side are what values are looked up by."""

    def _tokens(self) -> list[str]:
        """Return the tokens of the probe that are drawn, with their places: operands, and wherever answers move."""
        moved = np.zeros(len(self.flow.positions), bool)
        for layer in self.layers:
            for which in range(len(OPERANDS)):
                moved |= (self._values(layer, which) >= FAINT) | self._names(layer, which)
        return [
            _token(place, name)
            for place, name in enumerate(self.flow.positions)
            if name in (*OPERANDS, RHS) or moved[place]
        ]

    def _values(self, layer: int, which: int) -> np.ndarray:
        """Return the share of answers that move with an operand's value, by token; 0 where nothing was patched."""
        return np.nan_to_num(self.flow.attention["value"][layer, which])

    def _names(self, layer: int, which: int) -> np.ndarray:
        """Return the tokens that a layer brings an operand's name to, and not its value."""
        if layer == self.last:
            return np.zeros(len(self.flow.positions), bool)
        names = np.nan_to_num(self.flow.attention["name"][layer, which])
        found = (names >= FAINT) & (names >= self.heads.rule.dominance * self._values(layer, which))
        return found & (np.array(self.flow.positions) != OPERANDS[which])  # it is there already

    def _node(self, row: int, column: str) -> int:
        return row * len(self.columns) + self.columns.index(column) if row < len(self.layers) else self.final

    def _arrows(self, row: int, starts: Sequence[str], end: str, label: str, detail: str, look: Edge) -> None:
        """Draw arrows from all places where something is to one, with one label."""
        for number, start in enumerate(starts):
            ends = {"start": self._node(row, start), "end": self._node(row + 1, end)}
            edge = replace(look, **ends, at=0.3 if start.startswith("definition") else 0.4)
            self.edges.append(edge if number else replace(edge, label=label, detail=detail))

    def _heads(self, layer: int, kind: str, which: int, token: str, share: float) -> str:
        """Name the heads that were found for what an arrow shows, and what they move alone where that is less.

        An operand's own heads, or, where these do not move it by themselves, whichever heads move it most: those that serve
        several operands, or these and its own.
        """
        place = OPERANDS[which]
        kinds = {(place, "value"): ["lookups"]} if token == place else {}
        kinds |= {(RHS, kind): [f"{kind}s_{some}" for some in ("at_rhs", "shared", "together")]}
        found = [one for one in self.flow.groups if (one.layer, one.operand) == (layer, place) and one.heads]
        found = [one for group in kinds.get((token, kind), []) for one in found if one.kind == group]
        if not found:
            return ""
        best = max(found, key=lambda one: one.moved >= MOVED or one.moved)
        text = f"head{'s' * (len(best.heads) > 1)} {listed(best.heads)}"
        return text if round(best.moved, 2) == round(share, 2) else f"{text}: {best.moved:.0%}"

    def _follow(self, which: int) -> None:
        """Draw the way of one operand's value and name through the layers."""
        place, color = OPERANDS[which], COLORS[which]
        value_at, name_at = [definition(place)], [_token(self.flow.positions.index(place), place)]
        named: set[str] = set()
        for row, layer in enumerate(self.layers):
            values, names = self._values(layer, which), self._names(layer, which)
            shares = self.flow.attention["name"][layer, which]
            arrived, told = [], []
            for index, token in enumerate(self.flow.positions):
                column = _token(index, token)
                for kind, moved, share, starts in (
                    ("value", values[index] >= FAINT, values[index], value_at),
                    ("name", names[index], shares[index], name_at),
                ):
                    if not moved:
                        continue
                    (arrived if kind == "value" else told).append(column)
                    look = Edge(start=0, end=0, label="", color=color, width=0.5 + 1.1 * float(share))
                    detail = self._heads(layer, kind, which, token, float(share))
                    self._arrows(row, starts, column, f"{kind} {share:.0%}", detail, look)
                if column in arrived and column in named and value_at == [definition(place)]:
                    self._ask(row, column, which)
            named |= set(told)
            name_at = [column for column in told if _name(column) != RHS] or name_at
            value_at = self._held(layer, which, value_at, [one for one in arrived if _name(one) != RHS])

    def _held(self, layer: int, which: int, before: list[str], brought: list[str]) -> list[str]:
        """Return where a value is after a layer: of the places that it was brought to, those where the stream has it."""
        if not brought:
            return before
        stream = np.nan_to_num(self.flow.residual["value"][layer, which])
        places = [one for one in before if not one.startswith("definition") and one not in brought] + brought
        return [one for one in places if stream[int(one.split()[0])] >= FAINT] or brought

    def _ask(self, row: int, column: str, which: int) -> None:
        """Draw the query by which a value is looked up: the name that came to where the value goes."""
        self.asked.append(row)
        arc = (0.95 - 0.27 * which) * PITCH / self._height()  # arcs lie one in another
        ends = {"start": self._node(row, column), "end": self._node(row, definition(OPERANDS[which]))}
        self.edges.append(Edge(**ends, label="query", color=COLORS[which], at=0.4, width=1.0, rise=arc, dashed=True))

    def _stay(self) -> None:
        """Carry on what is at a token until it is used."""
        ends = [(edge.start, edge.end) for edge in self.edges]
        arrived = {edge.end for edge in self.edges if edge.label.startswith("value")}
        carried: list[tuple[str, int]] = []
        for column in self.columns[:-1]:
            touched = [n for n in range(1, len(self.layers)) if any(self._node(n, column) in pair for pair in ends)]
            first = 0 if column.startswith("definition") else min(touched, default=0)
            carried += [(column, row) for row in range(first, max(touched, default=0))]
        rhs = self.columns[-1]
        gathered = [row for row in range(1, len(self.layers)) if self._node(row, rhs) in arrived]
        waiting = range(1, max(self.asked, default=1))
        onward = range(min(gathered, default=len(self.layers)), len(self.layers))
        carried += [(rhs, row) for row in sorted({*waiting, *onward})]
        for column, row in carried:
            label = "stream" if column == rhs else ""
            start, end = self._node(row, column), self._node(row + 1, column)
            self.edges.append(Edge(start=start, end=end, label=label, color=STREAM, width=0.9))

    def _nodes(self, height: float) -> list[Node]:
        """Return the boxes of all rows and columns, those of the last row and the result."""
        words = [_name(column).replace(" of ", "\nof ") for column in self.columns]
        wide = np.array([2 * Node(label=one, x=0.0, y=0.0).half[0] for one in words])
        gaps = np.array([DENSE if column.startswith("definition") else 1.0 for column in self.columns[:-1]])
        gaps *= (RIGHT - LEFT - wide.sum()) / gaps.sum()
        across = LEFT + wide.cumsum() - wide / 2 + np.array([0.0, *gaps.cumsum()])
        nodes = []
        for row in range(len(self.layers)):
            y = 1 - (TOP + PITCH * row) / height
            mlp = "\n+ MLP" if row and needed_mlps(self.ablation, self.layers[row - 1]) else ""
            colors = ["#fbe9d7" if word == RHS else "#e8eef5" for word in words]
            nodes += [
                Node(label=word + mlp, x=x, y=y, color=color)
                for word, x, color in zip(words, across.tolist(), colors, strict=True)
            ]
        y = 1 - (TOP + PITCH * len(self.layers)) / height
        x = float(across[-1])
        return [
            *nodes,
            Node(label=RHS, x=x, y=y, color="#fbe9d7"),
            Node(label="result", x=x, y=y - TAIL / height, color="#e3f1e7"),
        ]

    def _lines(self) -> list[str]:
        """Return all groups of heads as text, and what is needed besides those that serve operands."""
        lines: list[str] = []
        for number in range(len(self.heads.layers)):
            text = "; ".join(f"{name}: {listed(some)}" for name, some in self.heads.groups(number).items())
            needed = needed_heads(self.ablation, number) | needed_mlps(self.ablation, number)
            lost = ", ".join(f"{part}: {solved:.0%}" for part, solved in needed.items())
            text = f"heads of layer {number + 1} — {text}" + (f"; solved without {lost}" if lost else "")
            lines += textwrap.wrap(text, NOTE, break_on_hyphens=False)
        return lines

    def _height(self) -> float:
        """Return the height in inches."""
        return TOP + PITCH * len(self.layers) + max(TAIL + 0.3, 0.35 + LINE * len(self._lines()))

    def diagram(self) -> Diagram:
        """Return boxes, arrows and notes."""
        for which in range(len(OPERANDS)):
            self._follow(which)
        self._stay()
        if any(edge.end == self.final for edge in self.edges):
            self.edges.append(
                Edge(
                    start=self.final,
                    end=self.final + 1,
                    label=self._used(),
                    color="#3a8f5c",
                    width=1.6,
                )
            )
        height, lines = self._height(), self._lines()
        # Of the rows after the first, only what an arrow touches is drawn.
        touched = {end for edge in self.edges for end in (edge.start, edge.end)}
        used = sorted({*range(len(self.columns)), self.final, self.final + 1, *touched})
        order = {old: new for new, old in enumerate(used)}
        nodes = self._nodes(height)
        notes = [
            (0.0, 1 - (TOP + PITCH * (row + 0.5)) / height, f"layer {layer + 1}")
            for row, layer in enumerate(self.layers)
        ]
        low = TOP + PITCH * len(self.layers) + 0.35
        notes += [(0.0, 1 - (low + LINE * place) / height, line) for place, line in enumerate(lines)]
        caption = (
            "The circuit, drawn from measurements: an arrow ends where patched attention moves the answer, with the share "
            "of answers that do; it starts where the value was last measured to be, or else, inferred, at its definition. "
            "Below the share, the group of heads that was found for it, with what it moves alone. Gray arrows carry on what "
            "a layer has brought."
        )
        if any("+ MLP" in nodes[old].label for old in used):
            caption += " + MLP: a layer whose MLP is needed to solve problems."
        if self.asked:
            caption += " Dashed, and inferred too: names that came to a token, as the queries of the look-up."
        return Diagram(
            nodes=[nodes[old] for old in used],
            edges=[replace(edge, start=order[edge.start], end=order[edge.end]) for edge in self.edges],
            notes=notes,
            height=height,
            caption=caption,
        )

    def _used(self) -> str:
        """Name the MLPs of the last layer, those that are needed where some are not."""
        needed = [mlp.removeprefix("MLP ") for mlp in needed_mlps(self.ablation, self.last)]
        parts = self.ablation.parts if self.ablation else ()
        mlps = [part for part in parts if part.layer == self.last and not part.heads]
        if len(needed) == len(mlps):
            return "MLPs" if len(mlps) != 1 else "MLP"
        return f"MLP{'s' * (len(needed) > 1)} {', '.join(needed)}" if needed else "no MLP"


def _token(place: int, name: str) -> str:
    """Return the column of a token of the probe, some of which have the same name."""
    return f"{place} {name}"


def _name(column: str) -> str:
    """Return what is written in a column's boxes."""
    return column if column.startswith("definition") else column.split(" ", 1)[1]
