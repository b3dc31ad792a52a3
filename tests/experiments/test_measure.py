"""What is measured of a run, on real tiny ones."""

import os
import signal

import numpy as np
import pytest
import torch
from rich.console import Console

from latentloop.errors import MachineError, Terminated, UserError
from latentloop.evaluate.entropy import attention_entropy
from latentloop.evaluate.flops import operations_per_problem
from latentloop.evaluate.pretrained import LatentLoop
from latentloop.experiments.jobs import Job, Point
from latentloop.experiments.measure import measure, measure_again, run_folder, told
from latentloop.experiments.store import stored, write_result
from latentloop.methods import METHODS
from latentloop.model.capture import capture
from latentloop.task.splits import published_problems
from latentloop.task.text import to_text
from latentloop.train import loop
from latentloop.train.checkpoint import weights_hash

QUIET = Console(quiet=True)


def job(method, **overrides):
    steps = {"steps": 3, "log_every": 1, "validation_problems": 2} | overrides
    return Job(point=Point(name=method, preset=f"tiny-{method}", overrides=steps, scale="rehearsal"), seed=0)


@pytest.mark.parametrize("method", METHODS)
def test_a_run_of_every_method_is_measured(method, tmp_path):
    one = job(method)
    result = measure(one, tmp_path, QUIET, tmp_path / "weights")
    write_result(tmp_path, result)
    assert stored(one, tmp_path)["key"] == one.key
    assert [row["nodes"] for row in result["rows"]] == [8, 12]
    assert result["average"] == np.mean([row["solved"] for row in result["rows"]])
    assert all(row["operations"] > 0 for row in result["rows"])
    assert result["training"]["problems"] == 3 * 16
    assert result["training"]["curve"]["step"] == [1, 2, 3]
    latent = METHODS[method].latent
    assert (result["entropy"] is not None) == (result["allowed"] is not None) == latent
    if latent:
        assert result["allowed"]["8"].keys() == {"1x", "2x", "4x", "16x"}
    assert LatentLoop.from_pretrained(tmp_path / "weights" / one.name).run == one.run
    assert told(one, tmp_path)["step"] == 3


def test_a_run_begins_with_the_stored_weights_of_another(tmp_path):
    first = job("stable")
    measure(first, tmp_path, QUIET, tmp_path / "weights")
    start = weights_hash(tmp_path / "weights" / first.name)
    frozen = {"lr": 0.0, "weight_decay": 0.0, "start": start}
    result = measure(job("stable", **frozen), tmp_path, QUIET, tmp_path / "weights")
    assert result["model"]["sha256"] == start
    with pytest.raises(UserError, match="the run begins with the weights"):
        measure(job("stable", start="0" * 64), tmp_path, QUIET, tmp_path / "weights")


def test_a_run_that_was_cut_off_goes_on(tmp_path, monkeypatch):
    one = job("stable", steps=4, checkpoint_every=1)
    whole = measure(one, tmp_path / "whole", QUIET)
    real = loop.optimizer_step

    def cut(run, step, *more):
        if step == 2:
            monkeypatch.setattr(loop, "optimizer_step", real)
            raise KeyboardInterrupt
        return real(run, step, *more)

    monkeypatch.setattr(loop, "optimizer_step", cut)
    with pytest.raises(KeyboardInterrupt):
        measure(one, tmp_path, QUIET)
    assert told(one, tmp_path)["step"] == 2
    assert run_folder(one, tmp_path).exists()
    resumed = measure(one, tmp_path, QUIET)
    assert resumed["model"]["sha256"] == whole["model"]["sha256"]


def test_a_device_that_is_not_there_is_the_machines_fault(tmp_path):
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(MachineError, match="cannot use 1 x cuda"):
        measure(job("stable"), tmp_path, QUIET, accelerator="cuda")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)])
@pytest.mark.parametrize("step_of_three", [1, 2])
def test_an_interruption_ends_the_worker_also_in_the_last_step(tmp_path, monkeypatch, number, error, step_of_three):
    one, real = job("stable"), loop.optimizer_step

    def interrupted(run, step, *more):
        if step == step_of_three:
            os.kill(os.getpid(), number)
        return real(run, step, *more)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "optimizer_step", interrupted)
        with pytest.raises(KeyboardInterrupt) as caught:
            measure(one, tmp_path, QUIET)
    assert type(caught.value) is error
    assert measure(one, tmp_path, QUIET)["training"]["steps"] == 3


def test_other_weights_than_those_of_the_result_are_refused(tmp_path):
    one = job("stable")
    before = measure(one, tmp_path, QUIET, tmp_path / "weights")
    assert measure_again(one, before, tmp_path / "weights")["average"] == before["average"]
    LatentLoop.from_pretrained("laptop-add").save_pretrained(tmp_path / "weights" / one.name)
    with pytest.raises(UserError, match="are not those of the stored result: its model is"):
        measure_again(one, before, tmp_path / "weights")


def test_a_run_that_has_lost_its_curve_says_so(tmp_path):
    one = job("stable")
    measure(one, tmp_path, QUIET)
    (run_folder(one, tmp_path) / "metrics.jsonl").unlink()
    with pytest.raises(UserError, match=r"has lost its metrics\.jsonl.*: move it away"):
        measure(one, tmp_path, QUIET)


def test_entropy_is_that_of_the_captured_weights():
    trained = LatentLoop.from_pretrained("laptop-add")
    found = attention_entropy(trained, 16, 5)
    expected = []
    problems = published_problems(trained.run.task, 16, 5)
    for row in range(5):
        with capture(trained.model, ["pattern"], iterations=[0]) as seen:
            trained.solve(to_text(problems[row : row + 1]), cap=1)
        pattern = seen[0, 0, "pattern"].double()  # [1, head, query, key]
        expected.append(-torch.xlogy(pattern, pattern).sum(-1).mean(-1)[0])
    whole = torch.stack(expected).mean(0)
    np.testing.assert_allclose(found["heads"][0], whole, atol=0.02)
    uniform = attention_entropy(LatentLoop.from_pretrained("laptop-add"), 64, 2)
    assert 0 < uniform["mean"] < np.log(64 * 8)


def test_operations_grow_with_iterations_and_size():
    trained = LatentLoop.from_pretrained("laptop-add")
    small, twice, large = (
        operations_per_problem(trained, {"nodes": nodes, "iterations": iterations})["operations"]
        for nodes, iterations in ((16, 4), (16, 8), (64, 4))
    )
    assert twice == 2 * small
    assert large > 4 * small
