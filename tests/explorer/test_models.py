"""Models as the page holds them."""

import base64
from dataclasses import replace

import numpy as np
import pytest
import torch

from latentloop.errors import UserError
from latentloop.explorer import models
from latentloop.explorer.models import halves_safely, pack_checkpoint, pack_tensors
from latentloop.model.build import build_model, weights_of
from latentloop.presets import preset
from latentloop.train.checkpoint import Checkpoint


def _tiny() -> Checkpoint:
    run = preset("tiny-stable")
    return Checkpoint(run=run, weights=weights_of(build_model(run)), metrics={})


def test_tensors_come_back_from_base64():
    weights = {"b": np.arange(6, dtype=np.float32).reshape(2, 3), "a": np.array([0.1], np.float32)}
    for kind, name in ((np.float16, "F16"), (np.float32, "F32")):
        tensors, data = pack_tensors(weights, kind)
        content = base64.b64decode(data)
        for key, array in weights.items():
            assert tensors[key]["dtype"] == name
            assert tensors[key]["shape"] == list(array.shape)
            found = np.frombuffer(content, kind, array.size, tensors[key]["offset"]).reshape(array.shape)
            assert (found == array.astype(kind)).all()


def test_weights_that_half_precision_cannot_hold_stay_single():
    checkpoint = _tiny()
    name = "norm.weight"
    huge = replace(checkpoint, weights=checkpoint.weights | {name: torch.full_like(checkpoint.weights[name], 1e6)})
    assert not halves_safely(huge)
    assert pack_checkpoint(huge, "huge")["precision"] == "single"


def test_half_precision_that_changes_a_state_is_refused():
    run = preset("tiny-stable")
    noise = torch.Generator().manual_seed(0)
    weights = {
        name: tensor + 0.3 * torch.randn(tensor.shape, generator=noise)
        for name, tensor in weights_of(build_model(run)).items()
    }
    assert not halves_safely(Checkpoint(run=run, weights=weights, metrics={}))  # decisions of noise are close calls


def test_models_too_large_for_a_page_are_refused(monkeypatch):
    monkeypatch.setattr(models, "MOST_WEIGHTS", 1000)
    with pytest.raises(UserError, match=r"a page can hold 1,000 weights, and tiny has [\d,]+: choose a smaller model"):
        pack_checkpoint(_tiny(), "tiny")
