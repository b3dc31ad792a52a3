"""Vectors of values: what a rotation, or a missing part, does to them, and to answers."""

from types import SimpleNamespace

import numpy as np
import pytest

from handmade import handmade
from latentloop.interpret import embeddings, flow, geometry, heads, value_findings
from latentloop.interpret.subject import Settings, Size, Subject

RNG = np.random.default_rng(0)
P = 11
SETTINGS = Settings(scenes=1, rollouts=4, pairs=4, samples=160)
SIZE = Size(nodes=12, solved=1.0, tried={}, repeats=True, probes_right=1.0)


def circles(*frequencies):
    """Vectors of P values on circles, turned at random in a space of 16."""
    angle = 2 * np.pi * np.outer(np.arange(P), frequencies) / P
    basis = np.linalg.qr(RNG.normal(size=(16, 16)))[0]
    return np.concatenate([np.cos(angle), np.sin(angle)], axis=1) @ basis[: 2 * len(frequencies)]


def test_a_rotation_adds_to_vectors_on_circles_and_does_not_shuffle_them():
    vectors = circles(2, 5)
    added = (np.arange(P) + 3) % P
    np.testing.assert_allclose(geometry.turned(vectors, added), vectors[added], atol=1e-9)
    shuffled = RNG.permutation(P)
    assert np.abs(geometry.turned(vectors, shuffled) - vectors[shuffled]).max() > 0.5


def test_vectors_that_are_all_alike_can_be_put_in_any_order():
    vectors = np.eye(P) - 1 / P
    shuffled = RNG.permutation(P)
    np.testing.assert_allclose(geometry.turned(vectors, shuffled), vectors[shuffled], atol=1e-9)


def test_vectors_without_structure_cannot_be_turned_by_adding():
    vectors, added = RNG.normal(size=(P, 4)), (np.arange(P) + 1) % P
    assert np.abs(geometry.turned(vectors, added) - vectors[added]).mean() > 0.3


def test_lengths_stay_as_they_are_when_vectors_are_turned():
    vectors = RNG.normal(size=(P, 16))
    after = geometry.turned(vectors, RNG.permutation(P))
    np.testing.assert_allclose(np.linalg.norm(after, axis=1), np.linalg.norm(vectors, axis=1))


def test_what_lies_in_the_span_of_others_is_taken_out():
    vectors, others = np.eye(6)[:3], np.eye(6)[2:5] * 2
    np.testing.assert_allclose(geometry.outside(vectors, others), np.diag([1.0, 1.0, 0])[:, :3] @ np.eye(6)[:3])
    noise = others + 1e-3 * RNG.normal(size=others.shape)  # the rest of its directions is noise
    np.testing.assert_allclose(geometry.outside(vectors, noise)[:2], np.eye(6)[:2], atol=1e-2)
    np.testing.assert_allclose(geometry.outside(vectors, np.zeros((2, 6))), vectors)


@pytest.fixture(scope="module")
def one_hot():
    """What is found in a model that has a direction for each operand's value."""
    subject = Subject(trained=handmade("names"), size=SIZE, settings=SETTINGS)
    known = heads.analyze(subject)
    return subject, embeddings.analyze(subject, known, flow.analyze(subject, known))


def test_answers_follow_any_rotation_where_there_is_no_circle(one_hot):
    _, found = one_hot
    changes = found.changes
    assert changes.right == changes.exchanged == changes.unshared == changes.empty == 1
    assert changes.turned == changes.shuffled == 1  # all pairs are alike: any order will do
    judged = value_findings.circulant({"embeddings": found})
    assert not judged.holds
    assert not judged.checked
    assert value_findings.orthogonal({"embeddings": found}).checked


def test_operands_that_share_their_vectors_need_what_they_share(one_hot):
    subject, found = one_hot
    vectors = found.main.vectors.copy()
    changes = geometry.change(subject, np.concatenate([vectors[:1], vectors[:1], vectors[2:]]))
    assert changes.unshared < 0.5


@pytest.mark.parametrize(
    ("score", "turned", "shuffled", "supported"),
    [(0.9, 1.0, 0.2, True), (0.9, 0.5, 0.2, False), (0.9, 1.0, 1.0, False), (0.3, 1.0, 0.2, False)],
)
def test_circles_need_the_rotation_that_adds_and_not_any_other(score, turned, shuffled, supported):
    found = SimpleNamespace(
        main=SimpleNamespace(vectors=np.zeros((3, P + 1, 4))),
        changes=SimpleNamespace(turned=turned, shuffled=shuffled, exchanged=1.0),
        circulant={"measured": score},
        unknown="operands share heads",
    )
    finding = value_findings.circulant({"embeddings": found})
    assert (finding.holds and finding.checked) == supported
    assert "none: operands share heads" in finding.evidence
