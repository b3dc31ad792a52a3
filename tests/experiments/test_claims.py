"""Every claim has a rule, and every verdict of each rule, at its edges, from made-up results."""

import pytest

from experiment_documents import another, document, documents, encoded, everything, with_steps
from latentloop.errors import UserError
from latentloop.evaluate.metrics import wilson
from latentloop.experiments.claims import claims, decide, decide_all, text
from latentloop.experiments.jobs import Job
from latentloop.experiments.rules import RULES
from latentloop.experiments.scores import CONFIGURATIONS, OTHER_VALIDATION, comparable, grouped
from latentloop.experiments.table import EXPERIMENTS, POINTS

ALL_METHODS = ("feedforward", "recurrent", "cot", "continuous", "discrete", "corrected", "stable")
CORRECTION = [point.name for point in EXPERIMENTS["correction"].points]
ENCODED = [point.name for point in EXPERIMENTS["encodings"].points]
DEPTHS = [point.name for point in EXPERIMENTS["depth"].points]


@pytest.fixture(autouse=True)
def _steps(monkeypatch):
    with_steps(monkeypatch)


def _seeds(name, *given, **changes):
    """Make one document for each seed of a point."""
    jobs = POINTS[name].jobs
    return {job.name: document(job, one, **changes) for job, one in zip(jobs, given, strict=True)}


def _named(names, **given):
    """Make results of many points: those named with their shares, the others with nothing solved."""
    return documents(**{name: given.get(name.replace("-", "_"), 0.0) for name in names})


def test_every_claim_has_a_rule_and_every_rule_a_claim():
    assert list(claims()) == list(RULES)
    assert {claim.experiment for claim in claims().values()} <= EXPERIMENTS.keys()
    assert "Written before any run" in text()


def _points_of(words):
    """Return the names of the points that an entry of a claim's ``results`` stands for."""
    name = words.partition(",")[0]
    if name.startswith("best of "):
        listed = [point for experiment in CONFIGURATIONS for point in EXPERIMENTS[experiment].points]
        return {point.name for point in listed if point.run.method.name == name.removeprefix("best of ")}
    method, _, experiment = name.partition(" in ")
    if experiment:
        return {point.name for point in EXPERIMENTS[experiment].points if point.run.method.name == method}
    return {name} & POINTS.keys()


@pytest.mark.parametrize("name", claims())
def test_a_claim_names_its_command_and_the_results_it_is_read_from(name):
    found = decide(name, everything())
    read = {run.rpartition("-seed")[0] for run in found.runs}
    named = [_points_of(words) for words in found.claim.results]
    assert found.claim.command == f"latentloop reproduce --claim {name}"
    assert read <= set.union(*named)
    assert all(read & points for points in named)


def test_the_claims_say_which_configurations_are_candidates():
    words = " ".join(text().replace("#", " ").split())
    assert f"Candidates are the points of {', '.join(CONFIGURATIONS)} whose" in words
    assert all(f"`{setting}`" in words for setting in OTHER_VALIDATION)


def test_nothing_measured_yet():
    for verdict in decide_all({}):
        assert verdict.outcome == "not measured yet"
        assert verdict.missing
        assert "missing" in verdict.because


def test_everything_measured_decides_every_claim():
    verdicts = decide_all(everything())
    assert all(verdict.outcome != "not measured yet" for verdict in verdicts)
    assert all(not verdict.missing and verdict.because for verdict in verdicts)
    assert not any(verdict.waiting for verdict in verdicts)


def test_a_verdict_says_which_configurations_may_change_it():
    found = decide("discrete-over-continuous", documents(continuous=0.0, discrete=1.0))
    assert found.outcome == "reproduced"
    assert {"discrete-rope-seed0", "discrete-L4-seed0"} <= set(found.waiting)
    assert not {"discrete-unaided-seed0", "discrete-seed1", "continuous-4x-seed0"} & set(found.waiting)


def test_points_are_read_with_all_seeds_of_the_table():
    results = documents(**dict.fromkeys(CORRECTION, 0.5))
    assert {"discrete-seed2", "corrected-seed2"} <= set(decide("correction-needs-layers", results).runs)
    del results["discrete-seed2"]
    assert decide("correction-needs-layers", results).missing == ("discrete-seed2",)


def test_seeds_are_compared_with_their_own():
    results = documents(feedforward=0.2, recurrent=0.1)
    results["recurrent-seed2"] = document(Job(point=POINTS["recurrent"], seed=2), 0.3)
    del results["recurrent-seed1"]
    found = decide("recurrent-over-feedforward", results)
    assert found.missing == ("recurrent-seed1",)
    assert "10.00 % against 20.00 %, 30.00 % against 20.00 %" in found.so_far
    results["feedforward-seed2"] = document(Job(point=POINTS["feedforward"], seed=2), 0.4)
    assert "30.00 % against 40.00 %" in decide("recurrent-over-feedforward", results).so_far


def test_an_unknown_claim():
    with pytest.raises(UserError, match="did you mean 'stable-first'"):
        decide("stable-frist", {})


AT_HALF = next(right for right in range(3000, 0, -1) if wilson(right, 3000)[1] < 0.5) / 3000
OVER_NINE_TENTHS = next(right for right in range(3000) if wilson(right, 3000)[0] > 0.9) / 3000
STEP = 1 / 1000  # three seeds of a thousand problems each


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


def test_three_seeds_are_three():
    results = documents(feedforward=0.0, recurrent=0.0)
    del results["recurrent-seed2"]
    found = decide("end-to-end-fails", results)
    assert (found.outcome, found.missing) == ("not measured yet", ("recurrent-seed2",))
    assert found.so_far.startswith("solved at N = 16: feedforward 0.0, 0.0, 0.0 % (0.0 .. 0.1), recurrent 0.0, 0.0 % (")
    assert decide("end-to-end-fails", documents(feedforward=0.0)).so_far == ""


@pytest.mark.parametrize(
    ("name", "some"),
    [
        ("encodings-end-to-end", {encoded("feedforward", "rope"), encoded("recurrent", "nope")}),
        (
            "depth-matters",
            {name for name in DEPTHS if any(one in name for one in ("recurrent-T1L2", "recurrent-T8L2", "cot-L8"))},
        ),
    ],
)
def test_missing_runs_of_all_methods_are_named(name, some):
    found = decide(name, {})
    assert {f"{point}-seed0" for point in some} <= set(found.missing)
    assert decide(name, _named({run.rpartition("-seed")[0] for run in found.missing})).missing == ()


def test_missing_seeds_of_all_methods_are_named():
    first, second = another("feedforward"), another("recurrent")
    results = documents(feedforward=0.0, recurrent=0.0)
    results |= documents(**{name: {"solved": 0.0, "loss": 0.5} for name in (first, second)})
    found = decide("end-to-end-fails", results)
    assert found.missing == tuple(f"{name}-seed{seed}" for name in (first, second) for seed in (1, 2))
    assert f"reproduce {first}`" in found.because
    assert f"reproduce {second}`" in found.because


@pytest.mark.parametrize("name", claims())
def test_what_is_there_of_one_seed_is_shown(name):
    results = {job: result for job, result in everything().items() if result["seed"] == 0}
    found = decide(name, results)
    assert found.so_far if found.outcome == "not measured yet" else found.because


def test_the_configuration_with_the_least_validation_loss_counts():
    other = another("recurrent")
    results = documents(feedforward=0.0, recurrent=0.0, **{other: {"solved": 1.0, "loss": 2.0}})
    assert decide("end-to-end-fails", results).outcome == "reproduced"
    results |= documents(**{other: {"solved": 1.0, "loss": 0.5}})
    found = decide("end-to-end-fails", results)
    assert found.outcome == "not measured yet"  # one seed, where the rule wants three
    assert found.missing == (f"{other}-seed1", f"{other}-seed2")
    assert f"{other} has the lowest validation loss" in found.because


def test_validation_losses_are_compared_only_where_they_are_of_the_same_targets():
    known = grouped(everything())
    assert comparable(known["discrete"], known[another("discrete")])
    assert comparable(known["corrected"], known["corrected-corruption0.25"])  # validated on the same wrong values
    for one, other in (
        ("discrete", "discrete-unaided"), ("cot", "cot-value"), ("cot", "cot-fixed"), ("cot", "cot-4x"),
        ("stable", "stable-even"), ("stable", "stable-true-states"), ("discrete", "corrected"),
    ):  # fmt: skip
        assert not comparable(known[one], known[other]), (one, other)


def test_a_loss_that_is_no_number_never_counts_as_the_least():
    results = documents(cot=0.9, continuous=0.5, continuous_unaided=0.9)
    results |= documents(**{another("cot"): {"solved": 0.0, "loss": None}})
    assert decide("cot-limited", results).outcome == "not reproduced"


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
    results = _named(CORRECTION, **shares | {"discrete": discrete})
    assert decide("correction-needs-layers", results).outcome == outcome


def test_correction_compares_one_rate_of_corruption():
    shares = {name.replace("-", "_"): 0.5 if "layers2" in name else 0.9 for name in CORRECTION}
    worse = {"corrected_corruption1_layers2": {"solved": 0.8, "loss": 0.01}}  # a lower loss, of other corruption
    decided = decide("correction-needs-layers", _named(CORRECTION, **shares | {"discrete": 0.5} | worse))
    assert decided.outcome == "reproduced"
    assert "corrected-corruption1-layers2-seed0" in decided.runs


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
    assert decide("encodings-end-to-end", _named(ENCODED, **shares)).outcome == outcome


def test_small_differences_of_encodings_are_seen_and_overlaps_said():
    shares = _encoded("feedforward", abpe=0.002, rope=0.003, deberta=0.5)
    shares |= _encoded("recurrent", abpe=0.1, nope=0.2, rope=0.3, deberta=0.4)
    because = decide("encodings-end-to-end", _named(ENCODED, **shares)).because
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
    assert decide("encodings-latent", _named(ENCODED, **_encoded("discrete", **shares))).outcome == outcome


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
    assert decide("encodings-cot", _named(ENCODED, **_encoded("cot", **shares))).outcome == outcome


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
    results = _named(DEPTHS, **shares)  # of two as deep, the one with less validation loss
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
