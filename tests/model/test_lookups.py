"""Sums of look-ups that are kept between iterations, and tokens projected once: equal to attention computed anew."""

import numpy as np
import pytest
import torch

from latentloop.config import GraphConfig, ModelConfig, RunConfig, TaskConfig
from latentloop.config.positions import LocalConfig, RotaryConfig
from latentloop.methods import Discrete, Stable
from latentloop.model import transformer
from latentloop.model.build import build_model
from latentloop.model.capture import capture
from latentloop.model.lookups import Lookups
from latentloop.model.recurrence import Fixed, iterate
from latentloop.model.transformer import distinct
from latentloop.task.graph import sample
from latentloop.task.splits import sampled_generator
from latentloop.tokens.state import encode_state, with_values


def dense(queries, keys, values):
    """Attention that has an empty key in place of each token's own."""
    later, itself = torch.ones(queries.shape[1], queries.shape[1]).triu(1).bool(), torch.eye(queries.shape[1]).bool()
    weights = (queries @ keys.mT).masked_fill(itself, 0.0).masked_fill(later, -torch.inf).softmax(-1)
    return weights.masked_fill(itself, 0.0) @ values


def test_distinct_tokens_and_where_they_stand():
    factors = torch.stack([torch.randint(0, size, (5, 40)) for size in (6, 3, 2, 4)])
    tokens, index = distinct(factors)
    assert torch.equal(tokens[:, index], factors)
    assert len(tokens.unique(dim=1).T) == tokens.shape[1] == int(index.max()) + 1


@pytest.mark.parametrize("sharpness", [0.3, 3.0, 30.0])
def test_sums_that_are_kept_are_those_computed_anew(sharpness):
    """Few and many tokens change, back and forth, with weights of the same size and of sizes beyond any rounding."""
    torch.manual_seed(0)
    table = torch.randn(3, 60, 2, 8)  # queries, keys and values of sixty tokens, for two heads
    table[0] *= sharpness
    tokens = torch.randint(0, 60, (1, 700))
    lookups = Lookups()
    for share in (0, 0.0, 0.01, 0.2, 1.0, 0.002, 0.5, 0.0):
        changed = torch.rand(tokens.shape) < share
        tokens = torch.where(changed, torch.randint(0, 60, tokens.shape), tokens)
        queries, keys, values = table[:, tokens[0]].transpose(1, 2)
        found = lookups.mix(tokens, queries, keys, values)
        torch.testing.assert_close(found, dense(queries, keys, values), rtol=2e-4, atol=2e-5)


def test_a_definition_that_becomes_empty_again_leaves_no_trace():
    """The largest weight of a sum goes, e^60 times the others: they must not drown in what rounding left of it."""
    torch.manual_seed(0)
    queries, values = torch.ones(1, 500, 1), torch.randn(1, 500, 1)
    keys = 0.1 * torch.randn(1, 500, 1)
    lookups = Lookups()
    tokens = torch.zeros(1, 500, dtype=torch.long)
    for height in (0.0, 60.0, 0.0, 20.0, 5.0):
        raised = keys.clone()
        raised[:, 7] += height
        tokens = tokens.clone()
        tokens[0, 7] = int(height)
        found = lookups.mix(tokens, queries, raised, values)
        torch.testing.assert_close(found, dense(queries, raised, values), rtol=1e-4, atol=1e-5)


def large(method, positions, nodes=60, layers=2):
    settings = ModelConfig(positions=positions, layers=layers, width=32, heads=4, dropout=0.0, embedding_std=1.0)
    run = RunConfig(method=method, task=TaskConfig.named("all"), graph=GraphConfig(nodes=8), model=settings)
    model = build_model(run).eval()
    with torch.no_grad():
        for parameter in model.layers.parameters():
            parameter.mul_(5)
    return model, sample(run.task, GraphConfig(nodes=nodes), 1, sampled_generator(5))


@pytest.mark.parametrize("method", [Stable(), Discrete()], ids=lambda method: method.name)
def test_whole_roll_outs_are_the_same_with_sums_kept(method, monkeypatch):
    model, problems = large(method, LocalConfig())
    state, layout = encode_state(problems, model.vocabulary)
    start = np.random.default_rng(0).integers(-1, 23, problems.names.shape, dtype=np.int8)
    state = with_values(state, layout, start, model.vocabulary)
    calls = []
    mix = Lookups.mix
    monkeypatch.setattr(Lookups, "mix", lambda self, *given: calls.append(1) or mix(self, *given))
    with torch.inference_mode():
        anew = list(iterate(model, state, layout, Fixed(6)))
        assert not calls
        monkeypatch.setattr(transformer, "LEAST_LENGTH", 100)
        kept = list(iterate(model, state, layout, Fixed(6)))
    assert len(calls) == 6
    assert len({state.value.numpy().tobytes() for state, _ in anew}) > 3  # something happens
    for (before, wanted), (after, found) in zip(anew, kept, strict=True):
        assert torch.equal(before.value, after.value)
        torch.testing.assert_close(found.hidden, wanted.hidden, rtol=1e-3, atol=1e-4)


def test_sums_are_kept_for_one_large_problem_that_nobody_looks_into(monkeypatch):
    monkeypatch.setattr(transformer, "LEAST_LENGTH", 100)
    model, problems = large(Stable(), LocalConfig())
    _, layout = encode_state(problems, model.vocabulary)
    assert not model.keeps_lookups(layout)  # gradients could be wanted
    with torch.inference_mode():
        assert model.keeps_lookups(layout)
        assert not model.keeps_lookups(layout[torch.tensor([0, 0])])
        assert not large(Stable(), RotaryConfig())[0].keeps_lookups(layout)
        assert not large(Stable(), LocalConfig(), layers=1)[0].keeps_lookups(layout)  # asked at right-hand sides only
        with capture(model, ["pattern"]):
            assert not model.keeps_lookups(layout)
        assert not model.train().keeps_lookups(layout)


@pytest.mark.parametrize("positions", [LocalConfig(), RotaryConfig()], ids=lambda positions: positions.name)
def test_gradients_are_those_of_tokens_projected_one_by_one(positions, monkeypatch):
    model, problems = large(Stable(), positions, nodes=20)
    state, layout = encode_state(problems, model.vocabulary)

    def gradients():
        model.zero_grad()
        model(state, layout).logits["value"].square().sum().backward()
        return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]

    once = gradients()

    def apart(factors):
        count = factors[0].numel()
        return factors.flatten(1), torch.arange(count).reshape(factors.shape[1:])

    monkeypatch.setattr(transformer, "distinct", apart)
    for found, wanted in zip(once, gradients(), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3 * float(wanted.abs().max()))
