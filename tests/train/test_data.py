"""Which problems a step trains on: a pure function of the run and the step."""

import numpy as np
import pytest
import torch

from latentloop.errors import UserError
from latentloop.schema import changed
from latentloop.tokens.vocabulary import Vocabulary
from latentloop.train import data
from latentloop.train.data import fixed_set, sample_batch
from small_runs import go, quick, weights


def fixed(**settings):
    return quick("discrete", **{"problems": 23, "batch": 5} | settings)


def prints(problems):
    """Return what tells each problem from all others; of one width, since padding counts."""
    return problems.fingerprints()


def epochs(run, count):
    """Return the problems of each step of some epochs."""
    per_epoch = run.train.problems // run.train.batch
    return [
        [prints(data._from_fixed_set(run, epoch * per_epoch + step)) for step in range(per_epoch)]
        for epoch in range(count)
    ]


def test_an_epoch_sees_each_problem_at_most_once_and_every_epoch_the_same_set():
    run = fixed()
    whole = prints(fixed_set(run))
    assert len(set(whole)) == 23
    seen = epochs(run, 6)
    for steps in seen:
        flat = [one for step in steps for one in step]
        assert len(flat) == 20  # what does not fill a batch is left out of the epoch
        assert len(set(flat)) == 20
        assert set(flat) <= set(whole)
    assert {one for steps in seen for step in steps for one in step} == set(whole)
    assert all(seen[0] != other for other in seen[1:])  # in another order every time
    even = [one for steps in epochs(fixed(problems=20), 1) for step in steps for one in step]
    assert sorted(even) == sorted(prints(fixed_set(fixed(problems=20))))


def test_the_problems_of_a_step_depend_on_the_run_and_the_step_alone():
    run, vocabulary = fixed(), Vocabulary(task=fixed().task)
    forward = [sample_batch(run, step, vocabulary, 0).start for step in range(9)]
    fixed_set.cache_clear()
    for step in reversed(range(9)):  # in any order, after a new start
        torch.rand(step)
        np.random.default_rng().random()
        again = sample_batch(run, step, vocabulary, 0).start
        for name, numbers in again.factors().items():
            assert torch.equal(numbers, getattr(forward[step], name))
    other = changed(run, seed=1)
    assert not set(prints(fixed_set(other))) & set(prints(fixed_set(run)))
    larger = prints(fixed_set(fixed(problems=40)))
    assert larger[:23] == prints(fixed_set(run))


def test_a_fixed_set_is_sampled_in_chunks_that_do_not_matter_to_what_comes_before(monkeypatch):
    run = fixed(problems=7)
    monkeypatch.setattr(data, "CHUNK", 3)
    fixed_set.cache_clear()
    first = prints(fixed_set(run))
    assert len(set(first)) == 7
    assert prints(fixed_set(fixed(problems=5)))[:5] == first[:5]
    fixed_set.cache_clear()


def test_fresh_problems_never_come_twice():
    run, vocabulary = quick("discrete"), Vocabulary(task=quick("discrete").task)
    starts = [sample_batch(run, step, vocabulary, 0).start.variable for step in range(6)]
    assert all(a.shape != b.shape or not torch.equal(a, b) for i, a in enumerate(starts) for b in starts[:i])


def test_problems_sampled_for_many_steps_at_once_are_each_used_once():
    run, vocabulary = quick("discrete", steps=40, curriculum=("4:0.5",)), Vocabulary(task=quick("discrete").task)
    seen = [sample_batch(run, step, vocabulary, 0).start for step in range(40)]
    assert {state.variable.shape[0] for state in seen} != {0}
    rows = [tuple(row.tolist()) for state in seen for row in state.variable.unique(dim=0)]
    assert len(rows) == len(set(rows))
    # The simpler graphs of a curriculum end in the middle of a group.
    lengths = [state.variable.shape[1] for state in seen]
    assert max(lengths[:20]) < min(lengths[20:])
    again = sample_batch(run, 17, vocabulary, 0).start
    assert torch.equal(again.variable, seen[17].variable)
    assert torch.equal(again.value, seen[17].value)


def test_a_run_on_a_fixed_set_is_resumed_as_if_never_stopped(tmp_path):
    run = fixed()
    go(run, tmp_path / "whole")
    assert go(run, tmp_path / "parts", minutes=0.0).reason == "minutes"
    fixed_set.cache_clear()
    go(run, tmp_path / "parts", resume=True)
    assert weights(tmp_path / "whole" / "last") == weights(tmp_path / "parts" / "last")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"problems": 4, "batch": 5}, "problems must be at least a batch, 5, got 4"),
        ({"problems": 50, "curriculum": ("4:0.5",)}, "a fixed training set has no curriculum"),
    ],
)
def test_fixed_sets_that_mean_nothing_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        quick("discrete", **settings)
