"""What a model sees: named tensors, their layout, and no truth."""

from dataclasses import fields

import numpy as np
import torch

from latentloop.config import GraphConfig, TaskConfig
from latentloop.task import oracle
from latentloop.task.graph import ABSENT, sample
from latentloop.task.oracle import initial_state, solve, trace
from latentloop.task.splits import sampled_generator
from latentloop.tokens import state as module
from latentloop.tokens.factored import encode
from latentloop.tokens.state import Layout, State, encode_state, to_symbols, with_values
from latentloop.tokens.vocabulary import FACTORS, Vocabulary
from strategies import given_problems

VOCABULARY = Vocabulary(task=TaskConfig.named("all"))


def draw(count=32):
    return sample(VOCABULARY.task, GraphConfig(nodes=16, min_nodes=8), count, sampled_generator(0))


def test_a_state_names_its_tensors_and_its_layout_marks_the_padding():
    problems = draw()
    state, layout = encode_state(problems, VOCABULARY)
    assert len(layout) == 32
    assert (state.iteration, state.hidden) == (0, None)
    assert torch.equal(layout.mask, state.syntax != 5)
    assert layout.exists.sum() == problems.sizes.sum()
    for row, size in enumerate(problems.sizes):
        there = layout.rhs[row, :size]
        assert state.variable[row, there].tolist() == problems.names[row, :size].tolist()
        assert (state.value[row, there] == VOCABULARY.empty).all()
        assert not layout.exists[row, size:].any()
        for node in range(size):
            for operand, parent in enumerate(problems.parents[row, node]):
                if parent == ABSENT:
                    assert layout.operand[row, node, operand] == layout.parent[row, node, operand] == 0
                else:
                    assert layout.parent[row, node, operand] == parent
                    place = layout.operand[row, node, operand]
                    assert state.variable[row, place] == problems.names[row, parent]
    assert layout.fan_in.sum() == problems.fan_in.sum()
    assert layout.to("meta").rhs.device.type == state.to("meta").value.device.type == "meta"


def test_encoding_never_asks_the_oracle(monkeypatch):
    """The truth does not travel with what a model sees: neither computed nor carried."""
    problems = draw()
    answers = solve(problems).values

    def refuse(*_):
        raise AssertionError("the oracle was asked")

    for name in ("solve", "update", "trace"):
        monkeypatch.setattr(oracle, name, refuse)
    assert not {"solve", "update", "trace", "oracle", "Solution"} & set(vars(module))
    state, layout = encode_state(problems, VOCABULARY)
    assert {slot.name for slot in fields(State)} == {*FACTORS, "hidden", "iteration"}
    assert {slot.name for slot in fields(Layout)} == {"mask", "exists", "rhs", "operand", "parent", "fan_in"}
    computed = torch.from_numpy((problems.fan_in > 0) & problems.exists)
    assert (layout.read(state.value)[computed] == VOCABULARY.empty).all()
    # Other constants give other answers; beside the constants themselves, no tensor changes.
    constants = np.where(problems.constants >= 0, (problems.constants + 1) % 23, problems.constants).astype(np.int8)
    monkeypatch.undo()
    others = type(problems)(**vars(problems) | {"constants": constants})
    assert (solve(others).values != answers)[problems.exists].mean() > 0.5
    other, same = encode_state(others, VOCABULARY)
    for slot in fields(Layout):
        assert torch.equal(getattr(layout, slot.name), getattr(same, slot.name))
    given = state.syntax == 0
    for name in FACTORS:
        assert torch.equal(getattr(state, name)[~given], getattr(other, name)[~given])


@given_problems()
def test_states_are_written_and_read_at_right_hand_sides_only(task, problems):
    vocabulary = Vocabulary(task=task)
    (state, layout), tokens = encode_state(problems, vocabulary), encode(problems, vocabulary)
    assert torch.equal(with_values(state, layout, initial_state(problems), vocabulary).value, state.value)
    states = trace(problems)
    symbols = to_symbols(states, vocabulary)
    written = layout.write(state.value, symbols)
    for values, numbers, filled in zip(states, symbols, written, strict=True):
        expected = tokens.value.copy()
        for row, node in np.argwhere(values >= 0):  # what is not known yet stays empty
            expected[row, tokens.rhs[row, node]] = values[row, node]
        assert filled.tolist() == expected.tolist()
        assert torch.equal(with_values(state, layout, values, vocabulary).value, filled)
        assert torch.equal(layout.read(filled)[layout.exists], numbers[layout.exists])


def test_rows_and_needless_columns_can_be_taken_away():
    problems = draw()
    small = np.argsort(problems.sizes)[:3]
    state, layout = encode_state(problems, VOCABULARY)
    alone, expected = encode_state(problems[small], VOCABULARY)
    rows = torch.from_numpy(small)
    trimmed = layout[rows].trimmed()
    for slot in fields(Layout):
        assert torch.equal(getattr(trimmed, slot.name), getattr(expected, slot.name)), slot.name
    length = trimmed.mask.shape[1]
    for name, numbers in state[rows].factors().items():
        assert torch.equal(numbers[:, :length], getattr(alone, name))
