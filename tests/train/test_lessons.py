"""What models are shown: targets, corruption, and losses that agree however they are computed."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from latentloop.config import GraphConfig, TaskConfig
from latentloop.methods import METHODS, method
from latentloop.model.build import build_model
from latentloop.model.positions import POSITIONS
from latentloop.model.recurrence import State, unroll
from latentloop.presets import PRESETS, preset
from latentloop.task.graph import sample
from latentloop.task.oracle import solve, step, trace
from latentloop.task.splits import train_generator
from latentloop.task.text import parse
from latentloop.tokens.batch import Batch
from latentloop.tokens.factored import encode, fill_in, read_state
from latentloop.tokens.vocabulary import FACTORS, Vocabulary
from latentloop.train.corruption import corrupt
from latentloop.train.loop import draw_lesson
from latentloop.train.loss import Learner, Sealed, latent_loss
from latentloop.train.optimise import make_optimizer
from latentloop.train.states import draw_states
from latentloop.train.targets import Lesson, latent_lesson, make_lesson, pieces
from latentloop.train.validate import validate


def tiny(name, **train):
    run = preset(f"tiny-{name}")
    return replace(
        run, train=replace(run.train, **train), graph=GraphConfig(nodes=10, min_nodes=5, leaves=3, depth_limit=5)
    )


def draw(run, count=6, seed=0):
    return sample(run.task, run.graph, count, train_generator(seed))


def lesson_for(run, count=6):
    return make_lesson(draw(run, count), run, Vocabulary(task=run.task), torch.Generator().manual_seed(1))


def test_values_at_writes_what_the_numpy_side_writes():
    run = tiny("discrete")
    vocabulary, problems = Vocabulary(task=run.task), draw(run)
    batch, tokens = Batch.of(problems, vocabulary), encode(problems, vocabulary)
    states = trace(problems)
    ours = batch.values_at(torch.from_numpy(states).long(), vocabulary.empty)
    for state, values in zip(states, ours, strict=True):
        assert values.tolist() == fill_in(tokens, state, vocabulary).tolist()


def test_teacher_states_and_targets_follow_the_oracles_trace():
    run = tiny("discrete")
    vocabulary, problems = Vocabulary(task=run.task), draw(run)
    lesson = latent_lesson(Batch.of(problems, vocabulary), run, vocabulary, torch.Generator())
    tokens, states = encode(problems, vocabulary), trace(problems)
    depth = len(states) - 1
    assert len(lesson) == depth * len(problems)
    for t in range(depth):
        assert lesson.start.value[t::depth].tolist() == fill_in(tokens, states[t], vocabulary).tolist()
        assert lesson.wanted[0, t::depth].tolist() == fill_in(tokens, states[t + 1], vocabulary).tolist()
    assert lesson.counted.sum() == lesson.mask.sum()


def test_deeper_nodes_can_be_left_out_of_the_loss():
    run = tiny("continuous", deeper="ignored")
    vocabulary, problems = Vocabulary(task=run.task), draw(run)
    batch = Batch.of(problems, vocabulary)
    lesson = latent_lesson(batch, run, vocabulary, torch.Generator())
    for t in range(lesson.iterations):
        hidden = (batch.depth > t + 1) & batch.exists
        assert (lesson.mask & ~lesson.counted[t]).sum() == hidden.sum()
        assert not lesson.counted[t].gather(1, batch.target)[hidden].any()


def test_end_to_end_methods_want_all_values_after_the_last_iteration():
    run = tiny("recurrent")
    vocabulary, problems = Vocabulary(task=run.task), draw(run)
    lesson = latent_lesson(Batch.of(problems, vocabulary), run, vocabulary, torch.Generator())
    assert (lesson.iterations, len(lesson.wanted)) == (3, 1)
    assert (
        lesson.wanted[0].tolist() == fill_in(encode(problems, vocabulary), solve(problems).values, vocabulary).tolist()
    )


@pytest.mark.parametrize("candidates", ["last", "frontier", "all"])
def test_corruption_hits_its_candidates_and_nothing_else(candidates):
    run = tiny("corrected", corruption=1.0, corruption_share=0.5, corruption_of=candidates)
    vocabulary, problems = Vocabulary(task=run.task), draw(run, 200)
    batch = Batch.of(problems, vocabulary)
    after = torch.arange(1, int(batch.depth.max()) + 1)
    known = (batch.depth <= after[:, None, None] - 1) & batch.exists
    values = batch.values_at(torch.where(known, batch.answer, -1), vocabulary.empty)
    corrupted = corrupt(values, batch, after, run.train, vocabulary, torch.Generator().manual_seed(0))
    changed = (values != corrupted).gather(-1, batch.target.expand(known.shape)) & batch.exists
    assert (values != corrupted).sum() == changed.sum()
    allowed = {
        "last": batch.depth == after[:, None, None] - 1,
        "frontier": batch.depth == after[:, None, None],
        "all": batch.exists.expand(known.shape),
    }[candidates] & batch.exists
    assert not (changed & ~allowed).any()
    symbols = vocabulary.size("value")
    assert abs(changed.sum() / allowed.sum() - 0.5 * (1 - 1 / symbols)) < 0.03
    drawn = corrupted.gather(-1, batch.target.expand(known.shape))[changed]
    unseen = {vocabulary.empty} if candidates == "frontier" else set()  # what was empty before and after is no change
    assert set(drawn.tolist()) == set(range(symbols)) - unseen


def test_a_batch_is_corrupted_as_often_as_asked():
    run = tiny("corrected", corruption=0.25, corruption_share=1.0, corruption_of="all")
    vocabulary, problems = Vocabulary(task=run.task), draw(run, 2)
    batch = Batch.of(problems, vocabulary)
    after = torch.ones(1, dtype=torch.long)
    clean = batch.values_at(torch.full((1, *batch.depth.shape), -1), vocabulary.empty)
    generator = torch.Generator().manual_seed(0)
    hits = [not torch.equal(corrupt(clean, batch, after, run.train, vocabulary, generator), clean) for _ in range(400)]
    assert 70 < sum(hits) < 130


def test_parallel_loss_equals_the_sequential_one():
    """Teacher forcing all iterations at once gives what a loop over iterations gives."""
    run = tiny("discrete")
    vocabulary, problems = Vocabulary(task=run.task), draw(run)
    batch, model = Batch.of(problems, vocabulary), build_model(run).double()
    lesson = latent_lesson(batch, run, vocabulary, torch.Generator())
    parallel, _ = latent_loss(model, lesson, method("discrete"), lesson.totals())
    sums = dict.fromkeys(FACTORS, 0.0)
    count = 0
    states = trace(problems)
    tokens = encode(problems, vocabulary)
    for t in range(len(states) - 1):
        filled = torch.from_numpy(fill_in(tokens, states[t], vocabulary)).long()
        logits = model.read(model.block(model.embed(State.of(batch).factors() | {"value": filled})))
        wanted = torch.from_numpy(fill_in(tokens, states[t + 1], vocabulary)).long()
        for row, length in enumerate(tokens.lengths):
            for factor in FACTORS:
                target = wanted[row] if factor == "value" else getattr(batch, factor)[row]
                sums[factor] += F.cross_entropy(logits[factor][row, :length], target[:length], reduction="sum")
            count += int(length)
    torch.testing.assert_close(parallel, (sum(sums.values()) / count).float())


@pytest.mark.parametrize("name", METHODS)
def test_pieces_add_up_and_padding_never_matters(name):
    run = tiny(name)
    lesson, model = lesson_for(run), build_model(run).double().eval()
    learner = Learner(model, method(name))
    totals = lesson.totals()
    whole, right = learner(Sealed(lesson, totals))
    parts = [learner(Sealed(piece, totals)) for piece in pieces(lesson, 5)]
    torch.testing.assert_close(sum(loss for loss, _ in parts), whole)
    for key, count in right.items():
        assert sum(counts[key] for _, counts in parts) == count
    alone = [lesson.rows(slice(row, row + 1)) for row in range(len(lesson))]
    torch.testing.assert_close(sum(learner(Sealed(row, totals))[0] for row in alone), whole)


def every_switch(name):
    """Give all choices of the laptop recipe that a method can make."""
    chosen = {"mlp": "gated", "mlp_depth": 2, "relative_bias": True, "offset_heads": 1, "value_init": "characters"}
    chosen |= {"first_mlp": False, "first_heads": 1, "sharpen": "log-n"}
    if method(name).supervised in ("every", "local"):
        chosen |= {"lookup": True, "partial": True}
    if method(name).carries == "state":
        chosen |= {"pin_static": True, "focus": True}
    return chosen


@pytest.mark.parametrize("switched", [False, True])
@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("name", METHODS)
def test_every_method_with_every_encoding_lowers_its_loss(name, positions, switched):
    run = tiny(name)
    run = replace(run, model=replace(run.model, positions=positions, **every_switch(name) if switched else {}))
    lesson, model = lesson_for(run), build_model(run)
    learner, optimizer = Learner(model, method(name)), make_optimizer(model, replace(run.train, lr=3e-3))
    losses = []
    for _ in range(6):
        loss, _ = learner(Sealed(lesson, lesson.totals()))
        losses.append(float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < 0.9 * losses[0]


def test_a_local_lesson_wants_the_oracles_step_at_every_equation():
    run = tiny("stable", states=3)
    vocabulary, problems = Vocabulary(task=run.task), draw(run, 40)
    problems = problems[np.argsort(problems.fan_in.sum(1) + problems.sizes, kind="stable")]
    lesson = make_lesson(problems, run, vocabulary, torch.Generator().manual_seed(0))
    tokens = encode(problems, vocabulary)
    assert len(lesson) == 3 * len(problems)
    for state in range(3):
        before = read_state(tokens, lesson.start.value[state::3].numpy().astype(np.uint8), vocabulary)
        after = read_state(tokens, lesson.wanted[0, state::3].numpy().astype(np.uint8), vocabulary)
        assert (after == step(problems, before)).all()
        assert (lesson.counted[0, state::3].sum(1).numpy() == problems.sizes).all()


def test_drawn_states_are_true_damaged_and_random():
    run = tiny("stable")
    problems, rng = draw(run, 3000), np.random.default_rng(0)
    solution = solve(problems)
    exists = problems.exists

    def share_true(**settings):
        states = draw_states(problems, replace(run.train, **settings), rng, products=False)[0]
        consistent = [(np.where(solution.depths <= t, solution.values, -1) == states) | ~exists for t in range(8)]
        return np.stack([c.all(1) for c in consistent]).any(0).mean(), states

    assert share_true(true_states=1.0, damaged_states=0.0)[0] == 1.0
    assert 0.2 < share_true()[0] < 0.5
    share, states = share_true(true_states=0.0, damaged_states=0.0, skew=0.0)
    assert share < 0.05
    numbers = states[exists & (states >= 0)]
    assert np.allclose(np.bincount(numbers, minlength=23) / len(numbers), 1 / 23, atol=0.01)
    assert 0.05 < (states[exists] < 0).mean() < 0.2
    _, skewed = share_true(true_states=0.0, damaged_states=0.0, skew=1.0)
    assert 0.3 < (skewed[exists & (skewed >= 0)] == 0).mean() < 0.6


def test_the_first_layer_is_asked_for_what_definitions_hold():
    run = tiny("stable")
    vocabulary = Vocabulary(task=run.task)
    problems = parse("20 = x7 ; 2 = x42 ; x7 + x42 = x23 ; x23 = x1", run.task)
    lesson = make_lesson(problems, run, vocabulary, torch.Generator().manual_seed(0))
    before = read_state(encode(problems, vocabulary), lesson.start.value.numpy().astype(np.uint8), vocabulary)[0]
    held = [vocabulary.empty if value < 0 else int(value) for value in before]
    places = (lesson.asides["lookup"][0, 0] >= 0).nonzero()[:, 0].tolist()
    assert places == [8, 10, 14]
    assert lesson.asides["lookup"][0, 0, places].tolist() == [held[0], held[1], held[2]]


def partial_lesson(name):
    run = tiny(name)
    run = replace(run, task=TaskConfig.named("all"), model=replace(run.model, mlp_depth=2, partial=True))
    problems = parse("20 = x7 ; 2 = x42 ; x7 = x1 ; x7 - x42 = x2 ; x7 * x42 - x7 = x3 ; x1 + x2 * x7 = x4", run.task)
    vocabulary = Vocabulary(task=run.task)
    lesson = make_lesson(problems, run, vocabulary, torch.Generator().manual_seed(0))
    return lesson, Batch.of(problems, vocabulary).target[0], vocabulary.empty


@pytest.mark.parametrize("name", ["stable", "discrete"])
def test_the_last_layer_is_asked_halfway_for_what_the_first_two_operands_give(name):
    lesson, target, empty = partial_lesson(name)
    for state, asked in zip(lesson.start.value, lesson.asides["partial"][0], strict=True):
        x7, x42, x1, x2 = (value if value < 23 else None for value in state[target[:4]].tolist())
        wanted = [x7, combine("-", x7, x42), combine("*", x7, x42), combine("+", x1, x2)]
        assert (asked >= 0).nonzero()[:, 0].tolist() == target[2:].tolist()
        assert asked[target[2:]].tolist() == [empty if value is None else value for value in wanted]


def test_partial_results_follow_the_iterations_of_hidden_vectors():
    lesson, target, empty = partial_lesson("continuous")
    asked = lesson.asides["partial"][:, 0, target[2:]]
    assert asked.tolist() == [[empty] * 4, [20, 18, 17, empty], [20, 18, 17, (20 + 18) % 23]]


def combine(operation, left, right):
    if left is None or right is None:
        return None
    return {"+": left + right, "-": left - right, "*": left * right}[operation] % 23


def test_hidden_vectors_are_carried_and_the_problem_is_read_once():
    run = tiny("continuous")
    lesson, model = lesson_for(run), build_model(run).eval()
    assert isinstance(lesson, Lesson)
    steps = unroll(model, lesson.start, method("continuous"))
    first, second = (step.hidden for _, step in zip(range(2), steps, strict=False))
    torch.testing.assert_close(second, model.block(first))


@pytest.mark.parametrize("pinned", [False, True])
def test_discrete_states_are_decided_and_embedded_again(pinned):
    run = tiny("discrete")
    run = replace(run, model=replace(run.model, pin_static=pinned))
    lesson, model = lesson_for(run), build_model(run).eval()
    assert isinstance(lesson, Lesson)
    steps = unroll(model, lesson.start, method("discrete"))
    first, second = (found for _, found in zip(range(2), steps, strict=False))
    decided = {name: scores.argmax(-1) for name, scores in first.logits.items()}
    assert set(decided) == ({"value"} if pinned else set(FACTORS))
    if pinned:  # what is written beside a right-hand side is never overwritten
        right = lesson.fresh[0] > 0
        assert torch.equal(lesson.start.targets() & right, right)
        decided["value"] = torch.where(lesson.start.targets(), decided["value"], lesson.start.value)
    torch.testing.assert_close(second.hidden, model.block(model.embed(lesson.start.factors() | decided)))


GOLDEN = {
    "feedforward": 10.625234603881836,
    "recurrent": 10.62679386138916,
    "cot": 5.049332141876221,
    "continuous": 10.624673843383789,
    "discrete": 10.616296768188477,
    "corrected": 10.616296768188477,
    "stable": 3.258432626724243,
}


@pytest.mark.parametrize("name", METHODS)
def test_first_losses_are_golden(name):
    """A refactoring that changes nothing changes none of these."""
    run = PRESETS[f"tiny-{name}"]
    problems = sample(run.task, run.graph, 8, train_generator(0, 0))
    lesson = make_lesson(problems, run, Vocabulary(task=run.task), torch.Generator().manual_seed(0))
    loss = validate(Learner(build_model(run), method(name)), lesson, torch.device("cpu"))["loss"]
    assert loss == pytest.approx(GOLDEN[name], rel=2e-5)


def test_smaller_graphs_and_other_fan_ins_come_first():
    run = tiny("stable", steps=10, small_nodes=6, small_fan_ins=(1,), small_share=0.3)
    vocabulary = Vocabulary(task=run.task)
    for number, most, fan_in in ((0, 6, 1), (2, 6, 1), (3, 10, 3), (9, 10, 3)):
        lesson = draw_lesson(run, number, vocabulary, 0)
        assert lesson.fresh.max() <= fan_in + 1
        assert lesson.start.targets().sum(1).max() <= most
    lesson = draw_lesson(run, 3, vocabulary, 0)
    assert lesson.fresh.max() == 4
    assert lesson.start.targets().sum(1).max() > 6
