import pytest
import torch
import torch.nn.functional as F

from latentloop.model import products
from latentloop.model.build import build_model
from latentloop.presets import preset
from latentloop.task.graph import sample
from latentloop.task.splits import train_generator
from latentloop.tokens.vocabulary import Vocabulary
from latentloop.train.loss import Learner, Sealed
from latentloop.train.targets import make_batch

needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")


@pytest.fixture
def onednn(monkeypatch):
    """Products by oneDNN, also on a CPU on which they are not the quicker ones; the shapes multiplied so far."""
    torch.manual_seed(0)
    found = []

    def counted(x, weight, bias, multiply=products._onednn):
        found.append((x.shape, weight.shape))
        return multiply(x, weight, bias)

    monkeypatch.setattr(products, "ONEDNN", True)
    monkeypatch.setattr(products, "_onednn", counted)
    return found


def gradients(function, *inputs):
    inputs = [one.detach().clone().requires_grad_() for one in inputs]
    output = function(*inputs)
    return output, *torch.autograd.grad((output**2).sum(), inputs)


@needs_onednn
@pytest.mark.parametrize("rows", [(7,), (3, 5), (2, 3, 4), (3, 0), (1,)])
def test_products_and_gradients_are_those_of_torch(onednn, rows):
    x, weight, bias = torch.randn(*rows, 16), torch.randn(8, 16), torch.randn(8)
    for ours, theirs in zip(
        gradients(products.linear, x, weight, bias), gradients(F.linear, x, weight, bias), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-4)  # sums in another order
    assert len(onednn) == (0 if 0 in rows else 3)


@needs_onednn
def test_views_that_are_not_contiguous_are_multiplied_too(onednn):
    x, weight, bias = torch.randn(16, 9).mT, torch.randn(24, 16)[8:], torch.randn(24)[8:]
    for ours, theirs in zip(
        gradients(products.linear, x, weight, bias), gradients(F.linear, x, weight, bias), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-4)  # sums in another order
    left, right = torch.randn(3, 4, 6), torch.randn(3, 6, 5).mT
    torch.testing.assert_close(products.times_transposed(left, right), left @ right.mT)
    assert len(onednn) == 6


@needs_onednn
def test_gradients_that_nobody_wants_are_not_computed(onednn):
    x, weight, bias = torch.randn(5, 16), torch.randn(8, 16, requires_grad=True), torch.randn(8)
    products.linear(x, weight, bias).sum().backward()
    assert len(onednn) == 2
    assert weight.grad is not None


@needs_onednn
def test_a_step_of_training_is_the_same_whichever_library_multiplies(onednn):
    run = preset("tiny-stable")
    problems = sample(run.task, run.graph, 8, train_generator(0, 0))
    batch = make_batch(problems, run, Vocabulary(task=run.task), torch.Generator().manual_seed(0))

    def step():
        torch.manual_seed(0)
        learner = Learner(build_model(run))
        learner(Sealed(batch, batch.totals()))[0].backward()
        return {name: one.grad for name, one in learner.named_parameters() if one.grad is not None}

    quick = step()
    assert onednn
    products.ONEDNN = False
    plain = step()
    assert quick.keys() == plain.keys()
    for name, gradient in plain.items():
        torch.testing.assert_close(quick[name], gradient, msg=lambda message, name=name: f"{name}: {message}")


@needs_onednn
@pytest.mark.parametrize("why", ["no gradient", "double precision", "autocast", "compiled"])
def test_elsewhere_products_are_those_of_torch(onednn, monkeypatch, why):
    x, weight, bias = torch.randn(5, 16), torch.randn(8, 16, requires_grad=True), torch.randn(8)
    if why == "double precision":
        x, weight, bias = x.double(), weight.double(), bias.double()
    if why == "compiled":  # then the compiler chooses
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    with torch.set_grad_enabled(why != "no gradient"), torch.autocast("cpu", enabled=why == "autocast"):
        assert torch.equal(products.linear(x, weight, bias), F.linear(x, weight, bias))
    assert not onednn
