"""Models as the page holds them."""

import base64
from dataclasses import replace

import numpy as np
import pytest

from latentloop.config import GraphConfig
from latentloop.config.positions import AbsoluteConfig
from latentloop.errors import UserError
from latentloop.explorer import models
from latentloop.explorer.models import halves_safely, pack_checkpoint, pack_tensors
from latentloop.presets import preset
from untrained import untrained

TINY = untrained(preset("tiny-stable"))


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
    name = "norm.weight"
    huge = replace(TINY, weights=TINY.weights | {name: TINY.weights[name] * 1e6})
    assert not halves_safely(huge)
    assert pack_checkpoint(huge, "huge")["precision"] == "single"


def test_half_precision_that_changes_a_state_is_refused():
    noisy = untrained(preset("tiny-stable"), noise=0.3)  # decisions of noise are close calls
    assert not halves_safely(noisy)


def test_what_cannot_be_checked_stays_single():
    run = preset("tiny-discrete")
    model = replace(run.model, positions=AbsoluteConfig(max_positions=18))  # too few for any problem of the check
    assert not halves_safely(untrained(replace(run, model=model, graph=GraphConfig(nodes=2))))


def test_models_too_large_for_a_page_are_refused(monkeypatch):
    monkeypatch.setattr(models, "MOST_WEIGHTS", 1000)
    with pytest.raises(UserError, match=r"a page can hold 1,000 weights, and tiny has [\d,]+: choose a smaller model"):
        pack_checkpoint(TINY, "tiny")
