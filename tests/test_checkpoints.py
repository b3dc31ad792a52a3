"""Every shipped checkpoint is small, says what it is, and reaches its recorded score on a fixed small set."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from latentloop.evaluate.generalization import evaluate_sizes
from latentloop.evaluate.hub import resolve, shipped
from latentloop.evaluate.pretrained import LatentLoop
from latentloop.files import read_json
from latentloop.presets import DEFAULT_MODEL, preset

FOLDER = Path(__file__).parent.parent / "checkpoints"
NAMES = sorted(path.name for path in FOLDER.iterdir() if path.is_dir() and not path.name.startswith("__"))


def test_something_is_shipped():
    assert {"laptop-add", "laptop-all-4096", DEFAULT_MODEL} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_checkpoint_is_small_and_found_from_anywhere(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert shipped(name) == FOLDER / name
    assert sum(path.stat().st_size for path in (FOLDER / name).iterdir()) < 10e6
    assert LatentLoop.from_pretrained(name).sha256 in (FOLDER / name / "README.md").read_text()


def test_a_folder_here_goes_before_a_shipped_checkpoint_of_the_same_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "laptop-add").mkdir()  # of something else
    assert resolve("laptop-add") == FOLDER / "laptop-add"
    shutil.copytree(FOLDER / "laptop-all", tmp_path / "laptop-add", dirs_exist_ok=True)
    assert resolve("laptop-add") == Path("laptop-add")
    assert LatentLoop.from_pretrained("laptop-add").sha256 == LatentLoop.from_pretrained("laptop-all").sha256


@pytest.mark.parametrize("name", NAMES)
def test_it_reaches_its_recorded_score(name):
    recorded = {row["nodes"]: row for row in read_json(FOLDER / name / "evaluation.json")["rows"]}
    trained = LatentLoop.from_pretrained(name)
    for nodes, count in (32, 12), (128, 12):
        (row,) = evaluate_sizes(trained, [nodes], count)["rows"]
        failures = round((1 - recorded[nodes]["solved"]) * recorded[nodes]["problems"])
        assert row["solved"] * count >= count - failures


def test_a_thousand_nodes_are_solved():
    trained = LatentLoop.from_pretrained("laptop-all-4096")
    (row,) = evaluate_sizes(trained, [1024], 1)["rows"]
    assert (row["solved"], row["false_halts"], row["cycles"]) == (1.0, 0.0, 0.0)


@pytest.mark.parametrize("name", NAMES)
def test_its_name_is_the_preset_that_trains_it(name):
    run = LatentLoop.from_pretrained(name).run
    assert replace(run, train=replace(run.train, seed=0)) == preset(name)


@pytest.mark.parametrize("name", NAMES)
def test_its_results_are_of_these_weights(name):
    model = LatentLoop.from_pretrained(name)
    for result in ("evaluation", "certificate", "stress"):
        document = read_json(FOLDER / name / f"{result}.json")
        assert document["model"]["sha256"] == model.sha256
        assert document["provenance"]["machine"]


def test_trust_from_the_command_line(tmp_path):
    program = [sys.executable, "-m", "latentloop"]
    done = subprocess.run(
        [*program, "certify", "laptop-add", "--sizes", "16", "--json"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["sizes"][0]["wrong"] == []
    done = subprocess.run(
        [*program, "stress", "--checkpoint", "laptop-add", "--nodes", "16", "--instances", "2", "--json"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert {row["solved"] for row in json.loads(done.stdout)["rows"]} == {1.0}
    assert len(list((tmp_path / "results").iterdir())) == 2


def test_a_certificate_that_is_not_perfect_exits_with_1(tmp_path):
    trained = LatentLoop.from_pretrained("laptop-add")
    with torch.no_grad():
        trained.model.readouts["value"].bias[5] -= 100  # never says 5
    trained.save_pretrained(tmp_path / "spoiled")
    program = [sys.executable, "-m", "latentloop", "certify", "spoiled", "--sizes", "16", "--output", "found.json"]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert "16 nodes: 553 of 12,719 entries wrong" in done.stdout  # 1 + 23 + 23 * 23 of them give 5
    assert read_json(tmp_path / "found.json")["sizes"][0]["wrong"][0]["operands"] == [5]


def test_the_default_model_is_asked_where_none_is_named(tmp_path):
    def ask(*words):
        program = [sys.executable, "-m", "latentloop", *words]
        return subprocess.run(program, cwd=tmp_path, capture_output=True, text=True)

    done = ask("solve", "3 = x1 ; 4 = x2 ; x1 * x2 - x1 = x3")
    assert done.stdout.splitlines()[-1] == "laptop-all: fixpoint after 3 iterations, all right (modulo 23)"
    done = ask("evaluate", "--sizes", "8", "--instances", "4", "--skip", "4", "--json")
    assert json.loads(done.stdout)["model"]["sha256"] == LatentLoop.from_pretrained().sha256
    assert json.loads(done.stdout)["settings"]["skip"] == 4
    done = ask("evaluate", "--sizes", "8", "--instances", "4", "--json")
    assert json.loads(done.stdout)["settings"]["skip"] == 0
    assert len(list((tmp_path / "results").glob("*.json"))) == 2  # nothing takes another's place
    done = ask("solve", "1 = x1", "--modulus", "7")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert "the model was trained with modulus 23, got 7: leave it out, or choose --oracle" in done.stderr


def test_the_weights_of_experiments_stay_small():
    sizes = [
        path.stat().st_size
        for path in (Path(__file__).parents[1] / "experiments" / "weights").glob("*/model.safetensors")
    ]
    assert sizes
    assert max(sizes) < 10e6
    assert sum(sizes) < 60e6
