"""The paper's statements on sinks, on values that are there, on errors, and on what is empty."""

from copy import deepcopy
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from handmade import HEADS, P, handmade
from latentloop.interpret import errors, findings, state_findings, value_findings
from latentloop.interpret import sinks as sinks_module
from latentloop.interpret.registry import ANALYSES
from latentloop.interpret.subject import Settings, Size, Subject

SETTINGS = Settings(scenes=1, instances=2, rollouts=4, pairs=4, samples=160)
SIZE = Size(nodes=12, solved=1.0, tried={}, repeats=True, probes_right=1.0)


@pytest.fixture(scope="module", params=["names", "values"])
def studied(request):
    """One of the handmade circuits, and what its analyses find."""
    subject, known = Subject(trained=handmade(request.param), size=SIZE, settings=SETTINGS), {}
    for name in ("heads", "flow", "sinks", "embeddings", "errors", "recompute"):
        known[name] = ANALYSES[name].run(subject, known)
    return subject, known


def test_heads_of_a_missing_operand_attend_to_sinks_and_need_nothing_from_there(studied):
    subject, known = studied
    found = known["sinks"]
    assert set(found.weights) >= {"layer 2, head 0", "layer 2, head 1"}
    assert found.right == found.masked == 1
    finding = findings.sinks(known)
    assert finding.holds
    assert finding.checked
    # A head that is taken for one of a missing operand, and reads one that is there, is no sink, and is needed.
    layers = known["heads"].layers
    groups = layers[1].values_at_rhs | {"VAR0": [2], "VAR2": [0]}
    wrong = replace(known["heads"], layers=[layers[0], replace(layers[1], values_at_rhs=groups)])
    assert sinks_module.analyze(subject, wrong).weights["layer 2, head 2"] < 0.01
    assert not findings.sinks({"sinks": sinks_module.analyze(subject, wrong)}).holds


def test_what_a_sink_brings_may_be_needed(studied):
    _, known = studied
    found = replace(known["sinks"], masked=0.2)
    assert not findings.sinks({"sinks": found}).checked
    nobody = SimpleNamespace(weights={}, right=1.0, masked=1.0)
    assert "no head serves VAR0 or VAR1 alone" in findings.sinks({"sinks": nobody})


def test_the_vector_of_an_empty_operand_is_one_of_its_own(studied):
    _, known = studied
    finding = value_findings.empty(known)
    assert finding.holds
    assert finding.checked
    values = deepcopy(known["embeddings"])
    values.main.vectors[:, P] = values.main.vectors[:, 0]  # as if empty were like 0
    assert not value_findings.empty({"embeddings": values}).holds
    used = replace(values, changes=replace(values.changes, no_empty=1.0))  # empty without its vector too
    assert not value_findings.empty({"embeddings": used}).checked


def test_a_model_that_computes_everything_again_is_not_idle(studied):
    _, known = studied
    found = known["errors"]
    assert min(*found.attended(late=False), *found.attended(late=True)) > 0.95
    finding = state_findings.idle(known)
    assert not finding.holds
    assert not finding.checked
    attention = found.attention.copy()
    attention[1] = np.flip(attention[1], -1)  # as if there were none later
    recompute = replace(known["recompute"], kept=1.0, restored=0.0)
    finding = state_findings.idle({"errors": replace(found, attention=attention), "recompute": recompute})
    assert finding.holds
    assert finding.checked


@pytest.mark.parametrize("broken", ["the MLP", "attention"])
def test_feed_forward_errors_are_wrong_again_when_attention_is_made_perfect(studied, broken):
    subject, known = studied
    trained = handmade("names" if known["errors"].circuit == "names" else "values")
    if broken == "the MLP":  # takes one result for another
        out = trained.model.layers[1].mlps[0].out.weight
        out.data[:, : P**3] = torch.roll(out.data[:, : P**3], 1, dims=1)
    else:  # the head of VAR0 brings nothing
        size = trained.model.config.width // HEADS
        trained.model.layers[1].attention.out.weight.data[:, :size] = 0
    broken_one = replace(subject, trained=trained)
    found = errors.analyze(broken_one, known["heads"], known["flow"], known["embeddings"])
    if broken == "the MLP":
        assert sum(found.counts.values()) == found.counts["feed-forward"] > 0
        assert found.retried > 0
        assert found.wrong_again == 1
    else:
        assert found.counts["second copy"] > 0
        assert found.counts["feed-forward"] == found.retried == 0


@pytest.mark.parametrize(
    ("counts", "again", "doubtful", "verdict"),
    [
        ((9, 1, 30), 1.0, [], True),  # the paper's
        ((9, 1, 30), 0.2, [], False),  # made right by what attention should add: not the MLP's
        ((20, 10, 10), 1.0, [], False),
        ((0, 1, 3), 1.0, [], "4 wrong values of 1,000 are too few to tell"),
        ((9, 1, 30), 1.0, ["second copy"], "the threshold for second copy errors does not tell"),
    ],
)
def test_most_errors_are_those_of_the_feed_forward_part(counts, again, doubtful, verdict):
    names = ("first attention", "second copy", "feed-forward")
    found = SimpleNamespace(
        counts=dict(zip(names, counts, strict=True)) | {"leaf": 0},
        checked=1000,
        doubtful=doubtful,
        retried=counts[2],
        wrong_again=again,
    )
    finding = state_findings.feed_forward({"errors": found})
    if isinstance(finding, str):
        assert isinstance(verdict, str)
        assert finding.startswith(verdict)
    else:
        assert (finding.holds and finding.checked) == verdict
