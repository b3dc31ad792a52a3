"""latentloop reproduce and sweep, as typed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiment_documents import document
from latentloop import cli
from latentloop.commands import experiments
from latentloop.errors import Terminated, UserError
from latentloop.experiments import measure
from latentloop.experiments.claims import claims
from latentloop.experiments.store import result_path, stored_results, write_result
from latentloop.experiments.sweep import Board
from latentloop.experiments.table import EXPERIMENTS, experiment
from latentloop.provenance import provenance
from small_runs import command

JOBS = experiment("rehearsal").jobs
NAMES = [job.name for job in JOBS]
SLURM = Path(__file__).parents[2] / "examples" / "sweep.slurm"


def made_up(job):
    return document(job, 0.5) | {"key": job.key}


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


def test_a_foreign_result_is_one_line(run, tmp_path):
    result = made_up(JOBS[0])
    result["rows"][0]["solved"] = None
    write_result(tmp_path, result)
    code, _, err = run("reproduce", "--folder", tmp_path)
    assert code == 2
    assert f"cannot read {result_path(tmp_path, NAMES[0])}: solved at N = 8 must be a share" in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize("name", ["reproduce", "sweep"])
def test_a_file_that_is_no_journal_is_refused_and_kept(run, tmp_path, name):
    notes = tmp_path / "notes.txt"
    notes.write_text("dear diary")
    words = ("--storage", notes, "--folder", tmp_path / "kept", "--runs", tmp_path / "runs")
    code, _, err = run(name, "rehearsal", *words)
    assert code == 2
    assert err.startswith(f"error: cannot use the storage {notes}: it is a file of another kind")
    assert len(err.strip().splitlines()) == 1
    assert notes.read_text() == "dear diary"


def test_a_result_that_was_stored_meanwhile_goes_to_the_storage_unmeasured(run, tmp_path, monkeypatch):
    for job in JOBS:
        write_result(tmp_path, made_up(job))
    monkeypatch.setattr(experiments, "_missing", lambda jobs, folder: list(jobs))  # they were, when this worker began
    monkeypatch.setattr(measure, "measure", lambda *_: pytest.fail("it was measured again"))
    code, _, err = run("sweep", "rehearsal", "--folder", tmp_path, "--runs", tmp_path / "runs")
    assert code == 0, err
    found = Board.open(str(tmp_path / "runs" / "sweep.journal"), JOBS).results()
    assert found == {job.key: made_up(job) for job in JOBS}


def test_results_in_a_storage_are_read_with_suspicion(tmp_path):
    board = Board.open(str(tmp_path / "sweep.journal"), JOBS[:2])
    renamed, foreign = made_up(JOBS[0]) | {"point": "an-older-name"}, made_up(JOBS[1]) | {"curves": {}}
    for result in (renamed, foreign):
        trial, _ = board.take()
        board.finish(trial, result)
    with pytest.raises(UserError, match=f"cannot read the result of {NAMES[1]} in the storage: the curve"):
        experiments._collect(board, tmp_path)
    assert stored_results(JOBS, tmp_path) == {NAMES[0]: made_up(JOBS[0])}


def test_a_storage_that_fails_does_not_stop_the_workers_of_reproduce(tmp_path, monkeypatch, capsys):
    def standing():
        raise UserError("cannot use the storage x: it is away")

    board = Board.open(str(tmp_path / "sweep.journal"), JOBS)
    monkeypatch.setattr(board, "standing", standing)
    monkeypatch.setattr(experiments, "REFRESH", 0.1)
    words = [sys.executable, "-c", "import time; time.sleep(0.5); open('done', 'w')"]
    monkeypatch.chdir(tmp_path)
    experiments._with_workers(words, 1, board, JOBS, tmp_path, 0)
    said = capsys.readouterr().err
    assert "it is away" in said
    assert "failed" not in said
    assert (tmp_path / "done").exists()


def test_what_made_a_worker_fail_is_said(tmp_path, monkeypatch, capsys):
    board = Board.open(str(tmp_path / "sweep.journal"), JOBS)
    monkeypatch.setattr(experiments, "REFRESH", 0.1)
    words = [sys.executable, "-c", "print('step 1'); raise SystemExit('error: no space left')"]
    experiments._with_workers(words, 1, board, JOBS, tmp_path, 0)
    assert "worker 0: error: no space left" in capsys.readouterr().err


def test_why_a_run_was_not_done_is_said(tmp_path, monkeypatch, run):
    def broken(command, workers, board, jobs, *more):
        trial, _ = board.take()
        board.give_up(trial, "its run folder is damaged")

    monkeypatch.setattr(experiments, "_with_workers", broken)
    monkeypatch.chdir(tmp_path)
    code, _, said = run("reproduce", NAMES[0], "--folder", "kept", "--runs", "runs")
    assert code == 1
    assert f"not done: {NAMES[0]}, its run folder is damaged" in " ".join(said.split())


def test_every_interruption_goes_to_the_workers(tmp_path, monkeypatch):
    words = "import signal, time; signal.signal(signal.SIGINT, lambda *_: open('one', 'w')); open('up', 'w'); time.sleep(60)"
    monkeypatch.chdir(tmp_path)
    worker = subprocess.Popen([sys.executable, "-c", words], start_new_session=True)
    while not Path("up").exists():
        time.sleep(0.05)
    given = iter([Terminated()])

    def wait(real=worker.wait):
        while not Path("one").exists():  # it was told once, and has not ended
            time.sleep(0.05)
        for again in given:
            raise again
        return real(timeout=30)

    monkeypatch.setattr(worker, "wait", wait)
    experiments._stop([worker], KeyboardInterrupt())
    assert worker.returncode == -signal.SIGTERM


def test_an_unrelated_broken_result_does_not_spoil_finished_work(done, tmp_path):
    folder = tmp_path / "kept"
    shutil.copytree(done / "kept", folder)
    (folder / "results" / "stable-seed0.json").write_text("{}")
    ended = command("reproduce", "rehearsal", "--folder", str(folder), cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("stable-first", "a claim, not an experiment: `latentloop reproduce --claim stable-first`"),
        ("discrete-debeta", "did you mean 'discrete-deberta'?"),
        ("xyz", "choose from built-in, correction"),
    ],
)
def test_an_unknown_experiment(run, name, said):
    code, _, error = run("reproduce", name)
    assert code == 2
    assert said in " ".join(error.split())


def test_where_workers_meet_is_not_stored(monkeypatch):
    words = ["latentloop", "sweep", "a", "--storage", "postgresql://loop:secret@host/x", "--runs=there", "--weights"]
    monkeypatch.setattr(sys, "argv", words)
    assert provenance()["command"] == "latentloop sweep a --weights"


def test_the_slurm_example_is_a_sweep_that_can_be_submitted_again(tmp_path):
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "activate").write_text(f"PATH={programs}:$PATH\n")
    (programs / "latentloop").write_text('#!/bin/bash\nprintf "%s\\n" "$@" > words\n')
    (programs / "latentloop").chmod(0o755)
    environment = {"PATH": os.environ["PATH"], "SLURM_SUBMIT_DIR": str(tmp_path)}
    subprocess.run(["bash", SLURM], env=environment, check=True)
    name, *words = (tmp_path / "words").read_text().splitlines()
    assert name == "sweep"
    given = cli._read(experiments.sweep, words, "latentloop sweep").keywords
    assert [experiment(one) for one in given["names"]] == [EXPERIMENTS["paper"]]
    assert (given["storage"], given["weights"]) == (str(experiments.RUNS / experiments.JOURNAL), True)
    assert "submit the same file again" in " ".join(SLURM.read_text().replace("#", " ").split())


def test_the_overview_has_every_experiment_and_every_claim(run):
    code, out, _ = run("reproduce", "--folder", "nothing")
    assert code == 0
    assert {*EXPERIMENTS, *claims()} <= {line.split()[0] for line in out.splitlines() if line.strip()}
    assert "not measured yet" in out
