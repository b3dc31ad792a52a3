"""Shapes of weights from a configuration alone, against those of the torch model."""

from dataclasses import dataclass, replace

import pytest
import torch

from latentloop.config.positions import PositionsConfig
from latentloop.errors import UserError
from latentloop.methods import METHODS
from latentloop.model import positions as encodings
from latentloop.model.build import outline
from latentloop.model.positions import POSITIONS, Positions
from latentloop.model.shapes import check_shapes, parameter_shapes
from latentloop.presets import PRESETS, preset
from latentloop.schema import changed


def built(run):
    return {name: tuple(parameter.shape) for name, parameter in outline(run).named_parameters()}


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_has_the_weights_that_torch_builds(name):
    assert parameter_shapes(PRESETS[name]) == built(PRESETS[name])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("encoding", POSITIONS)
def test_every_method_and_encoding_has_the_weights_that_torch_builds(method, encoding):
    for settings in (
        {"layers": 3, "mlp_depth": 2},
        {"layers": 1, "first_heads": None, "first_mlp": True, "lookup_noise": 0.0},
    ):
        run = preset(f"tiny-{method}")
        if "lookup_weight" in run.method.to_dict():
            run = changed(run, lookup_weight=0.0, partial_weight=0.0)
        run = changed(run, positions=PositionsConfig.kind(encoding)(), **settings)
        assert parameter_shapes(run) == built(run)


def test_an_encoding_that_was_added_tells_its_own_weights(monkeypatch):
    @dataclass(frozen=True, kw_only=True)
    class ScaledConfig(PositionsConfig, name="scaled"):
        """An encoding with one weight."""

    class Scaled(Positions):
        def __init__(self, config):
            super().__init__(config)
            self.scale = torch.nn.Parameter(torch.ones(3))

    try:
        monkeypatch.setitem(encodings.POSITIONS, "scaled", Scaled)
        run = preset("tiny-discrete")
        run = replace(run, model=replace(run.model, positions=ScaledConfig()))
        assert parameter_shapes(run)["positions.scale"] == (3,)
    finally:
        del PositionsConfig.kinds["scaled"]


def test_weights_that_do_not_match_are_named():
    for found, message in (
        ({}, r"the weights do not match the configuration: missing \[a\], unexpected \[\]"),
        ({"a": (2,), "b": (1,)}, r"missing \[\], unexpected \[b\]"),
        ({"a": (3,)}, r"a has the shape \(3,\), expected \(2,\)"),
    ):
        with pytest.raises(UserError, match=message):
            check_shapes("the weights", {"a": (2,)}, found)
