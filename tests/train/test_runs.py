"""Runs as a user starts them: killed, resumed, shared by two processes, damaged."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from rich.console import Console
from safetensors.torch import load_file

from latentloop.config import RunConfig
from latentloop.errors import UserError
from latentloop.methods import METHODS
from latentloop.presets import PRESETS
from latentloop.task.oracle import solve
from latentloop.task.splits import validation_problems
from latentloop.train.checkpoint import find_checkpoint, pointed, read_checkpoint, read_metrics, weights_hash
from latentloop.train.interrupt import StopSignals
from latentloop.train.log import read_log
from small_runs import QUICK, command, go, quick, weights
from typing_user import one_line_error


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run that nobody stopped; tests that change it take a copy."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    go(quick(), folder)
    return folder


def test_presets_are_valid_and_name_their_method():
    assert {run.method.name for run in PRESETS.values()} == set(METHODS)
    for run in PRESETS.values():
        assert RunConfig.from_dict(json.loads(json.dumps(run.to_dict()))) == run


@pytest.mark.parametrize("name", METHODS)
def test_a_run_leaves_checkpoints_and_metrics(name, tmp_path):
    outcome = go(quick(name), tmp_path / "run")
    assert (outcome.reason, outcome.step) == ("done", 12)
    assert "validation_loss" in outcome.figures
    rows = read_log(tmp_path / "run")
    assert [row["step"] for row in rows if row["kind"] == "train"] == [2, 4, 6, 8, 10, 12]
    assert [row["step"] for row in rows if row["kind"] == "validation"] == [6, 12]
    assert (tmp_path / "run" / "metrics.csv").read_text().startswith("step,kind,loss")
    assert list((tmp_path / "run" / "events").iterdir())
    assert read_checkpoint(tmp_path / "run" / "last", training=True).metrics["step"] == 12
    assert len(list((tmp_path / "run").glob("step-*"))) <= 2
    assert not list((tmp_path / "run").rglob("*.part"))
    assert not list((tmp_path / "run").rglob("*.pt"))


def test_the_best_checkpoint_has_the_least_validation_loss(tmp_path):
    go(quick(lr=0.5, schedule="constant", final_lr=0.0, ema=0.0, validate_every=2), tmp_path / "run")
    losses = {row["step"]: row["loss"] for row in read_log(tmp_path / "run") if row["kind"] == "validation"}
    assert read_checkpoint(tmp_path / "run" / "best").metrics["step"] == min(losses, key=losses.__getitem__)


@pytest.mark.parametrize("name", ["corrected", "cot"])
def test_stopping_and_resuming_changes_nothing(name, tmp_path):
    run = quick(name, dropout=0.2)
    go(run, tmp_path / "whole")
    assert go(run, tmp_path / "parts", minutes=0.0).reason == "minutes"
    assert read_checkpoint(tmp_path / "parts" / "last").metrics["step"] == 1
    go(run, tmp_path / "parts", resume=True)
    assert weights(tmp_path / "whole" / "last") == weights(tmp_path / "parts" / "last")
    kept = [[r for r in read_log(tmp_path / f) if r["kind"] == "train" and r["step"] > 2] for f in ("whole", "parts")]
    assert [row["loss"] for row in kept[0]] == [row["loss"] for row in kept[1]]


def test_a_killed_run_ends_as_if_it_had_never_been(tmp_path):
    words = (
        "train",
        "--preset",
        "tiny-corrected",
        "--steps",
        "40",
        "--checkpoint-every",
        "5",
        "--validate-every",
        "20",
    )
    assert command(*words, "--output", "whole", cwd=tmp_path).returncode == 0
    program = [sys.executable, "-m", "latentloop", *words, "--output", "killed"]
    for _ in range(2):
        process = subprocess.Popen(
            program, cwd=tmp_path, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.DEVNULL
        )
        deadline, before = time.time() + 60, _step(tmp_path / "killed")
        while _step(tmp_path / "killed") <= before and process.poll() is None and time.time() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        program = [sys.executable, "-m", "latentloop", "train", "--resume", "killed"]
    assert 0 < _step(tmp_path / "killed") < 40
    assert command("train", "--resume", "killed", cwd=tmp_path).returncode == 0
    assert weights(tmp_path / "whole" / "last") == weights(tmp_path / "killed" / "last")
    assert weights(tmp_path / "whole" / "best") == weights(tmp_path / "killed" / "best")
    steps = [[row["step"] for row in read_log(tmp_path / name)] for name in ("whole", "killed")]
    assert steps[0] == steps[1]


def _step(folder: Path) -> int:
    return int((folder / "last").read_text().removeprefix("step-")) if (folder / "last").is_file() else 0


def test_a_run_killed_before_its_first_checkpoint_starts_again(finished, tmp_path):
    early = tmp_path / "early"
    early.mkdir()
    shutil.copy(finished / "config.json", early)
    assert command("train", "--resume", "early", cwd=tmp_path).returncode == 0
    first, second = (load_file(find_checkpoint(f / "last") / "model.safetensors") for f in (finished, early))
    assert all((abs(first[key] - second[key]) < 1e-5).all() for key in first)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_and_sigterm_save_and_say_how_to_go_on(number, code, tmp_path, ctrl_c):
    program = [
        sys.executable,
        "-m",
        "latentloop",
        "train",
        "--preset",
        "tiny-discrete",
        "--steps",
        "100000",
        "--output",
        "run",
    ]
    process = subprocess.Popen(program, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    deadline = time.time() + 60
    while _step(tmp_path / "run") < 20 and time.time() < deadline:
        time.sleep(0.02)
    process.send_signal(number)
    try:
        _, printed = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == code
    assert "go on with: latentloop train --resume run" in printed
    assert _step(tmp_path / "run") >= 20
    read_checkpoint(tmp_path / "run" / "last", training=True)


def test_two_processes_give_the_losses_of_one(tmp_path):
    words = ("train", "--preset", "tiny-discrete", *QUICK, "--accelerator", "cpu")
    one = command(*words, "--output", "one", cwd=tmp_path)
    assert one.returncode == 0, one.stderr
    two = command(*words, "--output", "two", "--devices", "2", "--strategy", "ddp", cwd=tmp_path, timeout=120)
    assert two.returncode == 0, two.stderr
    losses = [[r["loss"] for r in read_log(tmp_path / name)] for name in ("one", "two")]
    assert len(losses[0]) == 8
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    rights = [[r["right_leaf"] for r in read_log(tmp_path / name)] for name in ("one", "two")]
    assert rights[0] == rights[1]


@pytest.mark.parametrize("name", ["discrete", "cot", "stable"])
def test_mixed_precision_trains(name, tmp_path):
    run = quick(name, precision="bf16-mixed", steps=3)
    assert go(run, tmp_path / "run").step == 3


def test_an_interruption_does_not_choose_the_best(finished, tmp_path):
    run = quick()
    go(run, tmp_path / "parts", minutes=0.0)
    assert not (tmp_path / "parts" / "best").exists()
    assert "validation" not in read_metrics(pointed(tmp_path / "parts" / "last"))
    go(run, tmp_path / "parts", resume=True)
    assert weights(finished / "best") == weights(tmp_path / "parts" / "best")


def test_a_run_without_last_goes_on_from_its_best(finished, tmp_path):
    run = quick()
    shutil.copytree(finished, tmp_path / "run")
    before = read_log(tmp_path / "run")
    best = weights(tmp_path / "run" / "best")
    (tmp_path / "run" / "last").unlink()
    assert go(run, tmp_path / "run", resume=True).step == 12
    assert weights(tmp_path / "run" / "best") == best
    assert [row["step"] for row in before] == [row["step"] for row in read_log(tmp_path / "run")]


def test_settings_changed_behind_a_runs_back_are_refused(tmp_path):
    go(quick(), tmp_path / "run", minutes=0.0)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    config["train"]["lr"] = 0.5
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="differs from the checkpoint's own settings in: train"):
        go(RunConfig.from_dict(config), tmp_path / "run", resume=True)


def test_a_run_that_diverges_stops_and_is_not_saved(tmp_path):
    with pytest.raises(UserError, match=r"the loss is .* after step .*: start anew with a lower --lr"):
        go(quick(lr=1e30, clip=0.0, warmup=0, ema=0.0), tmp_path / "run")
    assert not (tmp_path / "run" / "best").exists()


def test_validation_problems_are_like_those_trained_on(tmp_path):
    run = quick()
    problems = validation_problems(run.task, run.graph, 64)
    assert solve(problems).depths.max() <= run.graph.depth_limit
    assert ((problems.fan_in == 0).sum(1) == run.graph.leaves).all()


@pytest.mark.parametrize("damage", ["cut", "alter", "remove", "manifest", "empty manifest", "weights"])
def test_damaged_checkpoints_are_refused(damage, run, finished, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(finished, tmp_path / "run")
    folder = find_checkpoint(tmp_path / "run").resolve()
    path = folder / "model.safetensors"
    content = path.read_bytes()
    match damage:
        case "cut":
            path.write_bytes(content[: len(content) // 2])
        case "alter":
            path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        case "remove":
            path.unlink()
        case "manifest":
            (folder / "manifest.json").write_text("{")
        case "empty manifest":
            (folder / "manifest.json").write_text("{}")
        case "weights":
            (folder / "config.json").write_text((folder / "config.json").read_text().replace("32", "33"))
    with pytest.raises(UserError, match=r"altered or cut off|lacks model|not JSON"):
        read_checkpoint(tmp_path / "run")
    assert one_line_error(run("evaluate", "run"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train"], "train needs one of --preset NAME"),
        (["train", "--preset", "tiny-discret"], "did you mean 'tiny-discrete'?"),
        (["train", "--preset", "tiny-discrete", "--output", "taken"], "the run folder taken exists"),
        (["train", "--preset", "tiny-discrete", "--accelerator", "cuda"], "cannot use 1 x cuda"),
        (
            ["train", "--preset", "tiny-discrete", "--accelerator", "abacus"],
            "unknown accelerator 'abacus': choose from auto, cpu, cuda, mps",
        ),
        (["train", "--preset", "tiny-discrete", "--devices", "99"], "cannot be shared by 99 devices"),
        (["train", "--preset", "tiny-discrete", "--strategy", "telepathy"], "unknown strategy 'telepathy'"),
        (["train", "--preset", "tiny-discrete", "--heads", "5"], "width must be divisible by heads"),
        (["train", "--resume", "nowhere"], "cannot read nowhere/config.json"),
        (["train", "--config", "bad.json"], "unknown key 'metod' in the run"),
        (["train", "--preset", "tiny-discrete", "--lr", "nan"], "--lr must be a finite number, got nan"),
        (["train", "--preset", "tiny-discrete", "--minutes", "-1"], "minutes must not be negative"),
        (["train", "--preset", "tiny-discrete", "--output", "bad.json"], "the run folder bad.json is a file"),
        (
            ["train", "--preset", "tiny-feedforward", "--lookup-weight", "1"],
            "--lookup-weight is a setting of continuous and discrete and corrected and stable",
        ),
        (
            ["train", "--preset", "tiny-discrete", "--positions", "abpe", "--max-positions", "40"],
            "need --max-positions of up to 66, got 40",
        ),
        (["train", "--preset", "tiny-stable", "--seed", str(2**64)], "less than 2^64"),
        (["train", "--preset", "tiny-stable", "--lookup-noise", "-1"], "--lookup-noise must be at least 0"),
        (
            ["train", "--preset", "tiny-stable", "--true-states", "1.9"],
            "--true-states must be at least 0 and at most 1",
        ),
        (["train", "--preset", "tiny-stable", "--window", "0"], "--window must be at least 1, got 0"),
        (["train", "--preset", "tiny-add", "--preset", "tiny-discret"], "unknown preset 'tiny-discret'"),
        (["train", "--preset", "tiny-stable", "--states", "0"], "states must be at least 1"),
        (["evaluate", "nowhere"], "no checkpoint 'nowhere'"),
        (["evaluate", "taken"], "no checkpoint at taken"),
        (["evaluate", "--skip", "-1"], "the number of problems to skip must not be negative, got -1"),
        (["evaluate", "--sizes", "32", "4000"], "4000 nodes need as many distinct names, and there are 128"),
        (["certify", "--sizes", "32", "4000"], "probes need problems of 4 to 128 nodes, got 4000"),
        (["certify", "--output", "bad.json/x.json"], "bad.json is a file"),
        (["stress", "--output", "taken"], "cannot write taken: it is a folder"),
        (["stress", "--skip", "-1"], "the number of problems to skip must not be negative, got -1"),
    ],
)
def test_mistakes_end_in_one_line_and_code_2(run, words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("")
    (tmp_path / "bad.json").write_text('{"metod": "discrete"}')
    assert one_line_error(run(*words), message)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.json", "taken"]


def test_asking_a_model_loads_no_trainer():
    code = (
        "import sys, latentloop.commands.models, latentloop.commands.trust; "
        "sys.exit('lightning_fabric' in sys.modules or 'latentloop.train.loop' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_second_sigterm_loses_nothing_and_a_second_ctrl_c_breaks_off(ctrl_c):
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with StopSignals(Console(quiet=True)) as stopping:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert stopping.received == signal.SIGTERM
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_training_works_outside_the_main_thread(tmp_path):
    with ThreadPoolExecutor() as pool:
        assert pool.submit(go, quick(), tmp_path / "run").result().step == 12


def test_a_run_begins_with_weights_of_another(tmp_path):
    go(quick("discrete", steps=3), tmp_path / "first")
    start = weights_hash(tmp_path / "first")
    run = quick("discrete", steps=1, lr=0.0, weight_decay=0.0, start=start)
    go(run, tmp_path / "second", weights=tmp_path / "first")
    assert weights(tmp_path / "second") == weights(tmp_path / "first")
    go(quick("discrete", steps=1, lr=0.0, weight_decay=0.0), tmp_path / "third")
    assert weights(tmp_path / "third") != weights(tmp_path / "first")


def test_a_run_that_begins_with_weights_resumes_without_them(tmp_path):
    go(quick("discrete", steps=2), tmp_path / "first")
    run = quick("discrete", steps=4, checkpoint_every=2, start=weights_hash(tmp_path / "first"))
    go(run, tmp_path / "whole", weights=tmp_path / "first")
    go(run, tmp_path / "cut", weights=tmp_path / "first", minutes=0.0)
    go(run, tmp_path / "cut", resume=True)
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")


@pytest.mark.parametrize(
    ("other", "message"),
    [(None, "say with --weights"), ({"steps": 2}, "and .* has"), ({"layers": 3}, "differ in shape")],
)
def test_weights_to_begin_with_that_do_not_fit(other, message, tmp_path):
    go(quick("discrete", steps=1), tmp_path / "first")
    folder, start = None, weights_hash(tmp_path / "first")
    if other is not None:
        folder = tmp_path / "other"
        go(quick("discrete", **({"steps": 1} | other)), folder)
    if other and "layers" in other:
        start = weights_hash(folder)
    with pytest.raises(UserError, match=message):
        go(quick("discrete", steps=1, start=start), tmp_path / "run", weights=folder)
    assert not (tmp_path / "run" / "config.json").exists()


def test_weights_on_the_command_line(finished, tmp_path):
    done = command("train", "--preset", "tiny-discrete", *QUICK, "--weights", finished, "--output", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert read_checkpoint(tmp_path / "run").run.train.start == weights_hash(finished)
    other = ("train", "--preset", "tiny-discrete", "--output", "other")
    for words, message in (
        (("train", "--resume", finished, "--weights", finished), "began with random weights"),
        ((*other, "--weights", "nowhere"), "no checkpoint 'nowhere'"),
        ((*other, "--start", "laptop-add"), "64 hexadecimal digits"),
        ((*other, "--start", "0" * 64), "say with --weights"),
    ):
        done = command(*words, cwd=tmp_path)
        assert one_line_error((done.returncode, done.stdout, done.stderr), message)
    assert not (tmp_path / "other" / "config.json").exists()
