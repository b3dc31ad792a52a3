"""Run folders: copied, robbed of their pointers, shared by two processes. Nothing finished is lost."""

import io
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from rich.console import Console

from latentloop.errors import UserError
from latentloop.train.checkpoint import find_checkpoint, read_checkpoint
from latentloop.train.lock import locked
from small_runs import command, go, quick, weights


def contents(folder):
    return {path.name: weights(path) for path in folder.glob("step-*")}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that was never stopped; its best checkpoint is not its last."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    go(quick(steps=12), folder)
    return folder


@pytest.fixture
def stopped(tmp_path, monkeypatch):
    """The same run, stopped after step 9, when the best checkpoint is that of step 6."""
    from latentloop.train import loop

    folder, real = tmp_path / "run", loop.optimizer_step

    def step(run, number, *rest):
        if number == 9:
            raise KeyboardInterrupt
        return real(run, number, *rest)

    monkeypatch.setattr(loop, "optimizer_step", step)
    with pytest.raises(KeyboardInterrupt):
        go(quick(), folder)
    monkeypatch.undo()
    assert sorted(contents(folder)) == ["step-00000006", "step-00000009"]
    return folder


def resume(folder):
    text = io.StringIO()
    outcome = go(quick(), folder, resume=True, console=Console(file=text, width=500))
    return outcome, text.getvalue()


def links(folder):
    for name in ("last", "best"):
        target = find_checkpoint(folder / name).name
        (folder / name).unlink()
        (folder / name).symlink_to(target)


def same(folder, whole):
    assert all(weights(folder / name) == weights(whole / name) for name in ("last", "best"))
    return True


def test_pointers_are_small_files(stopped):
    assert (stopped / "last").read_text() == "step-00000009\n"
    assert (stopped / "best").read_text() == "step-00000006\n"
    assert find_checkpoint(stopped) == find_checkpoint(stopped / "best") == stopped / "step-00000006"


@pytest.mark.parametrize("kind", ["files", "links"])
@pytest.mark.parametrize("lost", ["nothing", "last", "best", "both", "dangling"])
def test_a_run_whose_pointers_were_lost_goes_on_from_its_newest_checkpoint(kind, lost, stopped, whole):
    if kind == "links":
        links(stopped)
    for name in {"nothing": [], "both": ["last", "best"], "dangling": ["last"]}.get(lost, [lost]):
        (stopped / name).unlink()
    if lost == "dangling":
        (stopped / "last").symlink_to("step-00000099") if kind == "links" else (stopped / "last").write_text("step-99")
    outcome, said = resume(stopped)
    assert outcome.step == 12
    assert ("names no checkpoint: going on from step-00000009" in said) == (lost in ("last", "both", "dangling"))
    assert same(stopped, whole)


@pytest.mark.parametrize("steps_too", [True, False])
def test_a_copy_with_links_followed_is_resumed(steps_too, stopped, whole, tmp_path):
    links(stopped)
    copy = tmp_path / "copy"
    shutil.copytree(stopped, copy, symlinks=False)
    if not steps_too:
        for path in copy.glob("step-*"):
            shutil.rmtree(path)
    assert read_checkpoint(copy).metrics["step"] == 6
    resume(copy)
    assert same(copy, whole)


def test_only_what_this_run_supersedes_is_deleted(stopped):
    before = contents(stopped)
    shutil.copytree(stopped / "step-00000006", stopped / "step-00000003")
    shutil.copytree(stopped / "step-00000006", stopped / "step-00000050")
    resume(stopped)
    assert {"step-00000003", "step-00000050"} <= contents(stopped).keys()
    assert contents(stopped)["step-00000050"] == before["step-00000006"]


def test_a_damaged_newest_checkpoint_is_passed_over(stopped, whole):
    (stopped / "last").unlink()
    (stopped / "step-00000009" / "training.safetensors").write_bytes(b"damaged")
    _, said = resume(stopped)
    assert "going on from step-00000006" in said
    assert same(stopped, whole)


def test_where_no_checkpoint_is_whole_nothing_starts_again_or_is_deleted(stopped):
    for name in ("last", "best", "step-00000006/manifest.json", "step-00000009/model.safetensors"):
        (stopped / name).unlink()
    with pytest.raises(UserError, match=r"no checkpoint in .* is whole"):
        resume(stopped)
    assert len(list(stopped.glob("step-*"))) == 2


def test_a_best_checkpoint_that_is_gone_is_replaced(stopped):
    shutil.rmtree(stopped / "step-00000006")
    _, said = resume(stopped)
    assert "the best checkpoint of" in said
    assert read_checkpoint(stopped / "best").metrics["step"] == 12


def test_a_pointer_never_leads_out_of_the_run_folder(stopped, tmp_path):
    (tmp_path / "step-1").mkdir()
    (tmp_path / "step-1" / "manifest.json").write_text("{}")
    (stopped / "best").write_text("../step-1")
    assert find_checkpoint(stopped) == stopped / "step-00000009"


def test_leftovers_of_a_killed_process_are_removed(stopped):
    (stopped / ".step-00000010.part").mkdir()
    (stopped / ".config.json.x.part").write_text("")
    resume(stopped)
    assert not list(stopped.rglob("*.part"))


def test_a_new_run_takes_no_other_runs_place(stopped):
    with pytest.raises(UserError, match=r"the run folder .* exists: go on with --resume"):
        go(quick(), stopped)


def test_a_second_process_is_refused_and_told_by_whom(tmp_path):
    words = ("train", "--preset", "tiny-discrete", "--steps", "100000", "--output", "run")
    program = [sys.executable, "-m", "latentloop", *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    first = subprocess.Popen(program, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL)
    try:
        deadline = time.time() + 60
        while not (tmp_path / "run" / "last").exists() and time.time() < deadline:
            time.sleep(0.02)
        second = command("train", "--resume", "run", cwd=tmp_path)
        assert second.returncode == 2
        assert f"the run folder run is in use by process {first.pid} on " in second.stderr
        assert len(second.stderr.splitlines()) == 1
        assert first.poll() is None
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait()
    with locked(tmp_path / "run"):  # the crash left no lock behind
        pass
