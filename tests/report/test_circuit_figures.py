"""Figures of the circuit: a color for each group, arrows that can be seen and lead on, heads of every group."""

from dataclasses import fields, replace
from itertools import combinations

import numpy as np
import pytest
from test_palette import SEEN
from test_palette import _lab as lab

from handmade import handmade
from latentloop.interpret.fourier import Site
from latentloop.interpret.groups import OTHERS, RULE, LayerHeads
from latentloop.interpret.probes import OPERANDS, RHS
from latentloop.interpret.sinks import Map
from latentloop.interpret.study import interpret
from latentloop.interpret.subject import Settings
from latentloop.report.charts import plotly
from latentloop.report.circuit_diagram import circuit_diagram
from latentloop.report.circuit_figures import (
    GROUP_COLORS,
    SHOWN_HEADS,
    SHOWN_OTHERS,
    flow_charts,
    shown_heads,
    sinks_charts,
)
from latentloop.report.diagram import along, curves
from latentloop.report.study_figures import shown_sites, with_data

SMALL = Settings(scenes=1, instances=1, rollouts=2, pairs=6, samples=32)


@pytest.fixture(scope="module", params=["names", "values"])
def circuit(request, tmp_path_factory):
    study = interpret(
        handmade(request.param), tmp_path_factory.mktemp(request.param), SMALL, only=["heads", "flow", "sinks"]
    )
    return request.param, study.results


def every_group():
    """A layer with a head in each group there is."""
    count = len(GROUP_COLORS)
    zeros = {
        "by_name": np.zeros((4, 8, count)),
        "by_value": np.zeros((3, 8, count)),
        "name_variance": np.zeros((4, count)),
        "name_norm": np.ones((4, count)),
        "variance": np.zeros((3, count)),
        "norm": np.ones((3, count)),
        "lookup_share": np.zeros(count),
        "by_literal": np.zeros(count),
        "by_operation": np.zeros(count),
    }
    names = {place: [head] for head, place in enumerate((*OPERANDS, RHS))}
    values = {place: [4 + which] for which, place in enumerate(OPERANDS)}
    layer = LayerHeads(
        **zeros,
        names_at_rhs=names | {OTHERS: list(range(4, count))},
        values_at_rhs=values | {OTHERS: [0, 1, 2, 3, *range(7, count)]},
        rule=RULE,
    )
    assert {field.name for field in fields(layer)} == {*zeros, "names_at_rhs", "values_at_rhs", "rule"}
    layer.by_name[0, -1, 7] = layer.name_variance[0, 7] = 1
    layer.by_value[0, -1, 8] = layer.variance[0, 8] = 1
    layer.lookup_share[9] = layer.by_literal[10] = layer.by_operation[11] = 1
    return layer


def test_every_group_has_a_color_of_its_own():
    assert every_group().groups(looks_up=True).keys() == GROUP_COLORS.keys()
    red, green, blue = (GROUP_COLORS["others"][place : place + 2] for place in (1, 3, 5))
    assert red == green == blue
    for kind in SEEN:
        for one, other in combinations(GROUP_COLORS, 2):
            distance = np.linalg.norm(lab(GROUP_COLORS[one], kind) - lab(GROUP_COLORS[other], kind))
            assert distance > 20, f"{one} and {other} look alike with {kind}: {distance:.0f}"


def behind(diagram):
    """List arrows and boxes that they pass behind, their own ends left out."""
    found = []
    for edge, curve in zip(diagram.edges, curves(diagram), strict=True):
        for place, node in enumerate(diagram.nodes):
            wide, high = node.half[0], (node.half[1] - 0.06) / diagram.height  # arrows keep a little away
            points = [along(curve, at) for at in np.linspace(0, 1, 200)]
            if place not in (edge.start, edge.end) and any(
                abs(x - node.x) < wide and abs(y - node.y) < high for x, y in points
            ):
                found.append((edge.label, node.label))
    return found


def test_the_circuit_leads_from_definitions_to_the_result(circuit):
    name, results = circuit
    diagram = circuit_diagram(results["heads"], results["flow"])
    assert behind(diagram) == []
    entered = {edge.end for edge in diagram.edges}
    left = {edge.start for edge in diagram.edges}
    (result,) = entered - left
    assert diagram.nodes[result].label == "result"
    queries = [edge for edge in diagram.edges if edge.dashed]
    if name == "values":
        assert queries == []
        return
    assert [edge.label for edge in queries] == ["query"] * 3
    # A query starts where names have come to, and ends where the value of its own operand leaves.
    for edge, place in zip(queries, OPERANDS, strict=True):
        assert {diagram.nodes[edge.start].label} == {RHS}
        assert sum(other.end == edge.start and other.label == "name 100%" for other in diagram.edges) == 3
        assert diagram.nodes[edge.end].label.endswith(place)
        assert [other.label for other in diagram.edges if other.start == edge.end] == ["value 100%"]
    drawn = plotly(diagram)["layout"]
    assert sum(shape["line"]["dash"] == "dash" for shape in drawn["shapes"]) == 3


def test_names_wait_at_the_right_hand_side_until_they_are_used(circuit):
    name, results = circuit
    heads, flow = results["heads"], results["flow"]
    first, last = heads.layers
    deeper = replace(heads, layers=[first, first, last], windows=[*heads.windows, None])
    attention = {}
    for kind, shares in flow.attention.items():
        between = np.zeros_like(shares[:1])
        between[0, 0, 0] = 0.5 if kind == "value" else 0.0  # the layer between moves something, so that it is drawn
        attention[kind] = np.concatenate([shares[:1], between, shares[1:]])
    diagram = circuit_diagram(deeper, replace(flow, attention=attention, residual=attention))
    assert behind(diagram) == []
    streams = [edge for edge in diagram.edges if edge.label == "stream"]
    assert len(streams) == (1 if name == "names" else 0)
    entered = {edge.end for edge in diagram.edges}
    assert len(entered - {edge.start for edge in diagram.edges}) == 1


def test_what_was_not_patched_is_blank(circuit):
    _, results = circuit
    flow = results["flow"]
    assert np.isnan(flow.attention["value"][-1, :, :-1]).all()
    data = plotly(flow_charts(flow)["flow"])["data"]
    layers = len(flow.attention["value"])
    assert len(data) == 4 * (layers + 1)  # a trace of blanks beneath that of each last layer
    assert {value for row in data[-1]["z"] for value in row[:-1]} == {None}


def attention_map(heads):
    weights = np.zeros((heads, 4, 50))
    weights[:, -1, 0] = np.linspace(0.1, 1.0, heads)
    return Map(
        layer=0, operands=1, rows=[";", "VAR2", "=", RHS], columns=["x0"] * 50, weights=weights, at_rhs=[""] * heads
    )


def test_every_group_that_serves_an_operand_has_a_head_shown():
    groups = {"value of VAR0": [0, 8, 15], "value of VAR1": [5, 10], "value of VAR2": [2, 3, 4, 7, 9]}
    shown, left = shown_heads(attention_map(16), groups)
    assert shown == [0, 8, 15, 5, 10, 2, 3, 4, 7, 9]  # the paper's groups are shown as a whole
    assert left == []
    groups = {"values, shared": list(range(13)), "value of VAR1": [13], "value of VAR2": [14, 15]}
    shown, left = shown_heads(attention_map(16), groups)
    assert len(shown) == SHOWN_HEADS
    assert {13, 14, 15, 12} <= set(shown)
    assert left == [0, 1, 2, 3]  # those that attend least
    assert shown_heads(attention_map(16), {}) == ([14, 15], [])


def test_maps_have_all_stored_columns_and_say_whose_they_are(circuit):
    name, results = circuit
    chart = sinks_charts(results["sinks"], results["heads"])["sinks"]
    titles = [panel.title for panel in chart.panels]
    for which, place in enumerate(OPERANDS):
        assert any(title.startswith("layer 2") and f"value of {place}: head {which}" in title for title in titles)
    assert any(
        title.startswith("layer 1") and ("name of VAR0" if name == "names" else "look-up") in title for title in titles
    )
    alone = sinks_charts(results["sinks"])["sinks"]  # without groups
    assert len(alone.panels) == sum(min(SHOWN_OTHERS, one.weights.shape[0]) for one in results["sinks"].maps[:2])


def test_a_token_has_one_column_in_the_maps_of_a_head(circuit):
    name, results = circuit
    panel = sinks_charts(results["sinks"], results["heads"])["sinks"].panels[0]
    head = int(panel.title.split("head ")[1].split("\n")[0])
    maps = sorted((one for one in results["sinks"].maps if one.layer == 0), key=lambda one: -one.operands)
    z = np.asarray(panel.z)
    assert z.shape == (len(panel.y), len(panel.x))
    assert np.nansum(z) == pytest.approx(sum(one.weights[head].sum() for one in maps), rel=1e-6)
    assert np.isfinite(z).sum() == sum(one.weights[head].size for one in maps)  # every weight that is stored
    named = {name: place for place, name in [*panel.ticks.items(), *panel.ticks_above.items()]}
    assert list(panel.x[named[";"] :]) == maps[0].rows
    definitions = [named[f"def. {place}"] for place in OPERANDS]
    assert len(set(definitions)) == 3
    if name == "values":  # the look-up attends from an operand to where it is defined, whatever else there is
        rows = [place for place, row in enumerate(panel.y) if row == "VAR2"]
        assert len(rows) == 3
        assert z[rows, named["def. VAR2"]] == pytest.approx(np.ones(3), abs=0.05)


@pytest.mark.parametrize(("mlps", "shown"), [(1, 4), (2, 6), (4, 6)])
def test_the_last_output_is_among_the_histograms(mlps, shown):
    names = [f"MLP {n} {what}" for n in range(mlps) for what in ("pre-activation", "post-activation", "output")]
    even = {"energy": np.full(7, 1 / 7), "edges": np.zeros(3), "counts": np.zeros((7, 2), np.int64)}
    sites = [Site(name=name, **even) for name in [*names, "read-out"]]
    found = [site.name for site in shown_sites(sites)]
    assert len(found) == shown
    assert found[0] == names[0]
    assert found[-4:] == [*names[-3:], "read-out"]
    constant = [replace(site, energy=np.eye(7)[0]) for site in sites[:3]]  # of an MLP that adds the same to everything
    assert shown_sites([*constant, *sites]) == shown_sites(sites)


def test_histograms_begin_and_end_where_there_is_data():
    counts = np.array([[0, 0, 3, 0, 1, 0], [0, 0, 0, 2, 0, 0]])
    site = Site(name="", energy=np.zeros(2), edges=np.arange(7.0), counts=counts)
    edges, kept = with_data(site)
    assert edges.tolist() == [2, 3, 4, 5]
    assert kept.tolist() == [[3, 0, 1], [0, 2, 0]]
    empty, none = with_data(replace(site, counts=0 * counts))
    assert len(empty) == 7
    assert not none.any()
