"""What each MLP changes is measured on probes that really differ."""

import numpy as np
import pytest

from handmade import handmade
from latentloop.interpret import residual
from latentloop.interpret.subject import Settings, Size, Subject

SETTINGS = Settings(scenes=4)


@pytest.mark.parametrize("repeats", [True, False])
@pytest.mark.parametrize("circuit", ["names", "values"])
def test_most_samples_differ(circuit, repeats):
    """Also in a circuit whose first layer brings no values to the right-hand side, where values alone would be 4 numbers."""
    size = Size(nodes=12, solved=1.0, tried={}, repeats=repeats, probes_right=1.0)
    subject = Subject(trained=handmade(circuit, random=True), size=size, settings=SETTINGS)
    found = residual.analyze(subject)
    assert found.change.shape[1] == residual.SAMPLES
    for change in found.change:
        assert len(np.unique(change.round(7))) > 0.9 * residual.SAMPLES


def test_probes_differ_in_operands_values_and_names():
    size = Size(nodes=12, solved=1.0, tried={}, repeats=True, probes_right=1.0)
    scene = next(Subject(trained=handmade("names"), size=size, settings=SETTINGS).scenes())
    probes = residual.varied_probes(scene, 64, np.random.default_rng(0))
    parents, names = probes.problems.parents[:, -1], probes.problems.names
    assert len(np.unique(parents, axis=0)) > 50
    assert len(np.unique(names[:, -1])) > 6
    rows = np.arange(64)[:, None]
    assert (names[rows, parents] != names[:, -1:]).all()  # a probe is never worth itself
    assert all(len(set(row)) == 3 for row in parents.tolist())
