"""Halting, against a model whose every answer is known: the oracle in a transformer's clothes."""

import numpy as np
import pytest
import torch

from clockwork import Clockwork, clockwork
from latentloop.config import GraphConfig
from latentloop.errors import UserError
from latentloop.evaluate.generalization import evaluate_size
from latentloop.evaluate.metrics import Counts, count_rollout, count_rollouts, wilson
from latentloop.evaluate.pretrained import LatentLoop
from latentloop.evaluate.rollout import default_cap, roll_out
from latentloop.halting import Limits
from latentloop.model.build import build_model, weights_of
from latentloop.presets import preset
from latentloop.schema import changed
from latentloop.task.graph import sample
from latentloop.task.oracle import solve, trace
from latentloop.task.splits import published_problems, sampled_generator
from latentloop.tokens.vocabulary import Vocabulary
from latentloop.train.checkpoint import Checkpoint

RUN = preset("tiny-discrete")


@pytest.fixture
def model():
    return Clockwork(RUN.model, Vocabulary(task=RUN.task), RUN.method)


def draw(count=20, **graph):
    return sample(RUN.task, GraphConfig(**{"nodes": 14, "min_nodes": 6, **graph}), count, sampled_generator(3))


def limits(problems, value=40):
    return np.full(len(problems), value)


def test_a_perfect_model_halts_one_iteration_after_it_is_done(model):
    problems = draw()
    solution, states = solve(problems), trace(problems)
    for row, rollout in enumerate(roll_out(model, problems, limits(problems))):
        size, depth = problems.sizes[row], int(solution.depths[row].max())
        assert rollout.fixpoint == rollout.iterations == depth + 1
        assert rollout.cycle is None
        for iteration in range(depth + 4):
            expected = states[min(iteration, len(states) - 1), row, :size]
            assert rollout.at(iteration).tolist() == expected.tolist()


def test_rolling_out_can_start_from_any_state(model):
    problems = draw()
    solution = solve(problems)
    start = np.random.default_rng(0).integers(-1, 23, problems.names.shape, dtype=np.int8)
    for row, rollout in enumerate(roll_out(model, problems, limits(problems), start=start)):
        size = problems.sizes[row]
        assert rollout.states[0].tolist() == start[row, :size].tolist()
        assert rollout.states[-1].tolist() == solution.values[row, :size].tolist()


def test_circles_are_found_and_followed_for_ever(model):
    def turn(values, before, kinds):
        """Leaf values count up by 8 whenever they are set: with modulus 23 they come round after 23 iterations."""
        first = before[:, 2:3]
        return torch.cat(
            [values[:, :2], torch.where(first < 23, (first + 8) % 23, values[:, 2:3]), values[:, 3:]], dim=1
        )

    model.twist = turn
    problems = draw(4, nodes=6, min_nodes=6)
    for rollout in roll_out(model, problems, limits(problems)):
        assert rollout.fixpoint is None
        start, length = rollout.cycle
        assert length == 23
        assert rollout.iterations == start + length
        assert rollout.at(start + 5).tolist() == rollout.at(start + 5 + 3 * length).tolist()
        assert rollout.at(start + 5).tolist() != rollout.at(start + 6).tolist()


def test_limits_end_what_does_not_halt(model):
    problems = draw()
    for rollout in roll_out(model, problems, limits(problems, 2)):
        assert rollout.iterations == 2


def trained(model):
    loaded = clockwork(RUN.task)
    loaded.model = model
    return loaded


def test_counts_of_a_perfect_model(model):
    counts = evaluate_size(trained(model), 16, 24)
    figures = counts.figures()
    assert figures["solved"] == figures["nodes_right"] == 1.0
    assert (figures["false_halts"], figures["cycles"], figures["caps"]) == (0, 0, 0)
    assert figures["solved_depth"] == figures["solved_paper"] == figures["solved_2x"] == figures["solved_4x"] == 1.0
    assert counts.halts == {"fixpoint": 24}
    curve = counts.curves()["solved_by_iteration"]
    assert curve[0] == 0
    assert curve[-1] == 1
    assert curve == sorted(curve)
    assert len(curve) == 1 + 1 + max(solve(published_problems(RUN.task, 16, 24)).depths.max(1))
    assert set(counts.curves()["right_by_depth"].values()) == {1.0}


def test_a_model_that_settles_on_a_wrong_value_has_false_halts(model):
    model.twist = lambda values, before, kinds: torch.cat(
        [values[:, :2], torch.zeros_like(values[:, 2:3]), values[:, 3:]], 1
    )
    counts = evaluate_size(trained(model), 16, 24)
    wrong = 24 - counts.solved
    assert counts.false_halts == wrong > 12
    assert 0 < counts.nodes_right < counts.nodes
    assert evaluate_size(trained(model), 16, 24, halt="depth").false_halts == wrong  # whatever rule reads the answer


def test_the_depth_rule_stops_earlier_than_the_fixed_point(model):
    by_depth = evaluate_size(trained(model), 16, 24, halt="depth").figures()
    by_state = evaluate_size(trained(model), 16, 24).figures()
    assert by_depth["solved"] == 1.0
    assert by_depth["iterations_by_depth"] == 1.0
    assert by_state["iterations"] == by_depth["iterations"] + 1


def test_a_cap_is_reported(model):
    figures = evaluate_size(trained(model), 16, 24, cap=2).figures()
    assert figures["caps"] == 1.0
    assert figures["solved"] == 0.0
    assert figures["solved_depth"] == 1.0


def test_a_cap_goes_with_the_fixed_point_only(model):
    with pytest.raises(UserError, match="a cap goes with the rule 'fixpoint', not with 'depth'"):
        evaluate_size(trained(model), 16, 24, halt="depth", cap=2)


def test_curves_of_hidden_states_end_where_the_first_problem_is_followed_no_further():
    run = preset("tiny-continuous")
    model = LatentLoop(Checkpoint(run=run, weights=weights_of(build_model(run)), metrics={}))
    problems = draw(6)
    furthest = np.arange(8, 14)
    counts = count_rollouts(model, problems, solve(problems), furthest, rule="fixpoint")
    assert len(counts.curves()["solved_by_iteration"]) == 8 + 1


def test_counts_merge():
    problems = draw()
    solution = solve(problems)
    rollouts = roll_out(Clockwork(RUN.model, Vocabulary(task=RUN.task), RUN.method), problems, limits(problems))
    whole, left, right = Counts(), Counts(), Counts()
    for row, rollout in enumerate(rollouts):
        depth = int(solution.depths[row].max())
        size = problems.sizes[row]
        known = Limits(cap=40, depth=depth, deepest=depth)
        for counts in (whole, left if row % 3 else right):
            values, depths = solution.values[row, :size], solution.depths[row, :size]
            count_rollout(counts, rollout, values, depths, "fixpoint", known, 12)
    left.add(right)
    assert left.curves() == whole.curves()
    assert left.figures() == pytest.approx(whole.figures())


def test_real_models_do_the_same_alone_and_together():
    model = build_model(RUN).eval()
    problems = draw(12)
    together = roll_out(model, problems, limits(problems, 6))
    for row in range(len(problems)):
        alone = roll_out(model, problems[row : row + 1], limits(problems[:1], 6))[0]
        assert alone.states.tolist() == together[row].states.tolist()
        assert (alone.fixpoint, alone.cycle) == (together[row].fixpoint, together[row].cycle)


def test_hidden_states_go_on_when_asked_to():
    run = preset("tiny-continuous")
    model, problems = build_model(run).eval(), draw(6)
    early = roll_out(model, problems, limits(problems, 12))
    late = roll_out(model, problems, limits(problems, 12), halt_at_fixpoint=False)
    for first, second in zip(early, late, strict=True):
        assert second.iterations == 12
        assert first.fixpoint == second.fixpoint
        assert first.iterations == (first.fixpoint or 12)
        assert second.states[: first.iterations + 1].tolist() == first.states.tolist()


@pytest.mark.parametrize(
    ("right", "total", "low", "high"), [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (81, 263, 0.2553, 0.3662)]
)
def test_wilson_intervals(right, total, low, high):
    assert wilson(right, total) == (pytest.approx(low, abs=5e-4), pytest.approx(high, abs=5e-4))


def test_caps_allow_the_deepest_graph(model):
    problems = draw(3, nodes=20, min_nodes=20, family="chain")
    rollouts = roll_out(model, problems, limits(problems, default_cap(20)))
    assert [rollout.fixpoint for rollout in rollouts] == [21] * 3


def test_states_compare_all_four_factors(model):
    """A state whose variable factor still changes is no fixed point, even if all values stay."""
    plain = model.read

    def restless(x):
        logits = plain(x)
        logits["variable"] = logits["variable"].roll(1, dims=-1)
        return logits

    model.read = restless
    problems = draw(2, nodes=6, min_nodes=6, family="star")
    assert all(rollout.fixpoint is None for rollout in roll_out(model, problems, limits(problems, 5)))
    model.method = changed(RUN.method, pin_static=True)
    assert all(rollout.fixpoint == 3 for rollout in roll_out(model, problems, limits(problems, 5)))
