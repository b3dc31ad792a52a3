"""What weights do not tell is not told: values that were looked up and then pass through an MLP."""

from dataclasses import replace

import pytest

from handmade import handmade
from latentloop.evaluate.pretrained import LatentLoop
from latentloop.interpret import findings, value_findings
from latentloop.interpret.registry import ANALYSES
from latentloop.interpret.subject import Settings, Size, Subject
from latentloop.model.build import build_model, weights_of
from latentloop.train.checkpoint import Checkpoint

SETTINGS = Settings(scenes=1, instances=2, rollouts=4, pairs=4, samples=160)
SIZE = Size(nodes=12, solved=1.0, tried={}, repeats=True, probes_right=1.0)
NEEDED = ("heads", "flow", "circuits", "embeddings", "errors")


def with_first_mlp() -> LatentLoop:
    """The circuit that looks values up first, with an MLP in the first layer, be it one that adds nothing."""
    plain = handmade("values")
    run = replace(plain.run, model=replace(plain.run.model, first_mlp=True))
    weights = {name: weight.copy() for name, weight in weights_of(build_model(run)).items()}
    assert not weights.keys() <= weights_of(plain.model).keys()
    weights["layers.0.mlps.0.out.weight"][:] = 0
    weights["layers.0.mlps.0.out.bias"][:] = 0
    return LatentLoop(Checkpoint(run=run, weights=weights | weights_of(plain.model), metrics={}))


@pytest.mark.parametrize("mlp", [True, False])
def test_an_mlp_between_look_up_and_last_layer_is_not_left_out(mlp):
    subject = Subject(trained=with_first_mlp() if mlp else handmade("values"), size=SIZE, settings=SETTINGS)
    known = {}
    for name in NEEDED:
        known[name] = ANALYSES[name].run(subject, known)
    assert known["flow"].first_layer == "look-up"
    values = [group for group in known["circuits"].groups if group.layer == 1 and group.group.startswith("value")]
    assert len(values) == 3
    finding = findings.value_groups(known)
    assert finding.holds
    assert finding.checked
    if mlp:
        assert "first layer's MLP" in known["embeddings"].unknown
        assert known["embeddings"].similarity is known["embeddings"].raw_similarity is None
        assert known["embeddings"].circulant.keys() == {"measured"}
        assert {group.copied for group in values} == {None}
        assert known["errors"].weights_cosine is known["errors"].weights_counts is None
        assert "weights do not tell what they amplify: values that were looked up pass" in finding.evidence
        assert "first layer's MLP" in value_findings.orthogonal(known).evidence
    else:
        assert known["embeddings"].unknown == ""
        assert known["embeddings"].similarity is not None
        assert {group.copied for group in values} == {"value"}
        assert known["errors"].weights_counts is not None
