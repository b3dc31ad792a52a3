"""The table of experiments, and stored results."""

import copy
import hashlib
import json
from dataclasses import replace

import pytest

from experiment_documents import document
from latentloop.config import RunConfig
from latentloop.config.positions import PositionsConfig
from latentloop.errors import UserError
from latentloop.experiments.jobs import TIMED, Job, Point, pilot
from latentloop.experiments.scores import load
from latentloop.experiments.store import (
    SHIPPED,
    checked,
    labels,
    result_path,
    stored,
    stored_results,
    write_result,
)
from latentloop.experiments.table import EXPERIMENTS, FEW_NAMES, POINTS, STARTED, experiment
from latentloop.files import read_json
from latentloop.methods import METHODS, MethodConfig
from latentloop.presets import preset
from latentloop.schema import changed

TINY = Job(point=Point(name="a", preset="tiny-stable", overrides={"steps": 2}, scale="rehearsal"), seed=3)
DOCUMENT = document(TINY, 0.5) | {"key": TINY.key}
CHAIN = Job(point=Point(name="b", preset="tiny-cot", overrides={"steps": 2}, scale="rehearsal"), seed=3)


@pytest.mark.parametrize("name", POINTS)
def test_every_point_is_a_run_that_can_be_made(name):
    point = POINTS[name]
    run = changed(preset(point.preset), **point.overrides)
    assert isinstance(run, RunConfig)
    assert RunConfig.from_dict(run.to_dict()) == run
    if point.overrides and point.scale != "tuning":  # one of the rates tried is the preset's
        assert run != preset(point.preset)


@pytest.mark.parametrize("method", METHODS)
def test_a_preset_has_the_rate_with_the_least_validation_loss(method):
    results = stored_results(EXPERIMENTS["tuning"].jobs, SHIPPED)
    losses = {
        job.run.train.muon_lr: results[job.name]["validation"]["loss"]
        for job in EXPERIMENTS["tuning"].jobs
        if job.run.method.name == method
    }
    assert {0.01, 0.02, 0.04} <= losses.keys()
    assert preset(f"ladder-{method}").train.muon_lr == min(losses, key=losses.__getitem__)


@pytest.mark.parametrize("method", ["feedforward", "recurrent", "cot"])
def test_a_method_begins_with_few_names_where_that_gives_the_lower_validation_loss(method):
    results = load(SHIPPED)
    if f"{method}-few-names-seed0" not in results:
        assert method not in STARTED
        return
    few, ladder = (results[f"{name}-seed0"]["validation"]["loss"] for name in (f"{method}-few-names", method))
    assert (few < ladder) == (method in STARTED)
    assert (FEW_NAMES.items() <= POINTS[f"{method}-4x"].overrides.items()) == (method in STARTED)


@pytest.mark.parametrize("name", [name for name in POINTS if name.endswith("-4x")])
def test_a_longer_run_is_that_of_the_point_it_is_like(name):
    longer, like = POINTS[name], POINTS[POINTS[name].like]
    assert longer.run == changed(like.run, steps=4 * like.run.train.steps)


def test_all_methods_are_on_the_ladder_with_three_seeds():
    seeds = {point.run.method.name: point.seeds for point in EXPERIMENTS["ladder"].points if not point.overrides}
    assert seeds.keys() == METHODS.keys()
    timed = [point for point in EXPERIMENTS["ladder"].points if not point.overrides and point.budget == 1]
    assert all(point.seeds == (0, 1, 2) for point in timed)


def test_points_are_trained_on_small_graphs_only():
    laptop = [point for point in POINTS.values() if point.scale == "laptop"]
    assert laptop
    for point in laptop:
        run = changed(preset(point.preset), **point.overrides)
        assert run.graph.nodes == 16
        assert run.graph.depth_limit == 7
        assert run.task.names == max(sizes_of(point))


def sizes_of(point):
    return Job(point=point, seed=0).evaluation.sizes


def test_every_point_has_the_steps_of_a_pilot():
    for point in POINTS.values():
        if point.scale in TIMED:
            assert point.run.train.steps == round(point.budget * pilot()[point.like or point.name])


def test_a_point_without_a_pilot_says_how_to_get_one():
    with pytest.raises(UserError, match=r"benchmarks/pilot\.py new"):
        _ = Point(name="new", preset="ladder-stable").run


def test_the_key_is_that_of_everything_that_decides_a_result():
    assert TINY.key == Job(point=replace(TINY.point, name="b"), seed=3).key
    other_steps = replace(TINY.point, overrides={"steps": 3})
    for different in (replace(TINY, seed=4), replace(TINY, point=other_steps)):
        assert different.key != TINY.key


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_no_two_runs_of_an_experiment_are_the_same(name):
    keys = [job.key for job in EXPERIMENTS[name].jobs]
    assert len(set(keys)) == len(keys)


def test_a_single_point_can_be_run_with_three_seeds():
    jobs = experiment("discrete-deberta").jobs
    assert [job.name for job in jobs] == [f"discrete-deberta-seed{seed}" for seed in (0, 1, 2)]
    assert jobs[0].key in {job.key for job in EXPERIMENTS["encodings"].jobs}
    assert [job.key for job in experiment("discrete-deberta-seed2").jobs] == [jobs[2].key]
    with pytest.raises(UserError, match="unknown experiment"):
        experiment("discrete-deberta-seed3")


def test_defaults_stay_as_they_are():
    """Keys leave defaults out: where one changes, results of the old one would pass for those of the new one."""
    kinds = [*MethodConfig.kinds.values(), *PositionsConfig.kinds.values()]
    found = json.dumps([RunConfig().to_dict(), *(kind().to_dict() for kind in kinds)], sort_keys=True)
    assert hashlib.sha256(found.encode()).hexdigest()[:16] == "f0d810d928ffdb63", (
        "a default changed, or a setting was added: if no stored result depends on it, write the new hash here"
    )


def test_unknown_experiments_name_the_nearest():
    with pytest.raises(UserError, match="ladder"):
        experiment("laddder")


def test_a_result_comes_back_as_it_was_stored(tmp_path):
    assert stored(TINY, tmp_path) is None
    write_result(tmp_path, DOCUMENT)
    assert stored(TINY, tmp_path) == DOCUMENT


def test_a_changed_configuration_under_an_old_name_is_refused(tmp_path):
    write_result(tmp_path, DOCUMENT)
    changed_job = replace(TINY, point=replace(TINY.point, overrides={"steps": 4}))
    with pytest.raises(UserError, match=r"another configuration than a-seed3 .* move it away"):
        stored(changed_job, tmp_path)
    assert result_path(tmp_path, "a-seed3").exists()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda d: d.pop("format"), "no result of an experiment"),
        (lambda d: d.update(format="other"), "no result of an experiment"),
        (lambda d: d.pop("labels"), "'labels' is missing"),
        (lambda d: d.update(average="much"), "'average' is missing, or of another kind"),
        (lambda d: d.update(rows=[]), "no scores by size"),
        (lambda d: d.update(rows=[{"nodes": 8}]), "no scores by size"),
    ],
)
def test_foreign_results_are_refused(damage, said):
    document = copy.deepcopy(DOCUMENT)
    damage(document)
    with pytest.raises(UserError, match=f"{said}.*; move it away"):
        checked(document, TINY, "x.json")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda d: d.update(point="../b"), "it is the result of '../b-seed3', not of a-seed3"),
        (lambda d: d.update(seed=4), "it is the result of 'a-seed4', not of a-seed3"),
        (lambda d: d["rows"].pop(), r"its sizes should be \(8, 12\), got \[8\]"),
        (lambda d: d["rows"][0].update(nodes="8"), r"its sizes should be \(8, 12\), got \['8', 12\]"),
        (lambda d: d["rows"][0].update(solved=None), "solved at N = 8 must be a share from 0 to 1, got None"),
        (lambda d: d["rows"][1].update(solved="all"), "solved at N = 12 must be a share from 0 to 1, got 'all'"),
        (lambda d: d["rows"][1].update(solved=True), "solved at N = 12 must be a share"),
        (lambda d: d["rows"][1].update(solved_low=-0.1), "solved_low at N = 12 must be a share"),
        (lambda d: d["rows"][1].update(solved_high=1.1), "solved_high at N = 12 must be a share"),
        (lambda d: d["rows"][0].pop("solved_fixpoint"), "solved_fixpoint at N = 8 must be a share"),
        (lambda d: d["rows"][0].update(operations=-1), "operations at N = 8 must be a finite number"),
        (lambda d: d["rows"][0].update(problems=None), "problems at N = 8 must be a finite number"),
        (lambda d: d.update(curves={}), "the curve at N = 8 must be a list of shares"),
        (lambda d: d["curves"].update({"12": []}), "the curve at N = 12 must be a list of shares"),
        (lambda d: d["curves"]["12"].update(solved_by_iteration=[0.1, 2]), "the curve at N = 12 must be a list"),
        (lambda d: d.pop("allowed"), "'allowed' is missing"),
        (lambda d: d.update(allowed=None), "allowed 1x at N = 8 must be a share"),
        (lambda d: d["allowed"]["8"].pop("16x"), "allowed 16x at N = 8 must be a share"),
        (lambda d: d.pop("entropy"), "'entropy' is missing"),
        (lambda d: d["entropy"].update({"12": {}}), "entropy at N = 12 must be a finite number"),
        (lambda d: d.update(average=2), "average must be a share"),
        (lambda d: d.update(average_in="x"), "average_in must be a share"),
        (lambda d: d.update(training={}), "training steps must be a finite number"),
        (lambda d: d["training"].update(seconds="x"), "training seconds must be a finite number"),
        (lambda d: d["training"].update(curve={"step": [1, 2], "loss": [1]}), "training curve must be columns"),
        (lambda d: d["training"].update(curve={"loss": [1]}), "training curve must be columns"),
        (lambda d: d["validation"].update(loss="low"), "validation loss must be a number"),
        (lambda d: d.update(validation=[]), "'validation' is missing, or of another kind"),
    ],
)
def test_a_result_that_figures_could_not_be_drawn_from_is_refused(tmp_path, damage, said):
    found = copy.deepcopy(DOCUMENT)
    damage(found)
    path = result_path(tmp_path, TINY.name)
    path.parent.mkdir()
    path.write_text(json.dumps(found))
    with pytest.raises(UserError, match=said):
        stored(TINY, tmp_path)


def test_what_a_method_does_not_have_is_not_asked_for(tmp_path):
    chain = document(CHAIN, 0.5) | {"key": CHAIN.key, "average_out": None}
    write_result(tmp_path, chain)
    assert stored(CHAIN, tmp_path) == chain
    del chain["rows"][0]["structure_right"]
    write_result(tmp_path, chain)
    with pytest.raises(UserError, match="structure_right at N = 8 must be a share"):
        stored(CHAIN, tmp_path)


def test_labels_are_those_of_today(tmp_path):
    older = copy.deepcopy(DOCUMENT)
    del older["labels"]["curriculum"]
    older["labels"]["model"] = "an older name"
    write_result(tmp_path, older)
    assert stored(TINY, tmp_path)["labels"] == labels(TINY)


def test_every_shipped_result_is_that_of_a_job_of_today():
    found = {name for scale in TIMED for name in load(SHIPPED, scale)}
    assert found == {path.stem for path in (SHIPPED / "results").glob("*.json")}


def test_a_broken_result_is_refused(tmp_path):
    path = result_path(tmp_path, TINY.name)
    path.parent.mkdir()
    path.write_text(json.dumps(DOCUMENT)[:-9])
    with pytest.raises(UserError, match="not JSON"):
        stored(TINY, tmp_path)


def test_stored_commands_name_no_path_of_a_machine():
    results = [read_json(path) for path in (SHIPPED / "results").glob("*.json")]
    commands = [
        one["command"] for result in results for one in (result["provenance"], result["training"]["provenance"])
    ]
    assert commands
    assert not [command for command in commands if " /" in command]
