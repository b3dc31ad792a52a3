"""Figures show the runs that verdicts are read from, and are drawn anew when anything that they show changes."""

import random
from dataclasses import replace

import pytest

from experiment_documents import document, documents, everything, with_steps
from latentloop.experiments import jobs, table
from latentloop.experiments.claims import claims, decide
from latentloop.experiments.jobs import Experiment, Job
from latentloop.experiments.scores import CONFIGURATIONS, grouped
from latentloop.experiments.table import EXPERIMENTS, POINTS, THREE
from latentloop.report.ladder import FIGURES, draw, fingerprint
from latentloop.report.ladder_methods import best_of_each
from latentloop.report.ladder_parts import best
from latentloop.report.results import CLAIM_FIGURES


@pytest.fixture(autouse=True)
def _steps(monkeypatch):
    with_steps(monkeypatch)


def _with_losses(seed):
    """Return results of three seeds for every point, with losses that make any configuration the best of its method."""
    draws = random.Random(seed)
    found = {}
    for point in (point for point in POINTS.values() if point.scale == "laptop"):
        loss = draws.random()
        for job in (Job(point=point, seed=seed) for seed in THREE):
            found[job.name] = document(job, 0.5, loss=loss)
    return found


def _points(runs):
    return {run.rpartition("-seed")[0] for run in runs}


def _chosen(figure, results):
    """Return the point of each method that a figure draws."""
    return {name: one.name for name, one in best_of_each(grouped(FIGURES[figure].select(results, "laptop"))).items()}


@pytest.mark.parametrize("seed", range(6))
def test_a_figure_shows_the_configuration_that_decides(seed):
    results = _with_losses(seed)
    for figure in ("methods", "compute"):
        shown = _chosen(figure, results)
        for claim, methods in (
            ("end-to-end-fails", ["feedforward", "recurrent"]),
            ("continuous-over-cot", ["continuous", "cot"]),
            ("corrected-near-perfect", ["corrected", "discrete"]),
            ("iterations-scale", ["corrected"]),
        ):
            assert {shown[method] for method in methods} == _points(decide(claim, results).runs), claim
    for figure in ("iterations", "allowed"):
        assert {_chosen(figure, results)["corrected"]} == _points(decide("iterations-scale", results).runs)
    rising = best(grouped(FIGURES["entropy"].select(results, "laptop")), "feedforward")
    assert rising is not None
    assert {rising.name} == _points(decide("entropy-rises", results).runs)


@pytest.mark.parametrize("seed", range(3))
def test_all_that_decides_a_claim_is_in_its_figures(seed):
    results = _with_losses(seed)
    for name in claims():
        runs = decide(name, results).runs
        assert runs, name
        shown = {run for figure in CLAIM_FIGURES[name] for run in FIGURES[figure].select(results, "laptop")}
        assert set(runs) <= shown, name


def test_depths_are_those_of_their_experiment():
    for family, methods in (("end-to-end", ("feedforward", "recurrent")), ("cot", ("cot",))):
        found = FIGURES[f"architectures-{family}"].select(everything(), "laptop")
        points = [point for point in EXPERIMENTS["depth"].points if point.preset.removeprefix("ladder-") in methods]
        assert _points(found) == {point.name for point in points}


def test_corrected_has_the_layers_of_its_claims():
    results = documents(corrected={"solved": 0.5, "loss": 0.9}, corrected_layers2={"solved": 1.0, "loss": 0.1})
    for name in ("methods", "iterations"):
        (axes, *_) = draw(name, results).axes
        assert max(y for line in axes.lines for y in line.get_ydata()) == 50


@pytest.mark.parametrize("started", [(), ("feedforward",), ("recurrent", "cot"), ("feedforward", "recurrent", "cot")])
def test_encodings_of_methods_that_begin_with_few_names(started, monkeypatch):
    monkeypatch.setattr(table, "STARTED", started)
    methods, encodings = ("feedforward", "recurrent", "cot", "discrete"), ("abpe", "rope", "nope", "deberta")
    points = [table._encoding(method, encoding) for method in methods for encoding in encodings]
    monkeypatch.setitem(EXPERIMENTS, "encodings", Experiment(question="Which?", points=tuple(points)))
    for point in points:
        monkeypatch.setitem(POINTS, point.name, point)
    others = documents(feedforward=0.0, recurrent=0.0, cot=0.0, discrete=0.0, feedforward_L2=0.0)
    for result in others.values():
        result["entropy"] = {nodes: {"mean": 0.0} for nodes in result["entropy"] or {}}
    results = others | documents(**{point.name: {"solved": 0.5, "loss": 2.0} for point in points})
    panels = draw("best-per-encoding", results).axes
    assert [len(axes.patches) for axes in panels] == [4] * 4
    assert {round(patch.get_height()) for axes in panels for patch in axes.patches} == {50}
    for name in ("feedforward", "recurrent", "cot", "latent"):
        (axes,) = draw(f"encodings-{name}", results).axes
        assert len(axes.lines) == 4
    by_encoding = draw("entropy", results).axes[1]
    assert len(by_encoding.lines) == 4
    assert min(y for line in by_encoding.lines for y in line.get_ydata()) > 0


def test_depths_of_a_method_that_begins_with_few_names():
    points = [point for point in EXPERIMENTS["depth"].points if point.preset == "ladder-cot"]
    results = documents(**{point.name: 0.5 for point in points if point.name.endswith("few-names")})
    figure = draw("architectures-cot", results)
    assert {"T1L2", "T1L4", "T1L8", "T4L2"} <= {text.get_text() for text in figure.legends[0].get_texts()}


def test_a_longer_run_that_begins_with_few_names():
    (axes,) = draw("methods", documents(cot=0.5, cot_4x=0.75)).axes
    assert 75 in [y for line in axes.lines for y in line.get_ydata()]


def test_a_learning_curve_of_no_candidate_is_not_that_of_the_lowest_loss():
    results = documents(stable={"solved": 1.0, "loss": 0.2}, stable_deberta={"solved": 1.0, "loss": 0.1})
    (panel,) = [axes for axes in draw("learning", results).axes if axes.lines]
    assert len(panel.lines) == 3  # the ladder's three seeds: stable-deberta tells what an aid is worth


def test_what_is_not_timed_yet_can_be_missing(monkeypatch):
    results = documents(discrete=0.5)
    monkeypatch.setattr(jobs, "pilot", dict)
    assert "?" in {text.get_text() for text in draw("best-per-encoding", results).axes[0].texts}


def test_a_picture_is_out_of_date_when_its_words_are(monkeypatch):
    results = documents(discrete=0.5)
    before = fingerprint("bars-latent", results)
    assert before == fingerprint("bars-latent", results)
    with monkeypatch.context() as patch:
        patch.setitem(FIGURES, "bars-latent", replace(FIGURES["bars-latent"], caption="Other words."))
        assert fingerprint("bars-latent", results) != before
    with monkeypatch.context() as patch:  # one more run that is not measured yet
        patch.setitem(FIGURES, "bars-latent", replace(FIGURES["bars-latent"], experiments=CONFIGURATIONS))
        assert fingerprint("bars-latent", results) != before
