"""Where errors come from: one part of a hand-built circuit is broken, and that part is named."""

from dataclasses import fields, replace

import numpy as np
import pytest

from handmade import HEADS, NAMES, P, handmade
from latentloop.interpret import attribution, errors
from latentloop.interpret.registry import ANALYSES
from latentloop.interpret.subject import Settings, Size, Subject

SIZE = Size(nodes=NAMES, solved=1.0, tried={}, repeats=True, probes_right=1.0)
SETTINGS = Settings(scenes=1, instances=4, rollouts=24, pairs=6, samples=160)


@pytest.fixture(scope="module")
def known():
    """What is known of the circuit before anything in it is broken."""
    subject, results = Subject(trained=handmade("names"), size=SIZE, settings=SETTINGS), {}
    for name in ("heads", "flow", "embeddings"):
        results[name] = ANALYSES[name].run(subject, results)
    return results


def head_of_var1(model):
    """Return where the head of VAR1 begins, and its size, in both layers."""
    size = model.config.width // HEADS
    return size, size


def attend_elsewhere(model):
    """Let the first layer's head of VAR1 waver between its token and others."""
    start, size = head_of_var1(model)
    model.positions.keys[0].weight.data[start : start + size] *= 0.055


def forget_names(model):
    """Let the last layer's head of VAR1 ask for nothing where the operand is one of half of all names: it finds no value."""
    start, _ = head_of_var1(model)
    model.layers[1].attention.project.weight.data[start : start + NAMES // 2] = 0


def exchange_values(model):
    """Let the last layer's head of VAR1 copy 0 as 1, and 1 as 0."""
    start, _ = head_of_var1(model)
    rows = model.layers[1].attention.project.weight.data[2 * model.config.width + start :]
    rows[[0, 1]] = rows[[1, 0]]


def forget_sums(model):
    """Let the MLP know no sum of three whose VAR0 is 0: these are its first units."""
    model.layers[1].mlps[0].into.bias.data[: P**2] = -100


def forget_numbers(model):
    """Let the head that reads the literal of a leaf copy nothing."""
    size = model.config.width // HEADS
    model.layers[0].attention.project.weight.data[2 * model.config.width + 3 * size :][:size] = 0


@pytest.mark.parametrize(
    ("broken", "source", "by_weights", "unattended", "far"),
    [
        (attend_elsewhere, "first attention", "first attention", [1], None),
        (forget_names, "second copy", "second copy", [], [1]),
        # The weights say that 0 is copied as 1, and so it is: only what was measured before tells.
        (exchange_values, "second copy", "feed-forward", [], [1]),
        (forget_sums, "feed-forward", "feed-forward", [], []),
        (forget_numbers, "leaf", "leaf", [], []),
    ],
    ids=lambda given: getattr(given, "__name__", None),
)
def test_the_part_that_is_broken_is_the_source(known, broken, source, by_weights, unattended, far):
    trained = handmade("names")
    broken(trained.model)
    subject = Subject(trained=trained, size=SIZE, settings=SETTINGS)
    found = errors.analyze(subject, known["heads"], known["flow"], known["embeddings"])
    assert found.counts[source] > 0
    assert found.counts[source] == sum(found.counts.values())
    assert found.weights_counts == dict.fromkeys(attribution.SOURCES, 0) | {by_weights: found.counts[source]}

    def operands_below(counts, edges, least):
        """Return the operands of wrong values, still to be computed, that lie below a threshold."""
        return np.flatnonzero(counts[0, :, 0][:, edges[1:] <= least + 1e-9].sum(1)).tolist()

    assert operands_below(found.attention, found.attention_edges, attribution.ATTENTION) == unattended
    if far is not None:  # where the wrong token is attended to, a wrong value is copied too
        assert operands_below(found.cosine, found.cosine_edges, attribution.COSINE) == far
        told = far if by_weights == "second copy" else []
        assert operands_below(found.weights_cosine, found.cosine_edges, attribution.COSINE) == told


def test_nothing_is_wrong_where_nothing_is_broken(known):
    subject = Subject(trained=handmade("names"), size=SIZE, settings=SETTINGS)
    found = errors.analyze(subject, known["heads"], known["flow"], known["embeddings"])
    assert found.counts == found.weights_counts == dict.fromkeys(attribution.SOURCES, 0)
    assert found.attention[:, :, 0].sum() == found.cosine[:, :, 0].sum() == 0
    assert [found.below(what) for what in ("attention", "cosine", "weights_cosine")] == [0, 0, 0]


def test_parts_add_up_to_the_whole(known, monkeypatch):
    trained = handmade("names")
    forget_sums(trained.model)
    subject = Subject(trained=trained, size=SIZE, settings=replace(SETTINGS, instances=9))
    needed = known["heads"], known["flow"], known["embeddings"]
    whole = errors.analyze(subject, *needed)
    monkeypatch.setattr(errors, "PART", 4)
    found = [errors.analyze(part, *needed) for part in errors.split(subject)]
    assert [part.instances for part in found] == [4, 4, 1]
    assert whole.counts["feed-forward"] > 0
    merged = errors.merge(found)
    for field in fields(whole):
        assert np.array_equal(getattr(merged, field.name), getattr(whole, field.name)), field.name
