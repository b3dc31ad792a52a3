"""Every input and every fault that once ended in a traceback, a loss or a wrong word; found by fuzzing, or by trying."""

import json
import os
import signal
import sys

import pytest
import torch
from rich.console import Console

from latentloop import cli
from latentloop.config import RunConfig, TaskConfig
from latentloop.errors import Terminated, UserError
from latentloop.evaluate import generalization
from latentloop.evaluate.pretrained import LatentLoop
from latentloop.evaluate.solve import answer_lines, oracle_solver
from latentloop.files import parse_json, to_json, write_json
from latentloop.tokens import dataset
from latentloop.train.interrupt import StopSignals
from latentloop.train.lock import LOCK, locked
from small_runs import go, quick, weights

SUM = "20 = x7 ; 2 = x42 ; x7 + x42 = x23"
EVALUATE = ("evaluate", "laptop-add", "--sizes", "8", "10", "12", "--instances", "4", "--output", "result")


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Run a command in this process, in an empty folder; gives its exit code and its errors."""
    monkeypatch.chdir(tmp_path)

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["latentloop", *map(str, words)])
        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code
        return code, capsys.readouterr().err

    return call


@pytest.mark.parametrize(
    "settings",
    [
        {"x" * 5000: 1},
        {"method": {"name": "x" * 5000}},
        {"train": {"curriculum": ["16:" + "1" * 900_000 + "x"]}},  # took hours to refuse
        {"train": {"curriculum": ["16:" + "9" * 400]}},
    ],
    ids=["key", "name", "digits", "share"],
)
def test_messages_about_settings_are_short(settings):
    with pytest.raises(UserError) as caught:
        RunConfig.from_dict(settings)
    assert len(str(caught.value)) < 300


def test_names_that_are_not_utf8_are_written_as_json(tmp_path):
    name = os.fsdecode(b"caf\xe9")  # as Python gives the name of such a file
    write_json(tmp_path / "result.json", {"command": f"latentloop evaluate {name}"})
    assert json.loads((tmp_path / "result.json").read_bytes())["command"].endswith(name)
    assert to_json({"command": "café"}) == '{"command": "café"}'


@pytest.mark.parametrize("number", [b"1e999", b"-1e999", b"9" * 400 + b".0"])
def test_numbers_too_large_are_not_read_as_infinite(number):
    with pytest.raises(ValueError, match="too large"):
        parse_json(b'{"seconds": %s}' % number)


@pytest.mark.parametrize("identity", [b"1e999", b"NaN", b"[" * 400 + b"]" * 400, b'{"a":' * 330 + b"1" + b"}" * 330])
def test_every_answer_can_be_written(identity):
    lines = [b'{"id": %s, "text": "1 = x0"}' % identity, b'{"id": 7, "text": "1 = x0"}', '["é"]'.encode("utf-16")]
    answers = list(answer_lines(lines, TaskConfig(), oracle_solver))
    for answer in answers:
        json.dumps(answer, allow_nan=False)
    assert answers[1] == {"id": 7, "values": {"x0": 1}}
    assert "error" in answers[2]


def test_a_damaged_lock_still_tells_that_the_folder_is_in_use(tmp_path):
    with locked(tmp_path):
        (tmp_path / LOCK).write_bytes(b"\xff\xfe")
        with pytest.raises(UserError, match="is in use by"), locked(tmp_path):
            pass


def test_a_run_killed_before_its_settings_can_be_started_again(run, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / LOCK).write_text("process 1 on host\n")
    (folder / ".config.json.abc.part").write_text("{")
    settings = ("--steps", 2, "--validate-every", 2, "--checkpoint-every", 2)
    assert run("train", "--preset", "tiny-stable", *settings, "--output", "run")[0] == 0
    assert not list(folder.glob(".*.part"))
    assert run("train", "--preset", "tiny-stable", *settings, "--output", "run")[0] == 2  # now there is a run


def stopping(function, error, *, at):
    calls = []

    def call(*arguments, **settings):
        calls.append(arguments)
        if len(calls) == at:
            raise error
        return function(*arguments, **settings)

    return call


def test_a_crash_keeps_the_sizes_that_are_finished(run, tmp_path, monkeypatch):
    evaluate = generalization.evaluate_sizes
    monkeypatch.setattr(generalization, "evaluate_sizes", stopping(evaluate, MemoryError(), at=3))
    with pytest.raises(MemoryError):
        run(*EVALUATE)
    assert len(json.loads((tmp_path / "result.json").read_text())["rows"]) == 2
    asked = []
    monkeypatch.setattr(generalization, "evaluate_sizes", lambda *a, **k: asked.append(a[1]) or evaluate(*a, **k))
    assert run(*EVALUATE)[0] == 0
    assert asked == [[12]]


def test_sigterm_keeps_what_is_finished(run, monkeypatch):
    evaluate = generalization.evaluate_sizes
    for kept in (1, 2):  # again after it was resumed
        monkeypatch.setattr(generalization, "evaluate_sizes", stopping(evaluate, Terminated(), at=2))
        code, err = run(*EVALUATE)
        assert code == 143
        assert f"kept {kept} of 3 sizes; the same command goes on" in err
    monkeypatch.setattr(generalization, "evaluate_sizes", stopping(evaluate, Terminated(), at=1))
    code, err = run(*EVALUATE)
    assert (code, "kept 2 of 3 sizes" in err) == (143, True)


def test_a_kept_result_that_was_changed_is_not_gone_on_with(run, tmp_path, monkeypatch):
    evaluate = generalization.evaluate_sizes
    monkeypatch.setattr(generalization, "evaluate_sizes", stopping(evaluate, KeyboardInterrupt(), at=2))
    assert run(*EVALUATE)[0] == 130
    path = tmp_path / "result.json"
    path.write_text(path.read_text().replace('"solved": 1.0', '"solved": 0.0', 1))
    monkeypatch.setattr(generalization, "evaluate_sizes", evaluate)
    assert run(*EVALUATE)[0] == 0
    assert [row["solved"] for row in json.loads(path.read_text())["rows"]] == [1.0, 1.0, 1.0]


def test_sigterm_keeps_the_problems_of_a_data_set(run, tmp_path, monkeypatch):
    work_out = dataset.work_out

    def terminated(*arguments):
        os.kill(os.getpid(), 15)
        return work_out(*arguments)

    monkeypatch.setattr(dataset, "check_dataset", lambda *_: None)
    monkeypatch.setattr(dataset, "work_out", terminated)
    code, err = run("dataset", "--count", 3000, "--nodes", 8, "--output", "data.jsonl")
    assert (code, "kept the first 1024 of 3000" in err) == (143, True)
    assert len((tmp_path / "data.jsonl").read_text().splitlines()) == 1024


@pytest.mark.parametrize("sizes", [("9", "8", "..", "5"), ("8", "9", "..", "5"), ("8", "8", "..", "12")])
def test_sizes_that_do_not_rise_are_refused(run, sizes):
    code, err = run("evaluate", "laptop-add", "--sizes", *sizes)
    assert (code, "must rise, as in 8 16 .. 128" in err) == (2, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("stress", "laptop-add", "--nodes", "9999999999"), "--nodes must be 1 to 4096, got 9999999999"),
        (("train", "--preset", "tiny-stable", "--lr", "nan"), "--lr must be a finite number, got nan"),
        (("evaluate", "", "--sizes", "8"), "no checkpoint at"),
    ],
)
def test_errors_name_what_was_typed(run, words, message):
    code, err = run(*words)
    assert (code, message in err, len(err.splitlines())) == (2, True, 1)


def test_training_goes_on_while_an_iterator_waits(tmp_path):
    states = LatentLoop.from_pretrained("laptop-add").iterate(SUM)
    assert next(states)["x7"] == 20
    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()
    go(quick(steps=2), tmp_path / "run")
    assert weights(tmp_path / "run")
    assert next(states)["x23"] == 22


def test_training_in_the_background_goes_on_when_ctrl_c_stops_another_job():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as shells start jobs with &
    try:
        with StopSignals(Console(quiet=True)) as stopping:
            os.kill(os.getpid(), signal.SIGINT)
            assert stopping.received is None
            os.kill(os.getpid(), signal.SIGTERM)
            assert stopping.received == signal.SIGTERM
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
