import numpy as np
import pytest

from latentloop.config import TaskConfig
from latentloop.task.oracle import solve
from latentloop.task.text import parse, to_text
from latentloop.tokens.trajectory import FORMATS, encode_trajectories, read_values, same_structure, spell
from latentloop.tokens.vocabulary import Vocabulary
from paper import CHAIN_OF_THOUGHT, NINE_NODES, PROMPT, evaluate_text
from strategies import given_problems

ALL = Vocabulary(task=TaskConfig.named("all"))


def write(text, trajectory="equation-value"):
    problems = parse(text, ALL.task)
    return encode_trajectories(problems, solve(problems), ALL, trajectory)


def test_the_papers_full_example_digit_for_digit():
    assert to_text(parse(PROMPT, ALL.task)) == PROMPT
    trajectories = write(PROMPT)
    assert spell(trajectories.tokens[0], ALL) == f"{PROMPT} <CoT> {CHAIN_OF_THOUGHT} <end>"
    steps = trajectories.tokens[0, trajectories.prompt_lengths[0] :]
    assert {f"x{name}": value for name, value in read_values(steps, ALL).items()} == evaluate_text(PROMPT, 23)


@pytest.mark.parametrize(
    ("trajectory", "step"),
    [
        ("value", "x101 = 15"),
        ("equation-value", "x101 = x23 * x91 = 15"),
        ("equation-operands-value", "x101 = x23 * x91 = 22 * 8 = 15"),
    ],
)
def test_the_three_formats(trajectory, step):
    steps = spell(write(NINE_NODES, trajectory).tokens[0], ALL).partition(" <CoT> ")[2].split(" ; ")
    assert steps[7] == step
    assert steps[0] == "x7 = 20"
    assert len(steps) == 9


@given_problems()
def test_every_format_gives_back_the_values(task, problems):
    vocabulary = Vocabulary(task=task)
    solution = solve(problems)
    for trajectory in FORMATS:
        written = encode_trajectories(problems, solution, vocabulary, trajectory)
        assert same_structure(written.tokens, written.tokens, vocabulary).all()
        for row, size in enumerate(problems.sizes):
            start, stop = written.prompt_lengths[row], written.lengths[row]
            assert written.tokens[row, start - 1] == vocabulary.cot
            assert written.tokens[row, stop - 1] == vocabulary.end
            assert (written.tokens[row, stop:] == vocabulary.pad).all()
            expected = dict(zip(problems.names[row, :size], solution.values[row, :size], strict=True))
            assert read_values(written.tokens[row, start:], vocabulary) == expected


def flat(words: str) -> np.ndarray:
    symbols = ALL.flat_symbols()
    return np.array([symbols.index(word) for word in words.split()], np.int64)


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("x7 = 20 ; x7 = 3 <end> x7 = 5", {7: 3}),
        ("x7 = 20 ; = 3 ; x4 ; ; x5 = x7 ; 3 = 4 ; x9 = x7 + = 2", {7: 20, 9: 2}),
        ("x7 20 ; x8 = 1 2", {}),
        ("", {}),
        ("<end>", {}),
    ],
)
def test_malformed_steps_do_not_count_and_the_last_value_wins(words, values):
    assert read_values(flat(words), ALL) == values


def test_structure_ignores_numbers_and_nothing_else():
    reference = flat("x7 = 20 ; x9 = x7 + x7 = 17 <end>")[None]
    same = flat("x7 = 3 ; x9 = x7 + x7 = 0 <end> x1")[None]
    other = flat("x7 = 3 ; x9 = x7 + x8 = 17 <end>")[None]
    longer = flat("x7 = 20 ; x9 = x7 + x7 = 17 ; x7 = 1 <end>")[None]
    assert same_structure(same, reference, ALL).all()
    assert not same_structure(other, reference, ALL).any()
    assert not same_structure(longer, reference, ALL).any()
