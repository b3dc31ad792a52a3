"""The worst case of look-ups: below whatever is measured, on random and on adversarial problems, and reached by some."""

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
import torch

from latentloop.config import GraphConfig, ModelConfig, RunConfig, TaskConfig
from latentloop.config.positions import LocalConfig, NoneConfig, RotaryConfig
from latentloop.errors import UserError
from latentloop.evaluate.bound import LookupBound, lookup_bound, worst_case
from latentloop.methods import Stable
from latentloop.model.build import build_model, weights_of
from latentloop.model.capture import capture
from latentloop.model.recurrence import update
from latentloop.task.graph import ABSENT, sample
from latentloop.task.splits import sampled_generator
from latentloop.task.text import parse
from latentloop.tokens.state import encode_state, with_values

TASK = TaskConfig(operations=("+", "*"), modulus=5, names=12)


LOCAL = LocalConfig()


def looking_up(seed=0, positions=LOCAL, names=12, sharpness=3.0, heads=1):
    """A model whose first head compares names and prefers tokens that hold a number, with some noise in all weights."""
    settings = ModelConfig(positions=positions, width=32, heads=4, first_heads=heads, dropout=0.0)
    task = replace(TASK, names=names)
    run = RunConfig(method=Stable(), task=task, graph=GraphConfig(nodes=2, leaves=1), model=settings)
    model = build_model(replace(run, train=replace(run.train, seed=seed))).eval()
    known = 14  # the unit that says whether a token holds a number
    with torch.no_grad():
        model.embeddings["variable"].weight[:names, :names] += 4 * torch.eye(names)
        model.embeddings["value"].weight[:5, known] += 4
        model.embeddings["syntax"].weight[:, 24:30] += 4 * torch.eye(6)
        project = model.layers[0].attention.project
        queries, keys, _ = project.weight.unflatten(0, (3, -1))
        queries[:12, :12] += 3 * sharpness * torch.eye(12)
        project.bias[known] += 6 * sharpness
        keys[:12, :12] += torch.eye(12)
        keys[known, known] += 1
    return model


def bound_of(model) -> LookupBound:
    weights = weights_of(model)
    return lookup_bound(model.config, model.vocabulary, weights)


@torch.inference_mode()
def least_attention(model, problems, values, head):
    """The least attention that is measured: on definitions with a number, and on what holds none where they are empty."""
    state, layout = encode_state(problems, model.vocabulary)
    state = with_values(state, layout, values, model.vocabulary)
    with capture(model, ["pattern"]) as seen:
        update(model, state, layout)
    pattern, held = seen[0, 0, "pattern"][:, head].numpy(), state.value.numpy()
    least = {"known": 1.0, "empty": 1.0}
    for row, node, operand in zip(*np.nonzero(problems.parents != ABSENT), strict=True):
        query = int(layout.operand[row, node, operand])
        right = int(layout.rhs[row, problems.parents[row, node, operand].astype(int)])
        if held[row, right] < 5:
            least["known"] = min(least["known"], float(pattern[row, query, right]))
        else:
            no_number = held[row, : query + 1] >= 5  # the query itself among them
            least["empty"] = min(least["empty"], float(pattern[row, query, : query + 1][no_number].sum()))
    return least


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("positions", [LocalConfig(), NoneConfig()], ids=lambda positions: positions.name)
def test_the_bound_is_below_whatever_is_measured(seed, positions):
    model = looking_up(seed, positions)
    bound = bound_of(model)
    rng = np.random.default_rng(seed)
    for nodes, family in product((2, 5, 12), ("random", "far", "chain", "wide", "triples")):
        problems = sample(TASK, GraphConfig(nodes=nodes, family=family), 8, sampled_generator(seed, nodes))
        values = rng.integers(-1, 5, problems.names.shape, dtype=np.int8)
        measured = least_attention(model, problems, values, bound.head)
        for case, least in bound.attention(nodes).items():
            assert least <= measured[case]


def test_the_bound_is_near_what_the_worst_problem_measures():
    """Every name and value in one equation: the smallest attention is what the bound says, but for tokens it does not see."""
    model = looking_up(names=2)
    bound = bound_of(model)
    worst = 1.0
    for name, value in product(range(2), range(5)):
        text = f"1 = x{name} ; " + f"x{name} + x{name} + x{name} = x{1 - name}"
        problems = parse(text, model.vocabulary.task)
        for other in range(-1, 5):
            values = np.array([[value, other]], np.int8)
            worst = min(worst, least_attention(model, problems, values, bound.head)["known"])
    least = bound.attention(2)["known"]
    assert least <= worst < 1
    # The bound has all tokens of two equations of three operands, and the query sees half of them.
    assert 1 / least - 1 < 6 * (1 / worst - 1)


def test_attention_falls_with_size_and_the_largest_is_where_it_crosses():
    bound = bound_of(looking_up(sharpness=10.0))
    for case in ("known", "empty"):
        least = [bound.attention(nodes)[case] for nodes in range(1, 13)]
        assert all(a > b for a, b in pairwise(least))
        for share in (0.0, least[5], 0.9999999):
            assert bound.largest(case, share) == sum(attention >= share for attention in least)


def test_the_best_head_counts_and_sharper_attention_is_better():
    each = [bound_of(looking_up(sharpness=sharpness)).attention(12)["known"] for sharpness in (2.5, 5.0, 10.0)]
    assert each == sorted(each)
    assert each[-1] > 0.99 > 0.9 > each[0]
    model = looking_up(heads=2)  # names are in the first half of the units, which is the first head
    weights = weights_of(model)
    assert worst_case(model.config, model.vocabulary, weights)["head"] == 0


def test_rounding_is_counted_against_the_claim():
    """Scores in double precision stay inside the interval that single precision is given."""
    from latentloop.evaluate import bound as module

    model = looking_up()
    weights = weights_of(model)
    tokens = module._tokens(weights, model.vocabulary, "variable", variable=np.arange(12), value=3)
    queries, keys = (module.Rows.project(which, 0, model.config, weights, tokens) for which in (0, 1))
    low, high = queries.scores(keys)
    layer = model.layers[0]
    with torch.inference_mode():
        x = layer.attention_norm(torch.tensor(tokens[0], dtype=torch.float32))
        q, k, _ = layer.attention.project(x).chunk(3, dim=-1)
        scores = (q * 32**-0.5) @ k.T
    assert (low < scores.numpy()).all()
    assert (scores.numpy() < high).all()
    assert (high - low).max() < 1e-2


def test_positions_in_the_first_layer_have_no_bound():
    with pytest.raises(UserError, match="needs a first layer without positions, local or nope, got rope"):
        bound_of(looking_up(positions=RotaryConfig()))


def test_sizes_that_names_do_not_reach_are_refused():
    with pytest.raises(UserError, match="1 to 12 nodes, got 13"):
        bound_of(looking_up()).attention(13)
