"""What is asked of a study: which analyses apply, at which size, and the command; and a looped model of one's own."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from handmade import GRAPH, TASK, handmade
from latentloop.config.positions import DisentangledConfig
from latentloop.errors import UserError
from latentloop.evaluate.pretrained import LatentLoop
from latentloop.interpret import subject as subject_module
from latentloop.interpret.registry import ANALYSES
from latentloop.interpret.study import chosen, interpret
from latentloop.interpret.subject import Settings, find_size
from latentloop.model.build import build_model, weights_of
from latentloop.presets import preset
from latentloop.report.study import study_charts, study_page
from latentloop.train.checkpoint import Checkpoint

ROOT = Path(__file__).parents[2]
SMALL = Settings(scenes=1, instances=4, rollouts=24, pairs=6, samples=160)
TINY = Settings(scenes=1, instances=1, rollouts=2, pairs=1, samples=32)
END_TO_END = {"sharpness"}
HIDDEN = {"sharpness", "drift", "iterations"}
DEEP = set(ANALYSES) - {"errors"}
PAIRS = {"recompute", "sharpness", "drift", "iterations"}
SHORT = DisentangledConfig(relative_width=16, window=16)


def untrained(name, **model):
    run = preset(f"tiny-{name}")
    run = replace(run, task=TASK, graph=replace(GRAPH, nodes=8), model=replace(run.model, width=16, **model))
    return LatentLoop(Checkpoint(run=run, weights=weights_of(build_model(run)), metrics={}))


def of_the_ladder(name, modulus=TASK.modulus, fan_ins=None, **model):
    """A model of the comparison, small, with few values, and untrained."""
    run = preset(f"ladder-{name}")
    task, graph = replace(run.task, modulus=modulus), replace(run.graph, fan_ins=fan_ins)
    run = replace(run, task=task, graph=graph, model=replace(run.model, width=16, heads=2, **model))
    return LatentLoop(Checkpoint(run=run, weights=weights_of(build_model(run)), metrics={}))


@pytest.mark.parametrize(
    ("trained", "applies", "reason"),
    [
        (lambda: untrained("cot"), set(), "chain of thought"),
        (lambda: untrained("feedforward"), END_TO_END, "applies the block once"),
        (lambda: untrained("recurrent"), END_TO_END, "recurrent carries hidden vectors"),
        (lambda: untrained("continuous"), HIDDEN, "continuous carries hidden vectors"),
        (lambda: untrained("stable"), set(ANALYSES), ""),
        (lambda: of_the_ladder("cot"), set(), "chain of thought"),
        (lambda: of_the_ladder("feedforward"), END_TO_END, "trained on final values alone"),
        (lambda: of_the_ladder("recurrent"), END_TO_END, "trained on final values alone"),
        (lambda: of_the_ladder("continuous"), HIDDEN, "continuous carries hidden vectors"),
        (lambda: of_the_ladder("discrete"), set(ANALYSES), ""),
        (lambda: of_the_ladder("discrete", positions=SHORT, first_heads=None), set(ANALYSES), ""),
        (lambda: of_the_ladder("corrected"), DEEP, "the model has 4"),
        (lambda: untrained("discrete", layers=1), DEEP, "the model has 1"),
        (lambda: of_the_ladder("discrete", modulus=3), set(ANALYSES) - {"fourier"}, "3 values have too few frequencies"),
        (lambda: of_the_ladder("discrete", modulus=37), set(ANALYSES) - {"fourier"}, "37 values are too many"),
        (lambda: of_the_ladder("discrete", fan_ins=(1, 2)), PAIRS, "three operands"),
    ],
    ids=["cot", "feedforward", "recurrent", "continuous", "stable", "ladder cot", "ladder feedforward", "ladder recurrent",
         "ladder continuous", "ladder discrete", "ladder discrete deberta", "ladder corrected", "one layer",
         "modulus 3", "modulus 37", "two operands"],
)  # fmt: skip
def test_what_does_not_apply_says_why(trained, applies, reason, tmp_path):
    study = interpret(trained(), tmp_path, TINY)
    flow = study.results.get("flow")
    if flow is not None and flow.first_layer == "neither":  # as in most models that were never trained
        assert "errors" not in applies or "to put errors down to" in study.stored["errors"].reason
        applies = applies - {"errors"}
    assert set(study.results) == applies
    for name, one in study.stored.items():
        assert bool(one.reason) == (name not in applies)
        assert "\n" not in one.reason
    if reason:
        assert any(reason in one.reason for one in study.stored.values())
    assert all(claim.verdict != "supported" for claim in study.claims)
    assert all((claim.number == "") == (claim.verdict == "does not apply") for claim in study.claims)
    page = study_page(study, study_charts(study), {}, {})  # and the report says so, analysis by analysis
    assert len(page.sections) == 1 + len(ANALYSES)


def test_the_size_is_the_largest_that_is_solved():
    trained = handmade("names")
    size = find_size(trained, SMALL)
    assert (size.nodes, size.solved, size.repeats, size.probes_right) == (12, 1, True, 1)
    free = find_size(of_the_ladder("discrete"), TINY)  # 64 names, and problems of at most 16 nodes
    assert not free.repeats
    hidden = find_size(untrained("continuous"), TINY)
    assert hidden.probes_right is None
    random = find_size(handmade("names", random=True), SMALL)
    assert random.nodes == 12
    assert set(random.tried) == {"12"}  # smaller ones have no room for a probe


def test_the_size_solved_best_is_taken_where_none_is_solved(monkeypatch):
    trained = handmade("names", random=True)
    monkeypatch.setattr(subject_module, "SIZES", (12, 11, 10))
    shares = {12: 0.2, 11: 0.6, 10: 0.6}

    def solved(problems):
        return [SimpleNamespace(correct=row < shares[problems.width] * len(problems)) for row in range(len(problems))]

    monkeypatch.setattr(trained, "solve_problems", solved)
    assert find_size(trained, SMALL).nodes == 11


def test_only_what_is_asked_for_and_what_it_needs():
    assert chosen(["errors"]) == ["heads", "flow", "embeddings", "errors"]
    assert chosen([]) == list(ANALYSES)
    with pytest.raises(UserError, match=r"unknown analysis 'head'.*did you mean 'heads'"):
        chosen(["head"])


def test_the_command(run, tmp_path):
    folder = tmp_path / "checkpoint"
    untrained("stable").save_pretrained(folder)
    code, out, err = run("interpret", folder, "--output", tmp_path / "out", "--only", "recompute", "--json")
    assert code == 0, err
    assert '"not supported"' in out
    assert '"not computed"' in out  # what rests on other analyses
    assert (tmp_path / "out" / "report.html").is_file()
    assert "recompute: running" in err
    code, out, err = run("interpret", folder, "--output", tmp_path / "out", "--only", "recompute")
    assert "recompute: kept" in err
    code, _, err = run("report", tmp_path / "out", "--output", tmp_path / "again.html")
    assert code == 0, err
    assert (tmp_path / "again.html").read_text() == (tmp_path / "out" / "report.html").read_text()
    code, _, err = run("report", tmp_path / "out", folder, "--output", tmp_path / "again.html")
    assert code == 2
    assert "of one folder" in err
    assert "computed anew" in " ".join(out.split())
    for words, wrong in (
        (["--only", "haeds"], "unknown analysis 'haeds'"),
        (["--only"], "--only needs the name of an analysis"),
        (["--full", "--instances", "3"], "not with --full"),
        (["--output", folder / "config.json"], "is a file"),
    ):
        code, _, err = run("interpret", folder, *words)
        assert code == 2
        assert wrong in err
    assert not (Path("results")).exists() or not list(Path("results").glob("checkpoint-interpret*"))


def test_the_example_of_ones_own_model():
    page = (ROOT / "docs" / "looped.md").read_text()
    example = (ROOT / "examples" / "own_model.py").read_text()
    assert example.partition('"""\n\n')[2].strip() in page
    done = subprocess.run([sys.executable, ROOT / "examples" / "own_model.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[(0.0, 0.0), (0.0, 0.0), (0.86, 1.0)]", "True"]  # 1 - 1/7 of what varies
