"""``latentloop figures``: what is listed, what is drawn, and what is refused."""

import json
import re

import pytest

from experiment_documents import documents, with_keys, with_steps
from latentloop.experiments.store import result_path, write_result
from latentloop.report.ladder import FIGURES


@pytest.fixture
def folder(tmp_path, monkeypatch):
    with_steps(monkeypatch)
    for result in with_keys(documents(cot=0.5, cot_4x=0.75)).values():
        write_result(tmp_path / "stored", result)
    return tmp_path / "stored"


def test_the_list_says_what_is_missing(run, folder):
    code, printed, _ = run("figures", "--folder", folder)
    assert code == 0
    assert all(name in printed for name in FIGURES)
    runs = len(FIGURES["structure"].jobs("laptop"))
    assert re.search(rf"structure +4 of {runs} +cot-[\w-]+ and \d+ more", printed)
    code, printed, _ = run("figures", "--folder", folder, "--json")
    rows = {row["name"]: row for row in json.loads(printed)["figures"]}
    assert "cot-seed0" not in rows["methods"]["missing"]
    assert "stable-seed2" in rows["methods"]["missing"]


def test_figures_are_drawn(run, folder, tmp_path):
    code, printed, said = run("figures", "structure", "methods", "--folder", folder, "--output", tmp_path / "images")
    assert (code, printed) == (0, "")
    assert "methods: not measured yet: feedforward-seed0, " in said
    written = sorted(path.name for path in (tmp_path / "images").iterdir())
    assert written == ["methods.pdf", "methods.png", "structure.pdf", "structure.png"]


def test_all_figures_that_have_results(run, folder, tmp_path):
    words = ("--folder", folder, "--output", tmp_path / "images", "--formats", "svg", "--json")
    code, printed, _ = run("figures", "all", *words)
    assert code == 0
    assert str(tmp_path / "images" / "bars-cot.svg") in json.loads(printed)["files"]
    assert not (tmp_path / "images" / "halting.svg").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("metods",), "unknown figure 'metods': .* did you mean 'methods'"),
        (("halting",), "cannot draw halting: it needs results of halting; run `latentloop reproduce halting`"),
        (("methods", "--output", "/dev/null/x"), "cannot write /dev/null/x/methods.png"),
        (("methods", "--formats", "gif"), "gif"),
        (("methods", "--formats"), "--formats needs at least one of png, pdf, svg"),
        (("all", "--scale", "paper"), "no figure has results in .*: run `latentloop reproduce paper`"),
        (("all", "--scale", "further"), "run `latentloop reproduce further`"),
        (("built-in", "--scale", "paper"), "unknown figure 'built-in' at the scale 'paper': choose from"),
        (("all", "--scale", "tuning"), "the scale tuning has no figures"),
    ],
)
def test_mistakes_are_one_line(run, folder, words, message):
    code, printed, said = run("figures", *words, "--folder", folder)
    assert (code, printed) == (2, "")
    assert re.search(message, said)
    assert said.count("\n") == 1


def test_a_folder_that_is_not_there(run, tmp_path):
    code, _, said = run("figures", "--folder", tmp_path / "nowhere")
    assert code == 2
    assert "there is no folder" in said


@pytest.mark.parametrize("content", ["{", "[]", '{"format": "other"}', '{"format": "latentloop experiment 1"}'])
def test_a_broken_or_foreign_result(run, folder, content):
    result_path(folder, "stable-seed0").write_text(content)
    code, _, said = run("figures", "--folder", folder)
    assert code == 2
    assert "stable-seed0.json" in said


def test_a_result_of_another_configuration(run, folder):
    (result,) = documents(cot_4x=0.5).values()
    write_result(folder, result | {"key": "0" * 16})
    code, _, said = run("figures", "methods", "--folder", folder)
    assert code == 2
    assert "is of another configuration than cot-4x-seed0 has today" in said
