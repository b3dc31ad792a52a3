"""Sizes that attention is measured at, also those at which the model fails."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from handmade import GRAPH, TASK, handmade
from latentloop.config.positions import AbsoluteConfig
from latentloop.evaluate.pretrained import LatentLoop
from latentloop.interpret import findings, sharpness
from latentloop.interpret.subject import Settings, Size, Subject
from latentloop.model.build import build_model, weights_of
from latentloop.presets import preset
from latentloop.train.checkpoint import Checkpoint

SETTINGS = Settings(scenes=1, rollouts=4)
SMALL = Size(nodes=8, solved=1.0, tried={}, repeats=False, probes_right=None)


def test_sizes_beyond_the_one_that_is_studied_are_measured():
    found = sharpness.analyze(Subject(trained=handmade("values"), size=SMALL, settings=SETTINGS))
    assert found.sizes == [8, 12]  # as many nodes as there are names
    assert max(found.links["look-up"][0]) < 0.01
    assert found.largest == 1
    assert found.largest_sharpened == [1, 1]


@pytest.mark.parametrize(("positions", "sizes"), [(66, [8]), (1024, [8, 12])])
def test_sizes_without_positions_are_left_out(positions, sizes):
    run = preset("tiny-discrete")
    model = replace(run.model, width=16, positions=AbsoluteConfig(max_positions=positions))
    run = replace(run, task=TASK, graph=replace(GRAPH, nodes=8), model=model)
    trained = LatentLoop(Checkpoint(run=run, weights=weights_of(build_model(run)), metrics={}))
    assert sharpness.analyze(Subject(trained=trained, size=SMALL, settings=SETTINGS)).sizes == sizes


@pytest.mark.parametrize(
    ("largest", "sharpened", "supported"),
    [
        (1.0, 1.0, True),
        (0.4, 0.4, True),  # the model fails there, but not by attention
        (0.4, 0.9, False),  # sharper attention would be right: it is dispersed
        (1.0, 0.4, False),
    ],
)
def test_sharper_attention_must_change_nothing_at_the_largest_size(largest, sharpened, supported):
    sharp = [np.array([0.0, 0.0])] * 2
    found = SimpleNamespace(
        sizes=[8, 16],
        at_rhs=[None, None],
        links=dict.fromkeys(sharpness.LINKS, sharp),
        solved=1.0,
        sharpened=[1.0, 1.0],
        largest=largest,
        largest_sharpened=[sharpened, 1.0],
    )
    finding = findings.stays_sharp({"sharpness": found, "flow": SimpleNamespace(first_layer="look-up")})
    assert (finding.holds and finding.checked) == supported
