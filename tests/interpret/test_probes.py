"""Controlled data: exactly one thing varies, every answer is the oracle's, and a shared prefix changes nothing."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from latentloop.config import ModelConfig, TaskConfig
from latentloop.config.positions import PositionsConfig
from latentloop.interpret.flow import KINDS, pairs
from latentloop.interpret.nodes import at_nodes, with_nodes
from latentloop.interpret.probes import (
    LEAST_NODES,
    OPERANDS,
    RHS,
    labels,
    make_scene,
    value_grid,
    varied_literals,
    varied_names,
    varied_operations,
    varied_values,
)
from latentloop.interpret.shared import Bench
from latentloop.methods import Discrete
from latentloop.model.capture import capture, patch
from latentloop.model.positions import POSITIONS
from latentloop.model.recurrence import update
from latentloop.model.transformer import Transformer
from latentloop.task.graph import EMPTY
from latentloop.task.oracle import solve
from latentloop.tokens.factored import decode, encode
from latentloop.tokens.state import encode_state, with_values
from latentloop.tokens.vocabulary import Vocabulary

TASK = TaskConfig(operations=("+", "*"), modulus=5, names=12)
VOCABULARY = Vocabulary(task=TASK)


def scene(nodes=12, task=TASK):
    return make_scene(task, nodes, np.random.default_rng(3))


def words(probes):
    tokens = encode(probes.problems, VOCABULARY)
    return np.array([decode(tokens, VOCABULARY, row).split(" ") for row in range(len(probes))])


@pytest.mark.parametrize("place", [*OPERANDS, RHS])
def test_one_name_varies_and_nothing_else(place):
    probes = varied_names(scene(), place)
    text = words(probes)
    differing = np.flatnonzero((text != text[0]).any(0))
    assert differing.tolist() == [text.shape[1] + labels().index(place) - len(labels())]
    assert len(probes) == len({tuple(row) for row in text}) >= 8
    assert (probes.state[:, :-1] == probes.state[0, :-1]).all()
    if place == RHS:  # all names are taken, so the probe repeats one, which the parser would refuse
        assert set(text[:, -1]) <= set(text[0, :-8])


def test_a_free_name_is_taken_where_there_is_one():
    some = scene(nodes=10)
    assert some.rhs not in some.base.names
    assert set(varied_names(some, RHS).problems.names[:, -1]) <= set(range(12)) - set(some.base.names[0].tolist())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("task", [TASK, replace(TASK, operations=("*",))])
def test_pairs_differ_in_one_operand_and_in_the_answer(kind, task):
    for seed in range(12):
        rng = np.random.default_rng(seed)
        small = make_scene(task, LEAST_NODES, rng)  # both other nodes may have the operand's value
        for operand in range(3):
            probes = pairs(small, operand, kind, rng, 4)
            assert (probes.answers[:4] != probes.answers[4:]).all()  # a product with 0 would be the same


def test_an_answered_probe_differs_in_its_own_value_alone():
    probes = varied_values(scene(), "VAR1")
    answered = probes.answered()
    assert (answered.state[:, :-1] == probes.state[:, :-1]).all()
    assert (answered.state[:, -1] == probes.answers).all()


@pytest.mark.parametrize("place", OPERANDS)
def test_one_value_varies_by_the_equation_that_defines_it(place):
    probes = varied_values(scene(), place, empty=True)
    text = words(probes)
    differing = np.flatnonzero((text != text[0]).any(0))
    which = OPERANDS.index(place)
    assert text[0, differing + 1].tolist() == ["="]  # the literal of a leaf, as in `3 = x7`
    leaf, (definition,) = text[0, differing + 2], np.flatnonzero(text[0, :-8] == text[0, -7 + 2 * which])
    assert text[0, definition - 2 : definition].tolist() == [*leaf, "="]  # which that operand copies, as in `x7 = x4`
    node, source = scene().operands[which], scene().sources[which]
    changed = (probes.state != probes.state[0]).any(0)
    assert np.flatnonzero(changed).tolist() == [source, node]
    assert probes.state[:, node].tolist() == [0, 1, 2, 3, 4, EMPTY]
    assert (probes.state[:-1, source] == probes.state[:-1, node]).all()
    assert (probes.state[:, -1] == EMPTY).all()
    full = solve(probes.problems)
    assert (full.values[:-1, -1] == probes.answers[:-1]).all()
    assert probes.answers[-1] == EMPTY


def test_operands_count_from_the_right_hand_side():
    assert labels(3) == [";", "VAR0", "op", "VAR1", "op", "VAR2", "=", "RHS"]
    assert labels(2) == [";", "VAR1", "op", "VAR2", "=", "RHS"]
    assert labels(1) == [";", "VAR2", "=", "RHS"]
    some = scene()
    two, three = words(some.probes(operands=2))[0], words(some.probes())[0]
    assert two[-3] == three[-3]
    assert two[-5] == three[-5]


def test_grids_literals_and_operations():
    probes = value_grid(scene(), ["+", "*"], [1, 2, 4])
    expected = [(x + y) * z % 5 for x in (1, 2, 4) for y in (1, 2, 4) for z in (1, 2, 4)]
    assert probes.answers.tolist() == expected
    literals = varied_literals(scene())
    assert (literals.state == literals.state[0]).all()
    assert literals.problems.constants[:, -2].tolist() == [
        0,
        1,
        2,
        3,
        4,
    ]  # the last leaf's, behind which the probe stands
    assert len(varied_operations(scene())) == 4


@pytest.mark.parametrize("encoding", POSITIONS)
@torch.inference_mode()
def test_a_shared_prefix_changes_nothing(encoding):
    torch.manual_seed(0)
    config = ModelConfig(positions=PositionsConfig.kind(encoding)(), layers=2, heads=2, width=16, dropout=0.0)
    model = Transformer(config, VOCABULARY, Discrete(pin_static=encoding == "local")).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    for probes in (varied_names(scene(), "VAR1"), varied_values(scene(), "VAR0", empty=True)):
        state, layout = encode_state(probes.problems, VOCABULARY)
        state = with_values(state, layout, probes.state, VOCABULARY)
        with capture(model, ["head_out", "mlp_post"]) as whole:
            _, output = update(model, state, layout)
        bench = Bench(model, probes)
        assert 0 < bench.start < bench.length - 7
        with capture(model, ["head_out", "mlp_post"]) as part:
            logits = bench.run()
        torch.testing.assert_close(logits[:, -1], output.logits["value"][:, -1], rtol=1e-4, atol=1e-4)
        for key in whole:
            axis = 2 if key[2] == "head_out" else 1
            torch.testing.assert_close(part[key].select(axis, -1), whole[key].select(axis, -1), rtol=1e-4, atol=1e-4)
        place = [bench.length - bench.start - 1]
        with patch(model, "head_out", part[0, 1, "head_out"], layer=1, positions=place):  # the same again
            torch.testing.assert_close(bench.run(), logits, rtol=1e-4, atol=1e-4)
        with patch(model, "head_out", lambda x: 2 * x, layer=1, positions=place):  # a function of what was there
            moved = bench.run()
        torch.testing.assert_close(moved[:, :-1], logits[:, :-1], rtol=1e-4, atol=1e-4)
        assert not torch.allclose(moved[:, -1], logits[:, -1])
        # Where the answer alone is asked for, the last layer computes one token, and the same.
        with capture(model, ["head_out", "mlp_post"]) as short:
            answers = bench.answers()
        assert torch.equal(answers, logits[:, -1].argmax(-1))
        assert short[0, 1, "head_out"].shape[2] == 1
        for key in whole:
            axis = 2 if key[2] == "head_out" else 1
            torch.testing.assert_close(short[key].select(axis, -1), whole[key].select(axis, -1), rtol=1e-4, atol=1e-4)
        for layer, label in ((1, RHS), (0, "VAR2")):
            there = bench.position(label, layer)
            with (
                patch(model, "head_out", lambda x: 2 * x, layer=layer, positions=[there]),
                capture(model, ["logits"]) as changed,
            ):
                bench.answers()
            here = there if layer == 0 else place[0]
            with patch(model, "head_out", lambda x: 2 * x, layer=layer, positions=[here]):
                expected = bench.run()[:, -1]
            torch.testing.assert_close(changed[0, None, "logits.value"][:, 0], expected, rtol=1e-4, atol=1e-4)
            assert not torch.allclose(expected, logits[:, -1])


def test_activations_at_right_hand_sides():
    state, layout = encode_state(scene().probes().problems, VOCABULARY)
    x = torch.rand(1, state.value.shape[1], 3)
    nodes = at_nodes(x, layout)
    assert torch.equal(nodes[0], x[0, layout.rhs[0]])
    assert torch.equal(at_nodes(x[:, None], layout, axis=2)[:, 0], nodes)
    assert at_nodes(nodes, layout) is nodes  # computed there alone
    changed = with_nodes(x, layout, nodes + 1)
    assert torch.allclose(at_nodes(changed, layout), nodes + 1)
    assert int((changed != x).any(-1).sum()) == layout.rhs.shape[1]
