"""Optimizer parts against independent code."""

import math
from dataclasses import replace

import pytest
import torch

from latentloop.config import TrainConfig
from latentloop.model.build import build_model
from latentloop.presets import preset
from latentloop.schema import changed
from latentloop.tokens.vocabulary import Vocabulary
from latentloop.train.data import sample_batch
from latentloop.train.devices import make_fabric
from latentloop.train.loop import backward
from latentloop.train.loss import Learner
from latentloop.train.optimizer import (
    MovingAverage,
    MuonAdamW,
    make_optimizer,
    moments,
    orthogonalized,
    schedule_share,
    set_learning_rate,
)


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_the_schedule_is_torchs(schedule):
    last = {} if schedule == "constant" else {"final_lr": 0.2}
    train = TrainConfig(steps=50, warmup=10, lr=0.1, schedule=schedule, **last)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    rise = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, 9)
    fall = {
        "constant": torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0, 40),
        "linear": torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.2, 40),
        "cosine": torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 40, 0.02),
    }[schedule]
    both = torch.optim.lr_scheduler.SequentialLR(optimizer, [rise, fall], [10])
    for step in range(50):
        assert math.isclose(train.lr * schedule_share(step, train), both.get_last_lr()[0], rel_tol=1e-6), step
        optimizer.step()
        both.step()


@pytest.mark.parametrize("decay", ["matrices", "all"])
def test_matrices_decay_or_everything(decay):
    model = build_model(preset("tiny-discrete"))
    optimizer = make_optimizer(model, TrainConfig(weight_decay=0.3, decay=decay))
    decayed = {id(p) for group in optimizer.param_groups if group["weight_decay"] for p in group["params"]}
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(list(model.parameters()))
    for name, parameter in model.named_parameters():
        assert (id(parameter) in decayed) == (decay == "all" or parameter.ndim >= 2), name


def test_the_moving_average_is_that_of_the_formula():
    model = build_model(preset("tiny-discrete"))
    mean = MovingAverage(model, 0.8)
    reference = {name: p.detach().clone().double() for name, p in model.named_parameters()}
    for step in range(30):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += torch.randn_like(parameter)
        mean.update(model, step)
        decay = min(0.8, (1 + step) / (10 + step))
        for name, parameter in model.named_parameters():
            reference[name] = decay * reference[name] + (1 - decay) * parameter.detach().double()
    for name, parameter in mean.model.named_parameters():
        torch.testing.assert_close(parameter.double(), reference[name], rtol=1e-4, atol=1e-5)


def test_seeds_decide_the_first_weights():
    run = preset("tiny-discrete")
    first, again = build_model(run), build_model(run)
    other = build_model(replace(run, train=replace(run.train, seed=1)))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert not torch.equal(first.readouts["value"].weight, other.readouts["value"].weight)


def test_clipping_scales_the_whole_gradient_to_the_norm():
    run = preset("tiny-discrete")
    fabric, vocabulary = make_fabric(run), Vocabulary(task=run.task)
    model = build_model(run)
    learner, optimizer = fabric.setup(Learner(model), make_optimizer(model, run.train))
    backward(fabric, learner, sample_batch(run, 0, vocabulary, 0), 64)
    before = {name: p.grad.double().clone() for name, p in model.named_parameters()}
    norm = math.sqrt(sum(float(grad.square().sum()) for grad in before.values()))
    fabric.clip_gradients(learner, optimizer, max_norm=norm / 3)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad.double(), before[name] / 3, rtol=1e-4, atol=1e-9)


def test_orthogonalized_matrices_keep_their_directions_and_lose_their_scales():
    torch.manual_seed(0)
    for shape in ((3, 8, 8), (2, 24, 8), (2, 8, 24)):
        matrices = torch.randn(shape) * torch.logspace(-2, 2, shape[0])[:, None, None]
        found = orthogonalized(matrices, MuonAdamW.ROUNDS, MuonAdamW.COEFFICIENTS)
        left, _, right = torch.linalg.svd(matrices, full_matrices=False)
        values = torch.linalg.svdvals(found) / max(1.0, shape[1] / shape[2]) ** 0.5
        assert ((values > 0.3) & (values < 1.3)).all(), values
        inner = left.mT @ found @ right.mT  # diagonal where singular vectors are kept
        off = inner - torch.diag_embed(inner.diagonal(dim1=1, dim2=2))
        assert off.abs().max() < 1e-3 * inner.abs().max()


def test_muon_takes_queries_keys_and_values_apart_and_nothing_else():
    """Also where an MLP has the shape of all three: with a ratio of 3."""
    run = changed(preset("quick"), mlp_ratio=3)
    model = build_model(run)
    muon = make_optimizer(model, run.train)
    parts = {p: group.get("parts") for group in muon.param_groups for p in group["params"]}
    found = {name: parts[p] for name, p in model.named_parameters() if name.startswith("layers.1") and p.ndim == 2}
    assert {name.split(".", 2)[2]: count for name, count in found.items() if count == 3} == {
        "attention.project.weight": 3
    }
    assert {count for name, count in found.items() if "project" not in name} == {1}


def test_a_rate_of_zero_moves_nothing():
    run = changed(preset("quick"), lr=0.0, muon_lr=0.0)
    model = build_model(run)
    assert set_learning_rate(make_optimizer(model, run.train), 3, run.train) == 0.0


def test_muon_moves_the_matrices_of_layers_and_adamw_everything_else():
    run = preset("quick")
    model = build_model(run)
    plain = build_model(run)
    muon = make_optimizer(model, run.train)
    adamw = make_optimizer(plain, replace(run.train, optimizer="adamw", muon_lr=None))
    torch.manual_seed(0)
    for one, other in zip(model.parameters(), plain.parameters(), strict=True):
        one.grad = torch.randn_like(one)
        other.grad = one.grad.clone()
    before = {name: value.clone() for name, value in model.named_parameters()}
    for optimizer in (muon, adamw):
        set_learning_rate(optimizer, run.train.warmup, run.train)
        optimizer.step()
    for (name, one), other in zip(model.named_parameters(), plain.parameters(), strict=True):
        kept = set(muon.state[one]) - {"step"}
        assert kept == set(moments(name, one.ndim, run.train))
        if one.ndim == 2 and name.startswith("layers."):
            assert kept == {"momentum"}
            moved = (one - before[name]) / run.train.muon_lr
            assert 0.3 < torch.linalg.svdvals(moved).median() < 2.5
        else:
            torch.testing.assert_close(one, other)
