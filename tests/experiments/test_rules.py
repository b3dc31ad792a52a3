"""Every verdict of each rule, at its edges, from made-up results."""

import pytest

from experiment_documents import document, documents, encoded, named, with_steps
from latentloop.evaluate.metrics import wilson
from latentloop.experiments.claims import decide
from latentloop.experiments.table import EXPERIMENTS, POINTS

ALL_METHODS = ("feedforward", "recurrent", "cot", "continuous", "discrete", "corrected", "stable")
CORRECTION = [point.name for point in EXPERIMENTS["correction"].points]
ENCODED = [point.name for point in EXPERIMENTS["encodings"].points]
DEPTHS = [point.name for point in EXPERIMENTS["depth"].points]
AT_HALF = next(right for right in range(3000, 0, -1) if wilson(right, 3000)[1] < 0.5) / 3000
OVER_NINE_TENTHS = next(right for right in range(3000) if wilson(right, 3000)[0] > 0.9) / 3000
STEP = 1 / 1000  # three seeds of a thousand problems each


@pytest.fixture(autouse=True)
def _steps(monkeypatch):
    with_steps(monkeypatch)


def _seeds(name, *given, **changes):
    """Make one document for each seed of a point."""
    jobs = POINTS[name].jobs
    return {job.name: document(job, one, **changes) for job, one in zip(jobs, given, strict=True)}


@pytest.mark.parametrize(
    ("feedforward", "recurrent", "outcome"),
    [
        (0.0, AT_HALF - STEP, "reproduced"),
        (0.0, AT_HALF + STEP, "differs"),
        (0.0, OVER_NINE_TENTHS - STEP, "differs"),
        (0.0, OVER_NINE_TENTHS + STEP, "not reproduced"),
        (0.97, 0.0, "not reproduced"),
    ],
)
def test_end_to_end_fails(feedforward, recurrent, outcome):
    found = decide(
        "end-to-end-fails", documents(feedforward={8: 1.0, 16: feedforward}, recurrent={8: 1.0, 16: recurrent})
    )
    assert found.outcome == outcome
    assert f"recurrent {', '.join([f'{100 * recurrent:.1f}'] * 3)} %" in found.because


@pytest.mark.parametrize(
    ("feedforward", "recurrent", "outcome"),
    [
        ((0.1, 0.1, 0.1), (0.2, 0.2, 0.2), "reproduced"),
        ((0.1, 0.1, 0.1), (0.2, 0.2, 0.05), "reproduced"),
        ((0.1, 0.1, 0.3), (0.2, 0.2, 0.05), "differs"),  # ahead in two, and yet less in the mean
        ((0.1, 0.1, 0.1), (0.31, 0.31, 0.31), "differs"),  # by more than slightly
        ((0.1, 0.1, 0.1), (0.1, 0.1, 0.1), "differs"),
        ((0.2, 0.2, 0.1), (0.1, 0.1, 0.9), "not reproduced"),
    ],
)
def test_recurrent_over_feedforward(feedforward, recurrent, outcome):
    results = _seeds("feedforward", *feedforward) | _seeds("recurrent", *recurrent)
    assert decide("recurrent-over-feedforward", results).outcome == outcome


@pytest.mark.parametrize(
    ("once", "longer", "outcome", "words"),
    [
        ({8: 0.95, 20: 0.0}, None, "reproduced", "at 1x the budget"),
        ({8: 0.949, 20: 0.0}, None, "not measured yet", "cot-4x-seed0 is missing"),
        ({8: 0.5}, {8: 1.0, 16: 0.95, 20: 0.0}, "reproduced", "95.0 % at 4x"),
        ({8: 0.5}, {8: 1.0, 16: 0.949}, "differs", "94.9 % at 4x"),
        ({8: 0.5}, {8: 1.0, 16: 0.468}, "not reproduced", "46.8 % at 4x"),
        ({8: 0.5}, {8: 1.0, 16: 0.47}, "differs", "47.0 % at 4x"),
    ],
)
def test_cot_in_distribution(once, longer, outcome, words):
    found = decide("cot-in-distribution", documents(cot=once) | (documents(cot_4x=longer) if longer else {}))
    assert found.outcome == outcome
    assert words in found.because


@pytest.mark.parametrize(
    ("solved", "outcome"),
    [
        ({8: 1.0, 16: 0.5, 20: 0.0}, "reproduced"),
        ({8: 1.0, 24: 0.5, 28: 0.1}, "reproduced"),
        ({8: 1.0, 28: 0.5, 32: 0.1}, "differs"),
        ({8: 1.0, 16: 0.499, 20: 0.0}, "differs"),
        (0.1, "differs"),
        ({8: 1.0, 20: 0.4, 32: 0.53, 36: 0.0}, "not reproduced"),
    ],
)
def test_cot_limited(solved, outcome):
    assert decide("cot-limited", documents(cot=solved)).outcome == outcome


@pytest.mark.parametrize(
    ("continuous", "cot", "outcome"),
    [
        ({8: 1.0, 24: 0.5, 40: 0.0}, 0.01, "reproduced"),
        ({8: 1.0, 24: 0.499, 40: 0.0}, 0.01, "differs"),  # falls at once
        ({8: 0.5}, 0.5, "differs"),
        ({8: 0.5}, 0.6, "not reproduced"),
    ],
)
def test_continuous_over_cot(continuous, cot, outcome):
    assert decide("continuous-over-cot", documents(continuous=continuous, cot=cot)).outcome == outcome


@pytest.mark.parametrize(
    ("discrete", "continuous", "outcome"),
    [(0.6, 0.5, "reproduced"), (0.505, 0.5, "differs"), (0.5, 0.6, "not reproduced")],
)
def test_discrete_over_continuous(discrete, continuous, outcome):
    results = documents(discrete={8: 0.5, 20: discrete}, continuous={8: 1.0, 20: continuous})
    assert decide("discrete-over-continuous", results).outcome == outcome


@pytest.mark.parametrize(
    ("corrected", "discrete", "outcome"),
    [
        (0.95, 0.2, "reproduced"),
        ({8: 1.0, 64: 0.949}, 0.2, "differs"),
        ({8: 0.94, 64: 1.0}, 0.2, "differs"),
        ({8: 1.0, 64: 0.8}, 0.9, "not reproduced"),
        ({8: 1.0, 64: 0.4}, 0.2, "not reproduced"),
        ({8: 1.0, 64: 0.95}, 1.0, "reproduced"),  # both rules hold: the first one counts
    ],
)
def test_corrected_near_perfect(corrected, discrete, outcome):
    assert decide("corrected-near-perfect", documents(corrected=corrected, discrete=discrete)).outcome == outcome


def test_corrected_counts_with_four_layers():
    results = documents(corrected=1.0, discrete=0.5, corrected_layers2={"solved": 0.0, "loss": 0.1})
    assert decide("corrected-near-perfect", results).outcome == "reproduced"


@pytest.mark.parametrize(
    ("two", "four", "discrete", "outcome"),
    [
        (0.5, 0.9, 0.5, "reproduced"),
        (0.5, 0.5, 0.5, "differs"),
        (0.4, 0.9, 0.5, "differs"),
        (0.6, 0.9, 0.5, "not reproduced"),
    ],
)
def test_correction_needs_layers(two, four, discrete, outcome):
    shares = {name.replace("-", "_"): two if "layers2" in name else four for name in CORRECTION}
    results = named(CORRECTION, **shares | {"discrete": discrete})
    assert decide("correction-needs-layers", results).outcome == outcome


def test_correction_compares_one_rate_of_corruption():
    shares = {name.replace("-", "_"): 0.5 if "layers2" in name else 0.9 for name in CORRECTION}
    worse = {"corrected_corruption1_layers2": {"solved": 0.8, "loss": 0.01}}  # a lower loss, of other corruption
    decided = decide("correction-needs-layers", named(CORRECTION, **shares | {"discrete": 0.5} | worse))
    assert decided.outcome == "reproduced"
    assert "corrected-corruption1-layers2-seed0" not in decided.runs


def _encoded(method, **shares):
    """Name a method's points by encoding."""
    return {encoded(method, encoding).replace("-", "_"): share for encoding, share in shares.items()}


@pytest.mark.parametrize(
    ("feedforward", "recurrent", "outcome"),
    [
        ({"rope": 0.3, "deberta": 0.4, "nope": 0.2}, {"rope": 0.3, "deberta": 0.4, "abpe": 0.2}, "reproduced"),
        ({"rope": 0.3, "deberta": 0.4, "nope": 0.3}, {"rope": 0.3, "deberta": 0.4}, "differs"),
        ({"nope": 0.3, "deberta": 0.2}, {"rope": 0.3}, "differs"),
        ({}, {}, "differs"),
        ({"nope": 0.3, "deberta": 0.2}, {"abpe": 0.3}, "not reproduced"),
        ({"rope": 0.3, "deberta": 0.4}, {"local": 0.9, "rope": 0.3, "deberta": 0.4}, "reproduced"),  # the paper's four
    ],
)
def test_encodings_end_to_end(feedforward, recurrent, outcome):
    shares = _encoded("feedforward", **feedforward) | _encoded("recurrent", **recurrent)
    assert decide("encodings-end-to-end", named(ENCODED, **shares)).outcome == outcome


def test_small_differences_of_encodings_are_seen_and_overlaps_said():
    shares = _encoded("feedforward", abpe=0.002, rope=0.003, deberta=0.5)
    shares |= _encoded("recurrent", abpe=0.1, nope=0.2, rope=0.3, deberta=0.4)
    because = decide("encodings-end-to-end", named(ENCODED, **shares)).because
    assert (
        "feedforward: abpe 0.20 %, rope 0.30 %, nope 0.00 %, deberta 50.00 % (intervals that overlap: rope and abpe)"
        in because
    )
    assert because.endswith("deberta 40.00 % (intervals that overlap: none)")


@pytest.mark.parametrize(
    ("shares", "outcome"),
    [
        ({"deberta": 0.5, "rope": 0.4, "local": 0.9}, "reproduced"),
        ({"deberta": 0.5, "rope": 0.495}, "differs"),
        ({"deberta": 0.4, "rope": 0.5}, "not reproduced"),
    ],
)
def test_encodings_latent(shares, outcome):
    assert decide("encodings-latent", named(ENCODED, **_encoded("discrete", **shares))).outcome == outcome


@pytest.mark.parametrize(
    ("shares", "outcome"),
    [
        ({"nope": 0.301, "rope": 0.3}, "reproduced"),
        ({"nope": 0.3, "rope": 0.3}, "differs"),
        ({"nope": 0.3, "rope": 0.305}, "differs"),
        ({"nope": 0.3, "rope": 0.4}, "not reproduced"),
    ],
)
def test_encodings_cot(shares, outcome):
    assert decide("encodings-cot", named(ENCODED, **_encoded("cot", **shares))).outcome == outcome


@pytest.mark.parametrize(
    ("changes", "outcome", "words"),
    [
        ({"structure_right": 0.8}, "reproduced", "66.7 %"),
        ({"structure_right": 0.7}, "differs", "50.0 %"),
        ({"structure_right": 0.14}, "not reproduced", "0.0 % to 23.3 %"),
        ({"structure_right": 0.15}, "differs", "25.0 %"),
        ({"structure_right": 0.8, "unsolved_structure_right": 0.1}, "not reproduced", "16.7 %"),
        ({"structure_right": 0.5, "unsolved_structure_right": 0.301}, "reproduced", "50.2 %"),
    ],
)
def test_cot_errs_in_arithmetic(changes, outcome, words):
    found = decide("cot-errs-in-arithmetic", documents(cot={"solved": 0.4} | changes))
    assert found.outcome == outcome
    assert words in found.because


def test_a_chain_of_thought_without_errors_errs_in_nothing():
    assert decide("cot-errs-in-arithmetic", documents(cot=1.0)).outcome == "differs"


@pytest.mark.parametrize(
    ("large", "outcome"),
    [((3.1, 3.2, 3.3), "reproduced"), ((3.1, 3.0, 3.3), "differs"), ((2.9, 2.8, 2.7), "not reproduced")],
)
def test_entropy_rises(large, outcome):
    results = documents(feedforward=0.0)
    for result, mean in zip(results.values(), large, strict=True):
        result["entropy"] = {"16": {"mean": 3.0}, "64": {"mean": mean}}
    assert decide("entropy-rises", results).outcome == outcome


@pytest.mark.parametrize(
    ("recurrent", "cot", "outcome"),
    [
        ((0.1, 0.5), (0.1, 0.5), "reproduced"),
        ((0.1, 0.5), (0.5, 0.5), "differs"),
        ((0.5, 0.1), (0.1, 0.5), "differs"),
        ((0.5, 0.1), (0.5, 0.1), "not reproduced"),
    ],
)
def test_depth_matters(recurrent, cot, outcome):
    found = {
        "recurrent-T1L2": recurrent[0],
        "recurrent-T8L2": recurrent[1],
        "recurrent-T4L4": {"solved": 0.3, "loss": 9.0},
        "cot-L2": cot[0],
        "cot-L8": cot[1],
    }
    names = {start: next(name for name in DEPTHS if name.startswith(start)) for start in found}
    shares = {names[start].replace("-", "_"): share for start, share in found.items()}
    results = named(DEPTHS, **shares)  # of two as deep, the one with less validation loss
    assert decide("depth-matters", results).outcome == outcome


def _with_curves(results, halves):
    for result in results.values():
        for nodes, half in halves.items():
            curve = [0.1] * 9 if half is None else [0.0] * half + [0.5, 1.0]
            result["curves"][str(nodes)] = {"solved_by_iteration": curve}
    return results


@pytest.mark.parametrize(
    ("halves", "lost", "outcome"),
    [
        ({8: 3, 16: 4, 32: 5, 64: 6}, 0.019, "reproduced"),
        ({8: 3, 16: 4, 32: 5, 64: 6}, 0.02, "differs"),
        ({8: 3, 16: 4, 32: 4, 64: 6}, 0.0, "differs"),
        ({8: 3, 16: 4, 32: 5, 64: None}, 0.0, "differs"),
        ({8: 3, 16: 4, 32: 5, 64: 4}, 0.0, "not reproduced"),
    ],
)
def test_iterations_scale(halves, lost, outcome):
    results = documents(corrected={"solved": 1.0, "solved_depth": 0.9, "solved_4x": 0.9 - lost})
    assert decide("iterations-scale", _with_curves(results, halves)).outcome == outcome


@pytest.mark.parametrize(
    ("stable", "other", "outcome"),
    [
        ((0.99, 0.99, 1.0), 0.99, "reproduced"),
        ((0.989, 1.0, 1.0), 0.9, "differs"),
        ((0.99, 0.99, 1.0), 1.0, "not reproduced"),
    ],
)
def test_stable_first(stable, other, outcome):
    results = documents(**dict.fromkeys(ALL_METHODS[:-1], other)) | _seeds("stable", *stable)
    assert decide("stable-first", results).outcome == outcome


@pytest.mark.parametrize(
    ("discrete", "corrected", "outcome"),
    [(0.89, 0.91, "reproduced"), (0.889, 0.9, "differs"), (0.84, 0.9, "differs"), (0.84, 0.849, "not reproduced")],
)
def test_fixed_point_halting(discrete, corrected, outcome):
    results = documents(
        stable=1.0,
        discrete={"solved": 0.9, "solved_fixpoint": {8: 0.9, 64: discrete}},
        corrected={"solved": 0.9, "solved_fixpoint": {8: 0.9, 12: corrected, 16: 0.9}},
    )
    assert decide("fixed-point-halting", results).outcome == outcome
