"""Patches of groups of heads, and of all layers that may bring values to the right-hand side."""

import re
from dataclasses import replace

import numpy as np
import pytest

from handmade import HEADS, handmade
from latentloop.evaluate.pretrained import LatentLoop
from latentloop.interpret import embeddings, findings, flow, heads
from latentloop.interpret.probes import OPERANDS
from latentloop.interpret.subject import Settings, Size, Subject, find_size
from latentloop.model.build import build_model, weights_of
from latentloop.train.checkpoint import Checkpoint

SETTINGS = Settings(scenes=1, rollouts=4, pairs=6, samples=160)
SIZE = Size(nodes=12, solved=1.0, tried={}, repeats=True, probes_right=1.0)


@pytest.fixture(scope="module")
def crowded():
    """A model in whose last layer one head mixes operands, with the heads that are found in it."""
    subject = Subject(trained=handmade("names", crowded=True, pinned=False), size=SIZE, settings=SETTINGS)
    return subject, heads.analyze(subject)


def test_heads_that_serve_several_operands_are_patched_alone_and_with_an_operands_own(crowded):
    subject, found = crowded
    assert found.layers[1].shared == [7]
    patched = {(g.kind, g.operand): g for g in flow.analyze(subject, found).groups if g.layer == 1}
    for place in ("VAR0", "VAR1"):
        own, shared, together = (patched[f"values_{kind}", place] for kind in ("at_rhs", "shared", "together"))
        assert shared.heads == [7]
        assert together.heads == sorted([*own.heads, 7])
        assert shared.moved == 0  # it mixes a little, and nothing reads what it brings
        assert own.moved == together.moved == 1


def test_a_group_that_is_shared_by_all_moves_answers_where_no_operand_has_its_own(crowded):
    """As if no head had a group of its own: all that varies comes through those that are shared."""
    subject, found = crowded
    last = found.layers[1]
    everyone = sorted(head for some in last.values_at_rhs.values() for head in some)
    last = replace(last, values_at_rhs={place: [] for place in OPERANDS} | {"others": everyone})
    assert {0, 1, 2, 4, 5, 6} <= set(last.shared)
    groups = flow.analyze(subject, replace(found, layers=[found.layers[0], last])).groups
    mine = [g for g in groups if g.layer == 1]
    assert {g.kind for g in mine} == {"values_shared"}
    assert [g.moved for g in mine] == [1, 1, 1]


def split_in_two() -> LatentLoop:
    """The paper's circuit in four layers: the third brings VAR0's value, the last one the others'; the second does nothing."""
    two = handmade("names")
    run = replace(two.run, model=replace(two.run.model, layers=4))
    old = weights_of(two.model)
    weights = {}
    for name, empty in weights_of(build_model(run)).items():
        own = re.sub(r"^((?:layers|positions\.\w+)\.)[23]\.", r"\g<1>1.", name)
        second = re.match(r"(layers|positions\.\w+)\.1\.", name) is not None
        weights[name] = np.zeros_like(empty) if second and "norm" not in name else old[own].copy()
    weights["layers.2.mlps.0.out.weight"][:] = 0
    size = run.model.width // HEADS
    weights["layers.2.attention.out.weight"][:, size:] = 0
    weights["layers.3.attention.out.weight"][:, :size] = 0
    return LatentLoop(Checkpoint(run=run, weights=weights, metrics={}))


def test_values_that_come_in_two_layers_are_gathered_all_the_same():
    trained = split_in_two()
    size = find_size(trained, SETTINGS)
    assert size.solved == 1
    subject = Subject(trained=trained, size=size, settings=SETTINGS)
    found = heads.analyze(subject)
    result = flow.analyze(subject, found)
    assert result.attention["value"][-1, :, -1].tolist() == [0, 1, 1]
    assert result.gathered.tolist() == [1, 1, 1]
    finding = findings.gather({"heads": found, "flow": result})
    assert finding.holds
    assert finding.checked
    assert findings.names({"heads": found, "flow": result}).checked
    values = embeddings.analyze(subject, found, result)  # of the stream: the last layer's heads add two values of three
    assert values.stream
    assert values.changes.exchanged == values.changes.unshared == 1
    assert values.main.explained > 0.99
