"""What results say on statements: each case decides by itself."""

from types import SimpleNamespace

import numpy as np
import pytest

from latentloop.interpret.claims import STATEMENTS
from latentloop.interpret.errors import Errors


@pytest.mark.parametrize(
    ("right", "strongest", "control", "verdict", "number"),
    [
        (1.0, [0.2, 0.995, 1.0, 1.0], 0.5, "supported", "2 of 4"),
        (1.0, [0.2, 0.5, 0.995, 1.0], 0.5, "not supported", "3 of 4"),  # more than 60 %
        (0.9, [0.2, 0.995, 1.0, 1.0], 0.5, "not supported", "2 of 4"),  # wrong before anything is removed
        (1.0, [0.2, 0.3, 0.4, 0.5], 0.5, "not supported", "none of 4"),
        (1.0, [0.2, 0.995, 1.0, 1.0], 0.95, "not supported", "2 of 4"),  # random directions do as well
    ],
)
def test_whether_few_frequencies_suffice_is_judged_for_each_operation_by_itself(
    right, strongest, control, verdict, number
):
    def pattern(name, right, strongest, control):
        without = SimpleNamespace(
            triples_strongest=np.array(strongest),
            triples_random=np.array([0.1, control, 1.0, 1.0]),
            triples_without_entering=np.ones(4),
            entering=np.array([4, 3, 2, 1]),
        )
        return SimpleNamespace(name=name, right=right, without=without)

    sums = pattern("a + b + c", 1.0, [1.0, 1.0, 1.0, 1.0], 0.5)
    products = pattern("a * b * c", right, strongest, control)
    results = {"fourier": SimpleNamespace(patterns=[sums, products])}
    found = {}
    for name in ("few for sums", "few for differences", "few for products"):
        finding = STATEMENTS[name].find(results)
        found[name] = finding if isinstance(finding, str) else (finding.holds and finding.checked, finding.number)
    assert found["few for sums"] == (True, "1 of 4")
    assert found["few for differences"] == "the model does not know -"
    assert found["few for products"] == (verdict == "supported", number)


@pytest.mark.parametrize(
    ("kind", "sizes", "first", "last", "verdict"),
    [
        ("look-up", [8, 16], [0.1, 0.2], None, True),
        ("look-up", [8, 16], [0.1, 0.9], None, False),
        ("look-up", [8, 16], [3.0, 3.0], None, False),  # as diffuse at every size is not sharp
        ("look-up", [8], [0.0], None, "one size was measured, N = 8"),
        (
            "look-up",
            [8, 16],
            None,
            None,
            "the first layer is not computed at operands, or does not see their definitions",
        ),
        ("names", [8, 16], [0.1, 0.1], [0.0, 0.2], True),
        ("names", [8, 16], [0.1, 0.1], [0.0, 0.9], False),  # where values are looked up counts too
        ("neither", [8, 16], [0.0, 0.0], [0.0, 0.0], "the first layer brings neither all names nor all values"),
    ],
)
def test_sharpness_is_judged_where_the_circuit_needs_it(kind, sizes, first, last, verdict):
    curves = [None if curve is None else np.array(curve) for curve in (first, last)]
    wide = [np.full(2, 5.0)] * 2  # what the circuit does not need may be diffuse
    links = {"look-up": curves, "name": wide, "value": wide}
    if kind != "look-up":
        links = {"look-up": wide, "name": curves, "value": [wide[0], curves[1]]}
    found = SimpleNamespace(
        sizes=sizes,
        at_rhs=[None, None],
        links=links,
        solved=1.0,
        sharpened=[1.0, 1.0],
        largest=1.0,
        largest_sharpened=[1.0, 1.0],
    )
    finding = STATEMENTS["length"].find({"sharpness": found, "flow": SimpleNamespace(first_layer=kind)})
    assert finding == verdict if isinstance(finding, str) else (finding.holds and finding.checked) == verdict


@pytest.mark.parametrize(
    ("lookups", "layer", "alone", "supported"),
    [
        ([0, 2], [1.0, 1.0, 1.0], [1.0, 0.95, 1.0], True),
        ([0, 2], [1.0, 1.0, 1.0], [0.8, 0.6, 0.9], False),  # other heads take part
        ([0, 2], [1.0, 0.3, 1.0], [1.0, 1.0, 1.0], False),
        ([], [1.0, 1.0, 1.0], [], False),
    ],
)
def test_a_look_up_is_that_of_the_heads_named(lookups, layer, alone, supported):
    first = SimpleNamespace(lookups=lookups, lookup_share=np.array([0.5, 0.0, 0.6]))
    groups = [SimpleNamespace(kind="lookups", layer=0, moved=share) for share in alone]
    copies = [SimpleNamespace(layer=0, group="look-up", copied="value")] if lookups else []
    finding = STATEMENTS["lookup"].find(
        {
            "heads": SimpleNamespace(layers=[first, first]),
            "flow": SimpleNamespace(lookups=np.array(layer), groups=groups),
            "circuits": SimpleNamespace(groups=copies),
        }
    )
    assert (finding.holds and finding.checked) == supported


def test_a_state_is_not_judged_by_values_that_are_wrong_anyway():
    drifted = SimpleNamespace(carries="hidden", known_right=np.array([1.0]), change=np.array([0.0]))
    between = SimpleNamespace(children=3, left_out=60, taken=1.0, follow=1.0)
    found = STATEMENTS["state"].find({"drift": drifted, "iterations": between})
    assert found.endswith("3 are right when nothing is patched, 60 are not: too few to tell")
    between.children = 30
    found = STATEMENTS["state"].find({"drift": drifted, "iterations": between})
    assert found.holds
    assert found.checked


def test_false_alarms_are_those_of_right_values():
    counts = np.zeros((2, 3, 2, 40), int)
    counts[0, :, 1, 36], counts[0, 0, 1, 35], counts[0, :, 0, 0], counts[1, :, 1, 0] = 9, 3, 50, 50
    edges = np.linspace(0, 1, 41)  # bin 36 begins at 0.9
    fine = np.zeros((2, 3, 2, 40), int)
    fine[0, :, 1, 38] = 1  # of -1 to 1, the bin that begins at 0.9
    made = {
        "instances": 1, "nodes": 8, "checked": 1, "counts": {}, "circuit": "look-up", "grouped": False,
        "retried": 0, "wrong_again": 0.0,
        "attention_edges": edges, "cosine_edges": np.linspace(-1, 1, 41), "cosine": fine,
        "weights_cosine": None, "weights_counts": None,
    }  # fmt: skip
    found = Errors(attention=counts, **made)
    assert found.below("attention") == pytest.approx(0.1)
    assert found.below("cosine") == 0
    assert found.doubtful == ["first attention"]
    assert not Errors(attention=fine, **made).doubtful


def test_geometry_is_that_of_the_vectors_that_are_exchanged():
    def judged(name, modulus):
        fitted = SimpleNamespace(vectors=np.zeros((3, modulus + 1, 4)))
        changes = SimpleNamespace(right=1.0, exchanged=1.0, turned=1.0, shuffled=0.1, unshared=1.0)
        found = SimpleNamespace(
            main=fitted,
            changes=changes,
            unknown="operands share heads",
            circulant={"weights": 1.0, "measured": 0.2},
            orthogonality={"measured": 0.9},
        )
        return STATEMENTS[name].find({"embeddings": found})

    assert not judged("circulant", 5).holds
    assert "1.00 of those from weights" in judged("circulant", 5).evidence
    assert judged("circulant", 3) == "3 values have too few differences to tell a circle by: at least 5"
    assert judged("orthogonal", 3).holds
