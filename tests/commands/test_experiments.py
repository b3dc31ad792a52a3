"""latentloop reproduce and sweep, as typed."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from latentloop.experiments.table import EXPERIMENTS, experiment
from small_runs import command

NAMES = [job.name for job in experiment("rehearsal").jobs]


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A folder in which the rehearsal was run, with two workers."""
    folder = tmp_path_factory.mktemp("experiments")
    ended = command("reproduce", "rehearsal", "--folder", "kept", "--runs", "runs", "--workers", "2", cwd=folder)
    assert ended.returncode == 0, ended.stderr
    return folder


def test_an_experiment_is_run_and_stored(done):
    assert sorted(path.stem for path in (done / "kept" / "results").glob("*.json")) == sorted(NAMES)
    assert {path.name for path in (done / "kept" / "figures").iterdir()} == {
        f"rehearsal-methods.{kind}" for kind in ("png", "pdf")
    }


def test_what_is_stored_is_not_run_again(done):
    before = {path: path.stat().st_mtime_ns for path in (done / "kept" / "results").glob("*.json")}
    ended = command("reproduce", "rehearsal", "--folder", "kept", "--runs", "elsewhere", cwd=done)
    assert ended.returncode == 0, ended.stderr
    assert not (done / "elsewhere").exists()
    assert before == {path: path.stat().st_mtime_ns for path in (done / "kept" / "results").glob("*.json")}


def test_results_come_from_the_storage_where_files_are_missing(done):
    ended = command("sweep", NAMES[0], "rehearsal", "--folder", "copy", "--runs", "runs", cwd=done)
    assert ended.returncode == 0, ended.stderr
    for name in NAMES:
        kept, copied = ((done / place / "results" / f"{name}.json").read_text() for place in ("kept", "copy"))
        assert json.loads(kept) == json.loads(copied)


def test_reproduce_collects_what_others_have_stored_and_starts_nothing(done):
    ended = command("reproduce", "rehearsal", "--folder", "collected", "--runs", "runs", cwd=done)
    assert ended.returncode == 0, ended.stderr
    assert {path.stem for path in (done / "collected" / "results").glob("*.json")} == set(NAMES)


def test_ctrl_c_saves_and_the_same_command_goes_on(tmp_path, ctrl_c):
    words = [sys.executable, "-m", "latentloop", "reproduce", "rehearsal", "--folder", "kept", "--runs", "runs"]
    words += ["--workers", "1"]
    worker = subprocess.Popen(
        words, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    metrics = []
    while not metrics:  # until a training has begun
        assert worker.poll() is None, worker.stderr.read()
        metrics = list((tmp_path / "runs").glob("*/metrics.jsonl"))
        time.sleep(0.05)
    worker.send_signal(signal.SIGINT)
    assert worker.wait() == 130
    assert len(list((tmp_path / "kept" / "results").glob("*.json"))) < len(NAMES)
    ended = command("sweep", "rehearsal", "--folder", "kept", "--runs", "runs", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert len(list((tmp_path / "kept" / "results").glob("*.json"))) == len(NAMES)


def test_the_experiments_are_listed(run, tmp_path):
    code, out, _ = run("reproduce", "--folder", tmp_path)
    assert code == 0
    assert all(name in out for name in EXPERIMENTS)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["reproduce", "laddder"], "did you mean 'ladder'"),
        (["sweep"], "name an experiment"),
        (["reproduce", "rehearsal", "--workers", "0"], "workers must be 1 to"),
        (["sweep", "rehearsal", "--storage", "nonsense://x"], "cannot use the storage nonsense://x"),
    ],
)
def test_mistakes_are_one_line(run, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    code, _, err = run(*words, *([] if words == ["sweep"] else ["--folder", tmp_path]))
    assert code == 2
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_broken_result_stops_the_command_before_any_work(run, tmp_path):
    path = tmp_path / "results" / f"{NAMES[0]}.json"
    path.parent.mkdir()
    path.write_text("{")
    code, _, err = run("reproduce", "rehearsal", "--folder", tmp_path, "--runs", tmp_path / "runs")
    assert code == 2
    assert f"cannot read {path}" in err
    assert path.read_text() == "{"
    assert not (tmp_path / "runs").exists()
