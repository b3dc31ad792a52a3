"""Models on the command line: the shipped ones, asked a little."""

import json
import os

import pytest

from latentloop.evaluate import certify as certifying
from latentloop.evaluate import generalization
from latentloop.evaluate import stress as stressing
from typing_user import one_line_error

SUM = "20 = x7 ; 2 = x42 ; x7 + x42 = x23"
FEW = ("--instances", 4)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def interrupting(function, *, at):
    """Make a function that is interrupted when it is called for the ``at``-th time."""
    calls = []

    def call(*arguments, **settings):
        calls.append(arguments)
        if len(calls) == at:
            raise KeyboardInterrupt
        return function(*arguments, **settings)

    return call


@pytest.mark.parametrize("rule", ["cap", "cycle", "depht"])
def test_only_rules_that_can_be_asked_for_are_offered(run, rule):
    assert one_line_error(run("evaluate", "--halt", rule), rule, "'fixpoint'", "'depth'", "'paper'", "'fixed'")


def test_solve_prints_the_answer_and_the_trace_only_if_asked(run):
    code, answer, _ = run("solve", SUM, "--checkpoint", "laptop-add")
    assert code == 0
    assert answer.splitlines()[-1] == "laptop-add: fixpoint after 3 iterations, all right (modulo 23)"
    assert [line.split()[-2] for line in answer.splitlines()[1:-1]] == ["20", "2", "22"]
    _, table, _ = run("solve", SUM, "--checkpoint", "laptop-add", "--trace")
    assert table.splitlines()[3].split()[-5:] == ["·", "·", "22", "22", "22"]
    _, document, _ = run("solve", SUM, "--checkpoint", "laptop-add", "--json")
    assert json.loads(document)["solver"] == "laptop-add"
    assert len(json.loads(document)["sha256"]) == 64


@pytest.mark.parametrize("device", ["meta", "abacus", "cuda:999"])
def test_devices_that_cannot_compute_are_refused(run, device):
    assert one_line_error(run("solve", SUM, "--device", device), f"cannot use the device '{device}': expected cpu")


def test_an_interrupted_evaluation_is_kept_and_goes_on(run, here, monkeypatch):
    words = ("evaluate", "laptop-add", "--sizes", "8", "10", "..", "14", *FEW, "--output", "result")
    evaluate_sizes = generalization.evaluate_sizes
    monkeypatch.setattr(generalization, "evaluate_sizes", interrupting(evaluate_sizes, at=3))
    code, out, err = run(*words)
    assert code == 130
    assert "kept 2 of 4 sizes; the same command goes on" in err
    assert out.startswith("laptop-add (stable")
    partial = json.loads((here / "result.json").read_text())
    assert partial["interrupted"]
    assert [row["nodes"] for row in partial["rows"]] == [8, 10]

    asked = []
    monkeypatch.setattr(generalization, "evaluate_sizes", lambda *a, **k: asked.append(a[1]) or evaluate_sizes(*a, **k))
    assert run(*words)[0] == 0
    assert asked == [[12], [14]]
    resumed = json.loads((here / "result.json").read_text())
    assert "interrupted" not in resumed
    assert (here / "result.csv").read_text().count("\n") == 5

    assert run(*words[:-1], "whole")[0] == 0  # asks all sizes again: nothing was interrupted
    whole = json.loads((here / "whole.json").read_text())
    assert asked[2:] == [[8], [10], [12], [14]]
    for key in ("rows", "curves", "average", "settings", "model", "validation"):
        assert resumed[key] == whole[key]


def test_evaluations_of_other_settings_do_not_go_on(run, here, monkeypatch):
    monkeypatch.setattr(generalization, "evaluate_sizes", interrupting(generalization.evaluate_sizes, at=2))
    assert run("evaluate", "laptop-add", "--sizes", 8, 10, *FEW, "--output", "result")[0] == 130
    assert run("evaluate", "laptop-add", "--sizes", 8, 10, "--instances", 2, "--output", "result")[0] == 0
    rows = json.loads((here / "result.json").read_text())["rows"]
    assert [row["problems"] for row in rows] == [2, 2]


def test_nothing_finished_is_nothing_written(run, here, monkeypatch):
    monkeypatch.setattr(generalization, "evaluate_sizes", interrupting(generalization.evaluate_sizes, at=1))
    code, out, err = run("evaluate", "laptop-add", "--sizes", 8, *FEW)
    assert (code, out, err) == (130, "", "interrupted\n")
    assert not list(here.iterdir())


def test_an_interrupted_certificate_is_kept_and_goes_on(run, here, monkeypatch):
    asked = []

    def certify(loop, nodes, **_):
        asked.append(nodes)
        if len(asked) == 2:
            raise KeyboardInterrupt
        margins = {"smallest_margin": 1.0, "median_margin": 2.0}
        return {"nodes": nodes, "patterns": {}, "wrong": [], "entries": 0, "lookup": margins}

    monkeypatch.setattr(certifying, "certify", certify)
    words = ("certify", "laptop-add", "--sizes", "8", "16", "..", "32")
    code, out, err = run(*words)
    assert code == 130
    assert "kept 1 of 4 sizes; the same command goes on" in err
    assert "laptop-add" in out
    (path,) = (here / "results").iterdir()
    assert path.name.startswith("laptop-add-certificate-")
    assert json.loads(path.read_text())["interrupted"]
    assert run(*words)[0] == 0
    assert asked == [8, 16, 16, 24, 32]
    document = json.loads(path.read_text())
    assert [size["nodes"] for size in document["sizes"]] == [8, 16, 24, 32]
    assert "interrupted" not in document


def test_an_interrupted_stress_test_keeps_its_rows(run, here, monkeypatch):
    monkeypatch.setattr(stressing, "run_scenario", interrupting(stressing.run_scenario, at=3))
    code, _, err = run("stress", "laptop-add", "--nodes", 8, "--instances", 1, "--output", "stress.json")
    assert code == 130
    assert "kept 2 of 14 scenarios" in err
    document = json.loads((here / "stress.json").read_text())
    assert (len(document["rows"]), document["interrupted"]) == (2, True)


def test_results_never_take_the_place_of_a_checkpoint(run, here):
    from latentloop.evaluate.pretrained import shipped

    folder = here / "copy"
    folder.mkdir()
    for file in shipped("laptop-add").glob("*.[js]*"):
        (folder / file.name).write_bytes(file.read_bytes())
    os.link(folder / "config.json", folder / "linked.json")
    for command, name in (
        ("evaluate", "config"),
        ("evaluate", "linked"),
        ("certify", "metrics"),
        ("stress", "manifest"),
    ):
        before = (folder / f"{name}.json").read_bytes()
        assert one_line_error(run(command, folder, "--output", folder / f"{name}.json"), "the same file as")
        assert (folder / f"{name}.json").read_bytes() == before
