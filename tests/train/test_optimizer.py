"""Optimizer parts against independent code."""

import math
from dataclasses import replace

import pytest
import torch

from latentloop.config import TrainConfig
from latentloop.model.build import build_model
from latentloop.presets import preset
from latentloop.tokens.vocabulary import Vocabulary
from latentloop.train.data import sample_batch
from latentloop.train.devices import make_fabric
from latentloop.train.loop import backward
from latentloop.train.loss import Learner
from latentloop.train.optimizer import MovingAverage, learning_rate, make_optimizer


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
        assert math.isclose(learning_rate(step, train), both.get_last_lr()[0], rel_tol=1e-6), step
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
