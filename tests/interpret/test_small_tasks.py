"""Tasks that leave probes no room: what needs none is computed all the same, and the rest says why it is not."""

from dataclasses import replace

import pytest

from handmade import GRAPH, TASK
from latentloop.config.positions import AbsoluteConfig, NoneConfig
from latentloop.evaluate.pretrained import LatentLoop
from latentloop.interpret.registry import ANALYSES
from latentloop.interpret.study import interpret
from latentloop.interpret.subject import Settings, Size, Subject, find_size
from latentloop.model.build import build_model, weights_of
from latentloop.presets import preset
from latentloop.train.checkpoint import Checkpoint

TINY = Settings(scenes=1, instances=1, rollouts=2, pairs=1, samples=32)
UNPROBED = {"recompute", "sharpness", "drift", "iterations"}


def untrained(nodes=8, **task):
    run = preset("tiny-discrete")
    run = replace(
        run, task=replace(TASK, **task), graph=replace(GRAPH, nodes=nodes), model=replace(run.model, width=16)
    )
    return LatentLoop(Checkpoint(run=run, weights=weights_of(build_model(run)), metrics={}))


@pytest.mark.parametrize(("names", "nodes"), [(6, 6), (11, 8)])
def test_a_model_of_few_names_is_studied_as_far_as_it_needs_no_probes(names, nodes, tmp_path):
    trained = untrained(nodes, names=names)
    size = find_size(trained, TINY)
    assert (size.nodes, size.probes_right) == (nodes, None)
    study = interpret(trained, tmp_path, TINY)
    assert set(study.results) == UNPROBED
    for name in ANALYSES.keys() - UNPROBED:
        assert study.stored[name].reason == f"probes need at least 12 names, and the model knows {names}"
    assert study.results["sharpness"].sizes == [nodes]
    assert all(claim.verdict != "supported" for claim in study.claims)


@pytest.mark.parametrize(
    ("positions", "names", "largest"),
    [
        (NoneConfig(), 70, 64),
        (NoneConfig(), 300, 128),
        (AbsoluteConfig(max_positions=200), 300, 24),
        (NoneConfig(), 6, 5),
    ],
)
def test_errors_are_looked_for_in_the_largest_problems_that_can_be_posed(positions, names, largest):
    trained = untrained(6, names=names)
    run = replace(trained.run, model=replace(trained.run.model, positions=positions))
    trained = LatentLoop(Checkpoint(run=run, weights=weights_of(build_model(run)), metrics={}))
    size = Size(nodes=5, solved=1.0, tried={}, repeats=False, probes_right=None)
    assert Subject(trained=trained, size=size, settings=TINY).largest == largest


def test_products_of_two_values_say_why_nothing_can_be_exchanged(tmp_path):
    study = interpret(untrained(12, modulus=2, operations=("*",)), tmp_path, TINY)
    assert {"heads", "ablation", "sinks", "residual"} | UNPROBED <= set(study.results)
    for name in ("flow", "circuits", "embeddings", "errors"):
        assert study.stored[name].reason.startswith("of 2 values one alone gives a product")
    assert "\n" not in study.stored["flow"].reason
