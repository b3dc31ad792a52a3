"""Diagrams of circuits: of stored studies, and of measurements that are made up."""

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from test_circuit_figures import behind

from latentloop.interpret.ablation import Ablated
from latentloop.interpret.flow import MOVED
from latentloop.interpret.probes import OPERANDS, RHS
from latentloop.interpret.study import read_study
from latentloop.report.charts import plotly
from latentloop.report.circuit_diagram import FAINT, circuit_diagram, listed
from latentloop.report.diagram import draw_diagram, label_places

STUDIES = Path(__file__).parents[2] / "docs" / "studies"
FOLDERS = sorted(path.parent for path in STUDIES.glob("*/circuit.png"))


@pytest.fixture(scope="module")
def results():
    """Two layers, eight heads, values first, every part needed."""
    return read_study(STUDIES / "discrete-seed0").results


def measured(results, shares, names=(), stream=()):
    """Return what was measured with shares of answers that move put in, by layer, operand and token."""
    flow = results["flow"]
    blank = {kind: np.where(np.isnan(found), np.nan, 0.0) for kind, found in flow.attention.items()}
    attention = {kind: found.copy() for kind, found in blank.items()}
    residual = {kind: found.copy() for kind, found in blank.items()}
    for found, some in ((attention["value"], shares), (attention["name"], names), (residual["value"], stream)):
        for place, share in dict(some).items():
            found[place] = share
    return replace(flow, attention=attention, residual=residual, groups=[])


def links(diagram):
    """List arrows that bring something, as row by row from where to where."""
    label = [node.label.replace("\n", " ") for node in diagram.nodes]
    return [(label[one.start], label[one.end], one.label) for one in diagram.edges if one.label.startswith(("v", "n"))]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda one: one.name)
def test_nothing_that_is_written_overlaps(folder):
    found = read_study(folder).results
    diagram = circuit_diagram(found["heads"], found["flow"], found["ablation"])
    assert behind(diagram) == []
    figure = draw_diagram(diagram)
    FigureCanvasAgg(figure).draw()
    texts = figure.axes[0].texts
    assert min(text.get_size() for text in texts) >= 7
    boxes = {text: text.get_window_extent() for text in texts}
    for one, other in combinations(texts, 2):
        left, right = boxes[one], boxes[other]
        apart = left.x1 <= right.x0 or right.x1 <= left.x0 or left.y1 <= right.y0 or right.y1 <= left.y0
        assert apart, f"{one.get_text()!r} overlaps {other.get_text()!r}"
    assert all(box.x0 >= 0 and box.x1 <= figure.bbox.x1 for box in boxes.values())


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda one: one.name)
def test_every_share_that_is_not_faint_has_an_arrow(folder):
    found = read_study(folder).results
    moved = np.nan_to_num(found["flow"].attention["value"])
    drawn = [one for one in circuit_diagram(found["heads"], found["flow"]).edges if one.label.startswith("value")]
    assert len(drawn) == (moved >= FAINT).sum()


def test_a_value_goes_on_from_where_it_was_measured(results):
    op, rhs = 2, 7
    shares = {(0, 0, op): 0.2, (0, 0, op + 2): 0.3, (1, 0, rhs): 0.4, (1, 1, rhs): 0.5}
    stream = {(0, 0, op): 0.2, (0, 0, op + 2): 0.3}
    found = links(circuit_diagram(results["heads"], measured(results, shares, stream=stream)))
    assert [one for one in found if "VAR0" in one[0]] == [
        ("definition of VAR0", "op", "value 20%"),
        ("definition of VAR0", "op", "value 30%"),
    ]
    assert ("op", RHS, "value 40%") in found
    assert ("definition of VAR1", RHS, "value 50%") in found  # nothing was measured in between
    gone = links(circuit_diagram(results["heads"], measured(results, shares, stream={(0, 0, op): 0.2})))
    assert sum(start == "op" for start, _, _ in gone) == 1
    diagram = circuit_diagram(results["heads"], measured(results, shares, stream=stream))
    unlabeled = [one for one in diagram.edges if not one.label and one.color != "#777777"]
    assert len(unlabeled) == 1  # both tokens hold the value: two arrows, and the share is written once


def test_a_name_is_told_from_a_value(results):
    rhs = 7
    last = {(1, 0, rhs): 1.0}
    names = measured(results, last, names={(0, 0, rhs): 0.9})
    diagram = circuit_diagram(results["heads"], names)
    assert ("VAR0", RHS, "name 90%") in links(diagram)
    assert [edge.label for edge in diagram.edges if edge.dashed] == ["query"]
    both = measured(results, last | {(0, 0, rhs): 0.9}, names={(0, 0, rhs): 0.9})
    assert not any(label.startswith("name") for _, _, label in links(circuit_diagram(results["heads"], both)))


def test_groups_of_heads_stand_on_the_arrows(results):
    diagram = circuit_diagram(results["heads"], results["flow"])
    at_operands = [one.detail for one in diagram.edges if diagram.nodes[one.end].label in OPERANDS and one.label]
    assert at_operands == 3 * ["head 0"]
    # VAR2's own head moves too little by itself: those that serve several operands move more.
    moved = {one.kind: one for one in results["flow"].groups if one.operand == "VAR2"}
    assert moved["values_at_rhs"].moved < MOVED
    most = max((moved["values_shared"], moved["values_together"]), key=lambda one: one.moved)
    text = f"heads {listed(most.heads)}" + (
        f": {most.moved:.0%}" if most.moved < 1 else ""
    )  # of 100 % that move with all
    assert text in [one.detail for one in diagram.edges if diagram.nodes[one.end].label == RHS]
    texts = [note.get("text", "") for note in plotly(diagram)["layout"]["annotations"]]
    assert f"value 100%<br>{text}" in texts


def test_mlps_are_drawn_where_they_are_needed(results):
    ablation = results["ablation"]
    parts = [part for part in ablation.parts if part.heads]

    def labels(*mlps):
        parts_of = [
            Ablated(part=name, layer=layer, heads=[], solved=solved, values=1.0) for name, layer, solved in mlps
        ]
        changed = replace(ablation, solved=1.0, parts=parts + parts_of)
        diagram = circuit_diagram(results["heads"], results["flow"], changed)
        return [node.label for node in diagram.nodes], next(
            one.label for one in diagram.edges if diagram.nodes[one.end].label == "result"
        )

    boxes, label = labels(("MLP 1", 0, 0.2), ("MLP 1", 1, 0.0), ("MLP 2", 1, 1.0))
    assert boxes.count("VAR0\n+ MLP") == 1
    assert label == "MLP 1"
    boxes, label = labels(("MLP 1", 0, 0.95), ("MLP 1", 1, 0.0))
    assert not any("MLP" in box for box in boxes)
    assert label == "MLP"
    assert labels(("MLP 1", 1, 0.0), ("MLP 2", 1, 0.2), ("MLP 3", 1, 1.0))[1] == "MLPs 1, 2"
    assert labels(("MLP 1", 1, 0.0), ("MLP 2", 1, 0.2))[1] == "MLPs"
    assert labels(("MLP 1", 1, 1.0))[1] == "no MLP"


def test_labels_stay_on_their_arrows(results):
    diagram = circuit_diagram(results["heads"], results["flow"])
    assert all(0 < at < 1 for at in label_places(diagram))


def test_runs_of_heads_are_written_short():
    assert listed([2, 3, 4, 5, 6, 7]) == "2–7"
    assert listed([0, 1, 4, 6, 7, 8]) == "0, 1, 4, 6–8"
    assert listed([]) == ""
