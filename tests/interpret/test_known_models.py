"""Models with one property that was built in, which is found, and models without it, in which it is not."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from handmade import GRAPH, HEADS, NAMES, TASK, handmade
from latentloop.config import ModelConfig, RunConfig
from latentloop.config.positions import LocalConfig
from latentloop.evaluate.pretrained import LatentLoop
from latentloop.interpret import drift
from latentloop.interpret.ablation import ablation_problems
from latentloop.interpret.claims import judge
from latentloop.interpret.flow import Flow
from latentloop.interpret.probes import labels
from latentloop.interpret.registry import ANALYSES
from latentloop.interpret.subject import Settings, Size, Subject
from latentloop.methods import Continuous
from latentloop.model.build import build_model, weights_of
from latentloop.model.recurrence import decide
from latentloop.task.oracle import solve
from latentloop.train.checkpoint import Checkpoint

SIZE = Size(nodes=NAMES, solved=1.0, tried={}, repeats=True, probes_right=1.0)
SETTINGS = Settings(scenes=1, rollouts=8, pairs=6, samples=160)


def analyzed(trained, *names, known=None, **settings):
    """Run analyses after those that are ``known``; return results and verdicts."""
    subject, results = Subject(trained=trained, size=SIZE, settings=replace(SETTINGS, **settings)), dict(known or {})
    for name in names:
        results[name] = ANALYSES[name].run(subject, results)
    return results, {claim.name: claim.verdict for claim in judge(results, {})}


@pytest.mark.parametrize(("code", "circle"), [("circle", True), ("scattered", False)])
def test_circles_and_few_frequencies_are_found_where_they_are(code, circle):
    arrives = {"name": np.ones((2, 3, 8)), "value": np.zeros((2, 3, 8))}  # what patches say of this circuit
    flow = Flow(
        positions=labels(), attention=arrives, gathered=np.ones(3), residual=arrives, groups=[], right=1.0, pairs=1
    )
    trained = handmade("names", code=code)
    results, verdicts = analyzed(trained, "heads", "embeddings", "fourier", known={"flow": flow})
    values, (pattern,) = results["embeddings"], results["fourier"].patterns
    for kind in ("weights", "raw", "measured"):
        assert values.circulant[kind] > 0.999 if circle else values.circulant[kind] < 0.1
    np.testing.assert_allclose(list(values.orthogonality.values()), 1, atol=1e-3)
    assert values.changes.exchanged == 1
    assert pattern.right == pattern.without.solved == 1
    assert min(site.diagonal for site in pattern.sites[-2:]) > 0.999
    without = pattern.without
    if circle:  # of frequency 2, the second one
        np.testing.assert_allclose(without.entering, [0, 1], atol=1e-6)
        np.testing.assert_allclose(without.triples_without_entering, [1, 0.2])
        np.testing.assert_allclose(without.triples_strongest, [1, 1])
        assert without.triples_random[0] < 0.5
    else:
        assert without.entering.min() > 0.3
        np.testing.assert_allclose(without.triples_without_entering, [0.2, 0.2])
        np.testing.assert_allclose(without.triples_strongest, [0.2, 1])
    assert {verdicts[name] for name in ("orthogonal", "sums", "alone")} == {"supported"}
    assert {verdicts[name] for name in ("circulant", "few for sums")} == {"supported" if circle else "not supported"}


@pytest.mark.parametrize(
    ("operation", "code", "name", "few"),
    [
        ("-", "circle", "differences", True),
        ("*", "circle", "products", True),  # of logarithms
        ("*", "one-hot", "products", False),
    ],
)
def test_differences_and_products_are_on_their_own_diagonal(operation, code, name, few):
    results, verdicts = analyzed(handmade("names", code=code, operation=operation), "fourier")
    (pattern,) = results["fourier"].patterns
    assert pattern.name == f"a {operation} b {operation} c"
    assert pattern.triples == (4 if operation == "*" else 5) ** 3
    assert pattern.right == pattern.without.solved == 1
    assert pattern.sites[0].diagonal < 0.001
    assert min(site.diagonal for site in pattern.sites[-2:]) > 0.999
    assert pattern.without.solved_only == 1
    assert pattern.without.solved_without[:-1].min() == 1
    assert pattern.without.solved_without[-1] < 0.5
    verdict = {True: "supported", False: "not supported"}
    assert (verdicts[name], verdicts["alone"], verdicts[f"few for {name}"]) == ("supported", "supported", verdict[few])
    others = {"sums", "differences", "products"} - {name}
    assert {verdicts[other] for other in others} == {"does not apply"}


@pytest.mark.parametrize("keeps", [True, False])
def test_values_are_kept_or_computed_again(keeps):
    trained = handmade("names", keeps=keeps)
    results, verdicts = analyzed(
        trained, "recompute", rollouts=100
    )  # so many that wrong values have wrong operands too
    found, between = results["recompute"], analyzed(trained, "iterations")[0]["iterations"]
    assert found.wrong > 0
    assert found.affected > 0
    assert found.undisturbed == 1
    assert (found.kept, found.stay) == ((1, 1) if keeps else (0, 0))
    assert (found.restored, found.follow) == ((0, 0) if keeps else (1, 1))
    # A value that is patched in is kept too; what is computed from it for the first time follows it.
    assert (between.kept, between.restored) == ((1, 0) if keeps else (0, 1))
    assert (between.taken, between.follow, between.unmoved) == (1, 1, 0)
    assert verdicts["carried"] == ("supported" if keeps else "not supported")
    assert verdicts["correction"] == ("not supported" if keeps else "supported")


@pytest.mark.parametrize("how", ["keeps", "copies", ""])
def test_a_head_that_copies_a_value_to_keep_it_is_found(how):
    trained = handmade("names", **({how: True} if how else {}))
    results, verdicts = analyzed(trained, "keeping", "recompute", scenes=2)
    found = results["keeping"]
    assert found.kept.tolist() == [1.0 if how else 0.0] * 3
    assert found.computed.tolist() == [0.0 if how else 1.0] * 3
    assert found.heads == [[], [HEADS - 1] if how == "copies" else []]
    assert found.copied.tolist() == [1.0 if how == "copies" else 0.0] * 3
    if how == "copies":
        np.testing.assert_allclose(found.itself[1][..., HEADS - 1], 1, atol=1e-3)
        np.testing.assert_allclose(found.itself[1][..., : HEADS - 1], 0, atol=1e-3)
        assert found.without[1][:, : HEADS - 1].min() == 1
        assert found.without_layer[1].tolist() == found.without[1][:, HEADS - 1].tolist() == [0, 0, 0]
    verdict = {"copies": "supported", "keeps": "not supported", "": "does not apply"}
    assert verdicts["copied"] == verdict[how]
    assert verdicts["carried"] == ("supported" if how else "not supported")


@pytest.mark.parametrize("growth", [1.0, 2.0])
def test_vectors_that_decode_right_may_hold_or_drift(growth, monkeypatch):
    monkeypatch.setattr(drift, "BEYOND", 3)
    results, verdicts = analyzed(handmade("names", growth=growth), "drift", "iterations")
    found, between = results["drift"], results["iterations"]
    assert found.carries == "hidden"
    assert len(found.right) == found.deepest + 3 > 5
    assert found.right.tolist() == found.known_right.tolist() == [1] * len(found.right)
    assert found.margin.min() > 1
    assert found.change[0] > 0.1  # what is not known yet is computed
    np.testing.assert_allclose(found.change[found.deepest :], growth - 1, atol=1e-5)
    assert (between.taken, between.follow, between.unmoved) == (1, 1, 0)
    assert growth > 1 or verdicts["state"] == "supported"


def test_a_state_that_the_next_iteration_does_not_read_is_no_state():
    """What is patched is decoded, but every iteration goes on from a copy that no patch has reached."""
    trained = handmade("names", growth=1.0)
    model, kept = trained.model, {}
    once = model.forward

    def forward(state, layout, lookups=None):
        if state.iteration == 0:
            kept[0] = state
        before = kept[state.iteration]
        output = once(before, layout)
        listeners, model.taps.listeners = model.taps.listeners, []
        kept[state.iteration + 1] = decide(model, once(before, layout), before, layout)
        model.taps.listeners = listeners
        return output

    model.forward = forward
    held = SimpleNamespace(carries="hidden", known_right=np.ones(1), change=np.zeros(1))
    results, verdicts = analyzed(trained, "iterations", known={"drift": held})
    between = results["iterations"]
    assert between.children >= 8
    assert (between.taken, between.follow, between.unmoved, between.restored) == (1, 0, 1, 1)
    assert verdicts["state"] == "not supported"


@pytest.mark.parametrize(("sign", "change"), [(1, 0), (-1, 2)])
def test_a_block_that_only_turns_vectors_drifts_by_how_far_it_turns_them(sign, change, monkeypatch):
    """Its layers add nothing, its last LayerNorm keeps or negates what it is given, and it says ``empty`` everywhere."""
    config = ModelConfig(positions=LocalConfig(), layers=2, heads=2, width=16, dropout=0.0)
    run = RunConfig(method=Continuous(), task=TASK, graph=GRAPH, model=config)
    trained = LatentLoop(Checkpoint(run=run, weights=weights_of(build_model(run)), metrics={}))
    with torch.no_grad():
        for name, weight in trained.model.named_parameters():
            if name.startswith("embeddings"):
                torch.nn.init.normal_(weight, generator=torch.Generator().manual_seed(0))
            elif "norm" not in name:
                weight.zero_()
        trained.model.norm.weight.fill_(sign)
        trained.model.readouts["value"].bias[-2:] = torch.tensor([1.0, 3.0])
    monkeypatch.setattr(drift, "BEYOND", 3)
    subject = Subject(trained=trained, size=SIZE, settings=SETTINGS)
    found = ANALYSES["drift"].run(subject, {})
    problems = ablation_problems(subject)
    depths = solve(problems).depths[problems.exists]
    np.testing.assert_allclose(found.change, change, atol=1e-4)
    np.testing.assert_allclose(found.right, [(depths > number).mean() for number in range(1, len(found.right) + 1)])
    assert found.known_right.tolist() == [0] * len(found.right)
    assert found.margin.tolist() == [2] * len(found.right)
    assert (found.deepest, len(found.change)) == (depths.max(), len(found.right) - 1)
