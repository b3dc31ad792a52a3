"""What models are shown: targets, corruption, and losses that agree however they are computed."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from latentloop.config import GraphConfig, TaskConfig
from latentloop.config.positions import PositionsConfig
from latentloop.methods import METHODS, MethodConfig
from latentloop.model.build import build_model
from latentloop.presets import PRESETS, preset
from latentloop.schema import changed
from latentloop.task.graph import EMPTY, sample
from latentloop.task.oracle import solve, trace, update
from latentloop.task.splits import train_generator
from latentloop.task.text import parse
from latentloop.tokens.state import encode_state, to_symbols, with_values
from latentloop.tokens.vocabulary import FACTORS, Vocabulary
from latentloop.train.corruption import corrupt
from latentloop.train.data import sample_batch
from latentloop.train.loss import Learner, Sealed, latent_loss
from latentloop.train.optimizer import make_optimizer
from latentloop.train.states import sample_states
from latentloop.train.targets import iterated_batch, make_batch, micro_batches
from latentloop.train.validate import validate, validation_batch


def tiny(name, **settings):
    graph = GraphConfig(nodes=10, min_nodes=5, leaves=3, depth_limit=5)
    return changed(preset(f"tiny-{name}"), graph=graph, **settings)


def draw(run, count=6, seed=0):
    return sample(run.task, run.graph, count, train_generator(seed))


def batch_for(run, count=6):
    return make_batch(draw(run, count), run, Vocabulary(task=run.task), torch.Generator().manual_seed(1))


def iterated(run, problems):
    return iterated_batch(problems, solve(problems), run, Vocabulary(task=run.task), torch.Generator())


def filled(problems, values, run):
    """Return the value factor of problems whose right-hand sides hold these values."""
    vocabulary = Vocabulary(task=run.task)
    return with_values(*encode_state(problems, vocabulary), values, vocabulary).value


def shown(batch, rows, run):
    """Return the node values that some rows of a batch start from."""
    layout = batch.layout[rows]
    symbols = layout.read(batch.start.value[rows])
    return torch.where(layout.exists & (symbols < run.task.modulus), symbols, EMPTY).to(torch.int8).numpy()


def test_teacher_states_and_targets_follow_the_oracles_trace():
    run = tiny("discrete")
    problems = draw(run)
    batch, states = iterated(run, problems), trace(problems)
    depth = len(states) - 1
    assert len(batch) == depth * len(problems)
    for t in range(depth):
        assert torch.equal(batch.start.value[t::depth], filled(problems, states[t], run))
        assert torch.equal(batch.targets[0, t::depth], filled(problems, states[t + 1], run))
    assert torch.equal(batch.loss_mask[0], batch.layout.mask)


def test_where_only_values_are_read_their_loss_counts_right_hand_sides_alone():
    run = tiny("discrete", pin_static=True)
    vocabulary, problems = Vocabulary(task=run.task), draw(run)
    batch, states = iterated(run, problems), trace(problems)
    depth = len(states) - 1
    assert torch.equal(batch.loss_mask[0], batch.layout.exists)
    assert batch.totals()["value"] == depth * problems.sizes.sum()
    for t in range(depth):
        symbols = to_symbols(states[t + 1], vocabulary)
        exists = batch.layout.exists[t::depth]
        assert torch.equal(batch.targets[0, t::depth][exists], symbols[exists])
    model = build_model(run)
    output = model(batch.start, batch.layout)
    assert set(output.logits) == {"value"}
    loss, _ = latent_loss(model, batch, batch.totals())
    there = batch.layout.exists
    expected = F.cross_entropy(output.logits["value"][there], batch.targets[0][there])
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize(("name", "pinned"), [("continuous", False), ("discrete", False), ("discrete", True)])
def test_deeper_values_can_be_left_out_of_the_loss(name, pinned):
    """As in the paper's formula, right-hand sides deeper than t have no value loss at iteration t; all else has."""
    run = tiny(name, deeper="ignored", **{"pin_static": True} if pinned else {})
    problems = draw(run)
    batch, depths = iterated(run, problems), torch.from_numpy(solve(problems).depths)
    _, layout = encode_state(problems, Vocabulary(task=run.task))
    deepest = int(depths.max())
    for t in range(1, deepest + 1):
        mask = batch.loss_mask[t - 1] if name == "continuous" else batch.loss_mask[0, t - 1 :: deepest]
        expected = (layout.exists if pinned else layout.mask).clone()
        for row in range(len(problems)):
            for node in range(problems.sizes[row]):
                if depths[row, node] > t:
                    expected[row, node if pinned else layout.rhs[row, node]] = False
        assert torch.equal(mask, expected)


def test_end_to_end_methods_want_all_values_after_the_last_iteration():
    run = tiny("recurrent")
    problems = draw(run)
    batch = iterated(run, problems)
    assert (batch.iterations, len(batch.targets)) == (3, 1)
    assert torch.equal(batch.targets[0], filled(problems, solve(problems).values, run))


def corruptible(run, count):
    """Return clean states of all iterations, and what is needed to corrupt them."""
    vocabulary, problems = Vocabulary(task=run.task), draw(run, count)
    solution = solve(problems)
    state, layout = encode_state(problems, vocabulary)
    depths = torch.from_numpy(solution.depths.astype(np.int64))
    after = torch.arange(1, int(depths.max()) + 1)
    known = (depths <= after[:, None, None] - 1) & layout.exists
    symbols = torch.where(known, to_symbols(solution.values, vocabulary), vocabulary.empty)
    return layout.write(state.value, symbols), layout, depths, after, vocabulary


@pytest.mark.parametrize("candidates", ["last", "frontier", "all"])
def test_corruption_hits_its_candidates_and_nothing_else(candidates):
    run = tiny("corrected", corruption=1.0, corruption_share=0.5, corruption_of=candidates)
    values, layout, depths, after, vocabulary = corruptible(run, 200)
    generator = torch.Generator().manual_seed(0)
    corrupted = corrupt(values, layout, depths, after, run.method, vocabulary, generator)
    rhs = layout.rhs.expand(len(after), -1, -1)
    hit = (values != corrupted).gather(-1, rhs) & layout.exists
    assert (values != corrupted).sum() == hit.sum()
    allowed = {
        "last": depths == after[:, None, None] - 1,
        "frontier": depths == after[:, None, None],
        "all": layout.exists.expand(rhs.shape),
    }[candidates] & layout.exists
    assert not (hit & ~allowed).any()
    symbols = vocabulary.size("value")
    assert abs(hit.sum() / allowed.sum() - 0.5 * (1 - 1 / symbols)) < 0.03
    drawn = corrupted.gather(-1, rhs)[hit]
    unseen = {vocabulary.empty} if candidates == "frontier" else set()  # what was empty before and after is no change
    assert set(drawn.tolist()) == set(range(symbols)) - unseen


def test_a_batch_is_corrupted_as_often_as_asked():
    run = tiny("corrected", corruption=0.25, corruption_share=1.0, corruption_of="all")
    values, layout, depths, after, vocabulary = corruptible(run, 2)
    clean, generator = values[:1], torch.Generator().manual_seed(0)
    hits = [
        not torch.equal(corrupt(clean, layout, depths, after[:1], run.method, vocabulary, generator), clean)
        for _ in range(400)
    ]
    assert 70 < sum(hits) < 130


def test_validation_of_corrected_has_wrong_values_in_every_second_problem():
    corrected = tiny("corrected", validation_problems=16)
    clean = replace(corrected, method=corrected.method.become("discrete"))
    batch, reference = validation_batch(corrected), validation_batch(clean)
    wrong = (batch.start.value != reference.start.value).any(1)  # [problem * iteration]
    by_problem = wrong.unflatten(0, (16, -1)).any(1)
    assert not by_problem[::2].any()
    assert by_problem[1::2].all()
    assert torch.equal(batch.targets, reference.targets)
    again = validation_batch(corrected)
    assert torch.equal(batch.start.value, again.start.value)


def test_parallel_loss_equals_the_sequential_one():
    """Teacher forcing all iterations at once gives what a loop over iterations gives."""
    run = tiny("discrete")
    problems = draw(run)
    state, layout = encode_state(problems, Vocabulary(task=run.task))
    batch, model = iterated(run, problems), build_model(run).double()
    parallel, _ = latent_loss(model, batch, batch.totals())
    sums = dict.fromkeys(FACTORS, 0.0)
    count = 0
    states = trace(problems)
    for t in range(len(states) - 1):
        values = filled(problems, states[t], run)
        logits = model.read(model.block(model.embed(state.factors() | {"value": values}))[0])
        wanted = filled(problems, states[t + 1], run)
        for row, length in enumerate(layout.mask.sum(1).tolist()):
            for factor in FACTORS:
                target = wanted[row] if factor == "value" else getattr(state, factor)[row]
                sums[factor] += F.cross_entropy(logits[factor][row, :length], target[:length], reduction="sum")
            count += length
    torch.testing.assert_close(parallel, (sum(sums.values()) / count).float())


@pytest.mark.parametrize("name", METHODS)
def test_micro_batches_add_up_and_padding_never_matters(name):
    run = tiny(name)
    batch, model = batch_for(run), build_model(run).double().eval()
    learner = Learner(model)
    totals = batch.totals()
    whole, right = learner(Sealed(batch, totals))
    parts = [learner(Sealed(part, totals)) for part in micro_batches(batch, 5)]
    torch.testing.assert_close(sum(loss for loss, _ in parts), whole)
    for key, count in right.items():
        assert sum(counts[key] for _, counts in parts) == count
    alone = [batch.rows(slice(row, row + 1)) for row in range(len(batch))]
    torch.testing.assert_close(sum(learner(Sealed(row, totals))[0] for row in alone), whole)


def every_switch(run):
    """Switch on everything of the laptop recipe that a run's method has."""
    chosen = {"mlp_depth": 2, "first_mlp": False, "first_heads": 1}
    if run.method.row.supervised in ("every", "local"):
        chosen |= {"lookup_weight": 1.0, "partial_weight": 1.0}
    if run.method.name in ("discrete", "corrected"):
        chosen |= {"pin_static": True}
    return changed(run, **chosen)


@pytest.mark.parametrize("switched", [False, True])
@pytest.mark.parametrize("positions", PositionsConfig.kinds)
@pytest.mark.parametrize("name", METHODS)
def test_every_method_with_every_encoding_lowers_its_loss(name, positions, switched):
    run = tiny(name, positions=PositionsConfig.kind(positions)())
    run = every_switch(run) if switched else run
    batch, model = batch_for(run), build_model(run)
    learner, optimizer = Learner(model), make_optimizer(model, changed(run.train, lr=3e-3))
    losses = []
    for _ in range(6):
        loss, _ = learner(Sealed(batch, batch.totals()))
        losses.append(float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < 0.9 * losses[0]


def test_a_local_batch_wants_the_oracles_update_at_every_equation():
    run = tiny("stable", states=3)
    vocabulary, problems = Vocabulary(task=run.task), draw(run, 40)
    problems = problems[np.argsort(problems.fan_in.sum(1) + problems.sizes, kind="stable")]
    batch = make_batch(problems, run, vocabulary, torch.Generator().manual_seed(0))
    assert len(batch) == 3 * len(problems)
    for state in range(3):
        after = to_symbols(update(problems, shown(batch, slice(state, None, 3), run)), vocabulary)
        exists = batch.layout.exists[state::3]
        assert torch.equal(batch.targets[0, state::3][exists], after[exists])
        assert torch.equal(batch.loss_mask[0, state::3], torch.from_numpy(problems.exists))


def test_sampled_states_are_random_or_those_of_the_algorithm():
    run = tiny("stable")
    problems, rng = draw(run, 3000), np.random.default_rng(0)
    solution = solve(problems)
    exists = problems.exists

    def share_true(**settings):
        states = sample_states(problems, solution, changed(run.method, **settings), rng, products=False)[0]
        consistent = [(np.where(solution.depths <= t, solution.values, -1) == states) | ~exists for t in range(8)]
        return np.stack([c.all(1) for c in consistent]).any(0).mean(), states

    assert share_true(true_states=1.0)[0] == 1.0
    assert 0.4 < share_true(true_states=0.5)[0] < 0.6
    share, states = share_true(skew=0.0)
    assert share < 0.05
    numbers = states[exists & (states >= 0)]
    assert np.allclose(np.bincount(numbers, minlength=23) / len(numbers), 1 / 23, atol=0.01)
    assert abs((states[exists] < 0).mean() - 0.2) < 0.01
    _, skewed = share_true(skew=1.0)
    assert 0.3 < (skewed[exists & (skewed >= 0)] == 0).mean() < 0.6


def test_an_empty_value_tells_nothing_of_the_others():
    """Were there states with many empty values, a model could guess `empty` from an equation's own: a false fixed point."""
    run = tiny("stable")
    problems = draw(run, 4000)
    states = sample_states(problems, solve(problems), run.method, np.random.default_rng(0), products=False)[0]
    empty = states[:, :2] < 0
    both, apart = (empty.all(1)).mean(), empty[:, 0].mean() * empty[:, 1].mean()
    assert abs(both - apart) < 0.012  # three standard errors


def test_the_first_layer_is_asked_for_what_definitions_hold():
    run = tiny("stable")
    vocabulary = Vocabulary(task=run.task)
    problems = parse("20 = x7 ; 2 = x42 ; x7 + x42 = x23 ; x23 = x1", run.task)
    batch = make_batch(problems, run, vocabulary, torch.Generator().manual_seed(0))
    held = to_symbols(shown(batch, slice(1), run)[0], vocabulary).tolist()
    places = (batch.auxiliary["lookup"][0, 0] >= 0).nonzero()[:, 0].tolist()
    assert places == [8, 10, 14]
    assert batch.auxiliary["lookup"][0, 0, places].tolist() == [held[0], held[1], held[2]]


def partial_batch(name):
    run = tiny(name, task=TaskConfig.named("all"), mlp_depth=2, partial_weight=1.0)
    problems = parse("20 = x7 ; 2 = x42 ; x7 = x1 ; x7 - x42 = x2 ; x7 * x42 - x7 = x3 ; x1 + x2 * x7 = x4", run.task)
    vocabulary = Vocabulary(task=run.task)
    batch = make_batch(problems, run, vocabulary, torch.Generator().manual_seed(0))
    return batch, encode_state(problems, vocabulary)[1].rhs[0], vocabulary.empty


@pytest.mark.parametrize("name", ["stable", "discrete"])
def test_the_last_layer_is_asked_halfway_for_what_the_first_two_operands_give(name):
    batch, rhs, empty = partial_batch(name)
    queries = torch.arange(len(rhs)) if name == "stable" else rhs  # where only values are read, queries are nodes
    for state, asked in zip(batch.start.value, batch.auxiliary["partial"][0], strict=True):
        x7, x42, x1, x2 = (value if value < 23 else None for value in state[rhs[:4]].tolist())
        wanted = [x7, combine("-", x7, x42), combine("*", x7, x42), combine("+", x1, x2)]
        assert (asked >= 0).nonzero()[:, 0].tolist() == queries[2:].tolist()
        assert asked[queries[2:]].tolist() == [empty if value is None else value for value in wanted]


def test_partial_results_follow_the_iterations_of_hidden_vectors():
    batch, rhs, empty = partial_batch("continuous")
    asked = batch.auxiliary["partial"][:, 0, rhs[2:]]
    assert asked.tolist() == [[empty] * 4, [20, 18, 17, empty], [20, 18, 17, (20 + 18) % 23]]


def combine(operation, left, right):
    if left is None or right is None:
        return None
    return {"+": left + right, "-": left - right, "*": left * right}[operation] % 23


def test_every_auxiliary_loss_has_its_weight():
    run = tiny("stable", lookup_weight=1.0, partial_weight=1.0, lookup_noise=0.0)
    batch = batch_for(run)

    def loss(**weights):
        model = build_model(run)
        model.method = changed(run.method, **weights)
        return latent_loss(model, batch, batch.totals())[0]

    plain, double = loss(), loss(lookup_weight=2.0, partial_weight=3.0)
    only = loss(lookup_weight=1e-9, partial_weight=1e-9)
    look = loss(partial_weight=1e-9) - only
    torch.testing.assert_close(double - only, 2 * look + 3 * (plain - only - look))


@pytest.mark.parametrize("training", [False, True])
def test_validation_leaves_a_model_in_the_mode_it_was_in(training):
    """A model left in training mode would be evaluated with noise and dropout from then on."""
    run = tiny("stable")
    model = build_model(run).train(training)
    first = validate(Learner(model), batch_for(run), torch.device("cpu"))
    assert model.training == training
    assert validate(Learner(model), batch_for(run), torch.device("cpu")) == first


GOLDEN = {
    "feedforward": 10.625234603881836,
    "recurrent": 10.62679386138916,
    "cot": 5.049332141876221,
    "continuous": 10.624673843383789,
    "discrete": 10.616296768188477,
    "corrected": 10.616296768188477,
    "stable": 3.21614933013916,
}


@pytest.mark.parametrize("name", METHODS)
def test_first_losses_are_golden(name):
    """A refactoring that changes nothing changes none of these."""
    run = PRESETS[f"tiny-{name}"]
    problems = sample(run.task, run.graph, 8, train_generator(0, 0))
    batch = make_batch(problems, run, Vocabulary(task=run.task), torch.Generator().manual_seed(0))
    loss = validate(Learner(build_model(run)), batch, torch.device("cpu"))["loss"]
    assert loss == pytest.approx(GOLDEN[name], rel=2e-5)


def test_every_method_has_settings_and_a_golden_loss():
    assert METHODS.keys() == MethodConfig.kinds.keys() == GOLDEN.keys()


def test_smaller_graphs_and_other_fan_ins_come_first():
    run = tiny("stable", steps=10, curriculum=("6/1:0.3",))
    vocabulary = Vocabulary(task=run.task)
    for number, most, fan_in in ((0, 6, 1), (2, 6, 1), (3, 10, 3), (9, 10, 3)):
        batch = sample_batch(run, number, vocabulary, 0)
        assert batch.counted_as.max() <= fan_in + 1
        assert batch.layout.exists.sum(1).max() <= most
    assert [run.distribution_at(step).graph.nodes for step in range(10)] == [6] * 3 + [10] * 7
    batch = sample_batch(run, 3, vocabulary, 0)
    assert batch.counted_as.max() == 4
    assert batch.layout.exists.sum(1).max() > 6


def test_few_names_and_few_leaves_come_first():
    run = tiny("discrete", steps=10, curriculum=("4,2@5/1:0.5",))
    vocabulary = Vocabulary(task=run.task)
    for number in range(10):
        batch = sample_batch(run, number, vocabulary, 0)
        names = batch.start.variable[batch.start.variable < run.task.names]
        leaves = ((batch.layout.fan_in == 0) & batch.layout.exists).sum(1)
        assert (names.max() < 5) == (number < 5)
        assert (leaves.max() == 2) == (number < 5)


def test_small_problems_may_come_in_larger_batches():
    run = tiny("feedforward", steps=10, curriculum=("4,2@5/1x3:0.5",))
    vocabulary, own = Vocabulary(task=run.task), run.train.batch
    assert [len(sample_batch(run, step, vocabulary, 0)) for step in range(10)] == [3 * own] * 5 + [own] * 5
    assert run.problems == 5 * 3 * own + 5 * own
    first, second = (sample_batch(run, step, vocabulary, 0).start.value for step in (0, 1))
    assert first.shape != second.shape or (first != second).any()
