"""The recursion: what ``iterate`` does is what a loop written by hand does, and everybody goes through it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from latentloop.config import GraphConfig
from latentloop.errors import UserError
from latentloop.evaluate.rollout import roll_out
from latentloop.methods import METHODS
from latentloop.model import recurrence
from latentloop.model.attention import take
from latentloop.model.build import build_model
from latentloop.model.recurrence import Fixed, iterate
from latentloop.model.watch import Watch
from latentloop.presets import preset
from latentloop.schema import changed
from latentloop.task.graph import EMPTY, sample
from latentloop.task.splits import sampled_generator
from latentloop.task.text import parse
from latentloop.tokens.factored import encode
from latentloop.tokens.state import encode_state, with_values
from latentloop.tokens.vocabulary import FACTORS, Vocabulary
from latentloop.train import loss as losses
from latentloop.train.loss import latent_loss
from latentloop.train.targets import make_batch

KINDS = ["feedforward", "recurrent", "continuous", "discrete", "pinned", "stable"]


def setting(kind, count=5):
    """Return a model whose weights are large enough to decide many things, a state and its layout."""
    run = changed(preset("tiny-discrete"), pin_static=True) if kind == "pinned" else preset(f"tiny-{kind}")
    run = replace(run, graph=GraphConfig(nodes=9, min_nodes=5, leaves=3))
    model = build_model(run).double().eval()
    torch.manual_seed(2)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    torch.nn.init.zeros_(model.norm.bias)  # else all decisions would be much the same
    problems = sample(run.task, run.graph, count, sampled_generator(3))
    return run, model, problems, *encode_state(problems, model.vocabulary)


@pytest.mark.parametrize("kind", KINDS)
def test_iterate_is_the_loop_written_by_hand(kind):
    run, model, _, state, layout = setting(kind)
    found = list(iterate(model, state, layout, Fixed(4)))
    assert len(found) == 4
    symbols, hidden = state.factors(), None
    for iteration, (after, output) in enumerate(found, 1):
        x = sum(model.embeddings[name](numbers) for name, numbers in symbols.items()) if hidden is None else hidden
        full, _ = model.block(x)
        at = take(full, layout.rhs) if run.method.pin_static else full
        torch.testing.assert_close(output.hidden, at)
        logits = {name: readout(at) for name, readout in model.readouts.items()}
        assert set(output.logits) == set(logits) == ({"value"} if run.method.pin_static else set(FACTORS))
        for name, scores in logits.items():
            torch.testing.assert_close(output.logits[name], scores)
        decided = {name: scores.argmax(-1) for name, scores in logits.items()}
        if run.method.pin_static:
            values = symbols["value"].clone()
            for row in range(len(layout)):
                for node in range(int(layout.exists[row].sum())):
                    values[row, layout.rhs[row, node]] = decided["value"][row, node]
            decided = symbols | {"value": values}
        hidden = full if run.method.row.carries == "hidden" else None
        symbols = decided
        assert after.iteration == iteration
        assert (after.hidden is None) == (hidden is None)
        for name in FACTORS:
            assert torch.equal(after.factors()[name], symbols[name]), (iteration, name)
    assert not torch.equal(found[0][0].value, found[-1][0].value)  # the states were not all one


class Leaving:
    """Let one problem go after each iteration, the first one of those left."""

    def see(self, state):
        going = torch.arange(len(state.value)) > 0
        return going if going.any() else None


@pytest.mark.parametrize("kind", ["continuous", "discrete", "pinned"])
def test_problems_that_leave_do_not_change_those_that_stay(kind):
    _, model, _, state, layout = setting(kind)
    together = [after for after, _ in iterate(model, state, layout, Fixed(5))]
    leaving = [after for after, _ in iterate(model, state, layout, Leaving())]
    assert [len(after.value) for after in leaving] == [5, 4, 3, 2, 1]
    for number, (all_rows, fewer) in enumerate(zip(together, leaving, strict=True)):
        for name in FACTORS:
            assert torch.equal(all_rows.factors()[name][number:], fewer.factors()[name])
        assert all_rows.iteration == fewer.iteration == number + 1


def test_roll_outs_are_the_states_of_iterate():
    _, model, problems, state, layout = setting("pinned")
    start = np.random.default_rng(0).integers(-1, 23, problems.names.shape, dtype=np.int8)
    rollouts = roll_out(model, problems, np.full(len(problems), 6), start=start)
    state = with_values(state, layout, start, model.vocabulary)
    states = [after for after, _ in iterate(model, state, layout, Fixed(6))]
    for row, rollout in enumerate(rollouts):
        for iteration in range(1, rollout.iterations + 1):
            symbols = layout.read(states[iteration - 1].value)[row, : problems.sizes[row]]
            assert rollout.states[iteration].tolist() == [v if v < 23 else -1 for v in symbols.tolist()]


@pytest.mark.parametrize("name", [name for name, row in METHODS.items() if row.latent])
def test_training_goes_through_iterate(name, monkeypatch):
    run = preset(f"tiny-{name}")
    model = build_model(run)
    problems = sample(run.task, run.graph, 3, sampled_generator(0))
    batch = make_batch(problems, run, Vocabulary(task=run.task), torch.Generator().manual_seed(0))
    seen = []

    def counted(model, state, layout, halt):
        for after, output in recurrence.iterate(model, state, layout, halt):
            seen.append(after.hidden is not None)
            yield after, output

    monkeypatch.setattr(losses, "iterate", counted)
    loss, _ = latent_loss(model, batch, batch.totals())
    assert len(seen) == batch.iterations
    assert all(seen) == (METHODS[name].carries == "hidden")
    if name == "continuous":
        assert len(seen) == len(batch.targets) > 1
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_hidden_vectors_are_trained_through_all_iterations():
    """The gradient of the last iteration's loss reaches the embeddings, which only the first one reads."""
    _, model, _, state, layout = setting("continuous")
    *_, (_, output) = iterate(model, state, layout, Fixed(3))
    output.logits["value"].square().sum().backward()
    assert model.embeddings["value"].weight.grad.abs().sum() > 0


def test_symbols_that_are_no_numbers_read_as_empty():
    run = preset("tiny-discrete")
    vocabulary = Vocabulary(task=run.task)
    tokens = encode(parse("20 = x7 ; x7 = x8", run.task), vocabulary)
    for symbol, name in enumerate(vocabulary.symbols("value")):
        says = replace(tokens, value=np.full_like(tokens.value, symbol))
        watch = Watch(says, np.array([1]), run.task.modulus, exact=True)
        assert watch.values[0].tolist() == [[EMPTY if name in ("N/A", "empty") else symbol] * 2]


def test_stray_lookups_change_right_hand_sides_alone_and_only_in_training():
    run = changed(preset("tiny-stable"), stray=1.0)
    model = build_model(run)
    problems = sample(run.task, run.graph, 3, np.random.default_rng(0))
    state, layout = encode_state(problems, model.vocabulary)
    x = model.embed(state.factors())
    found = torch.randn_like(x)  # what the first layer adds
    torch.manual_seed(0)
    strayed = model._astray(x + found, x, layout.rhs)
    changed_at = (strayed != x + found).any(-1)
    assert (changed_at <= layout.at_rhs(layout.exists)).all()
    assert changed_at.sum() > 0.8 * layout.exists.sum()  # a token may be given its own
    given = strayed - x
    for row, position in changed_at.nonzero().tolist():  # everything given was found by a token of the same problem
        assert torch.isclose(given[row, position], found[row], atol=1e-5).all(-1).any()
    unlike = sample(run.task, changed(run.graph, min_nodes=4), 3, np.random.default_rng(0))
    rhs = encode_state(unlike, model.vocabulary)[1].rhs
    assert (rhs == 0).sum() > 1  # places without a node
    still = build_model(changed(run, stray=1e-9))
    leaf = torch.zeros(3, 64, 4, requires_grad=True)
    still._astray(leaf, torch.zeros(3, 64, 4), rhs).sum().backward()
    assert (leaf.grad == 1).all()  # a token that stays as it is counts once, however many nodes are absent
    plain = build_model(changed(run, stray=0.0)).eval()
    with torch.no_grad():
        outputs = [one.eval()(state, layout).logits["value"] for one in (model, plain)]
    assert torch.equal(*outputs)


def test_stray_lookups_need_right_hand_sides_to_be_read_alone():
    with pytest.raises(UserError, match="stray is for methods that read values only"):
        changed(preset("tiny-discrete"), stray=0.1)
    changed(preset("tiny-discrete"), stray=0.1, pin_static=True)
