"""Every claim has a rule, which runs it is read from, and what is said where some are missing, from made-up results."""

import pytest

from experiment_documents import another, document, documents, encoded, everything, named, with_steps
from latentloop.errors import UserError
from latentloop.experiments.claims import claims, decide, decide_all, text
from latentloop.experiments.jobs import Job
from latentloop.experiments.rules import RULES
from latentloop.experiments.scores import CONFIGURATIONS, OTHER_VALIDATION, comparable, grouped
from latentloop.experiments.table import EXPERIMENTS, POINTS

CORRECTION = [point.name for point in EXPERIMENTS["correction"].points]
DEPTHS = [point.name for point in EXPERIMENTS["depth"].points]


@pytest.fixture(autouse=True)
def _steps(monkeypatch):
    with_steps(monkeypatch)


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


def test_a_configuration_without_seed_0_waits():
    results = documents(continuous=0.0, discrete={"solved": 1.0, "loss": 2.0}, cot=0.0)
    results |= documents(cot_few_names={"solved": 0.5, "loss": 0.5})
    assert "cot-few-names-seed0" in decide("cot-limited", results).runs
    del results["cot-few-names-seed0"]
    found = decide("cot-limited", results)
    assert "cot-seed0" in found.runs
    assert "cot-few-names-seed0" in found.waiting


def test_a_rule_needs_no_more_than_it_reads():
    results = documents(corrected=0.5, corrected_layers2=0.5, discrete=0.5)
    found = decide("correction-needs-layers", results)
    assert found.missing == ()
    assert {run.rpartition("-seed")[0] for run in found.runs} == {"corrected", "corrected-layers2", "discrete"}


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
    assert decide(name, named({run.rpartition("-seed")[0] for run in found.missing})).missing == ()


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
