from dataclasses import replace

import pytest

from latentloop.config import TaskConfig
from latentloop.errors import UserError
from latentloop.task.oracle import solve
from latentloop.task.text import parse, to_text
from latentloop.tokens.factored import decode, encode, factor_rows
from latentloop.tokens.state import encode_state, with_values
from latentloop.tokens.vocabulary import FACTORS, Vocabulary
from paper import NINE_NODES
from strategies import given_problems

ALL = Vocabulary(task=TaskConfig.named("all"))


def test_the_papers_table():
    rows = factor_rows(encode(parse("17 = x42 ; x42 = x1", ALL.task), ALL), ALL)
    assert rows[:4] == [
        ("value", "N/A", "N/A", "17"),
        ("=", "N/A", "N/A", "N/A"),
        ("variable", "x42", "N/A", "empty"),
        ("sep", "N/A", "N/A", "N/A"),
    ]
    assert factor_rows(encode(parse("1 = x0 ; x0 * x0 = x1", ALL.task), ALL), ALL)[5] == (
        "operation",
        "N/A",
        "*",
        "N/A",
    )


def test_factor_sizes_follow_the_paper():
    assert {factor: ALL.size(factor) for factor in FACTORS} == {
        "syntax": 6, "variable": 129, "operation": 4, "value": 25,
    }  # fmt: skip
    assert ALL.symbols("value")[23:] == ("N/A", "empty")
    assert ALL.symbols("value")[ALL.empty] == "empty"
    assert len(ALL.flat_symbols()) == len(ALL) == 23 + 128 + 3 + 5
    assert [ALL.flat_symbols()[i] for i in (ALL.equals, ALL.sep, ALL.pad, ALL.cot, ALL.end)] == [
        "=", ";", "<pad>", "<CoT>", "<end>",
    ]  # fmt: skip


def test_the_papers_first_example():
    tokens = encode(parse(NINE_NODES, ALL.task), ALL)
    assert decode(tokens, ALL) == NINE_NODES.replace("->", "=").replace("×", "*")


@given_problems()
def test_tokens_spell_the_text(task, problems):
    vocabulary = Vocabulary(task=task)
    tokens = encode(problems, vocabulary)
    assert tokens.lengths.tolist() == problems.lengths.tolist()
    for row in range(len(problems)):
        assert decode(tokens, vocabulary, row) == to_text(problems, row)
        length = tokens.lengths[row]
        padding = [tuple(getattr(tokens, f)[row, length:].tolist()) for f in FACTORS]
        expected = (5, task.names, len(task.operations), task.modulus)
        assert padding == [(symbol,) * (tokens.syntax.shape[1] - length) for symbol in expected]
        for node in range(problems.sizes[row]):
            place = tokens.rhs[row, node]
            assert tokens.variable[row, place] == problems.names[row, node]
            assert tokens.variable[row, place - 1] == task.names
            assert place + 1 == length or tokens.syntax[row, place + 1] == 4


def test_right_hand_sides_show_what_they_hold():
    problems = parse("20 = x7 ; 2 = x42 ; x7 + x42 = x23", ALL.task)
    filled = with_values(*encode_state(problems, ALL), solve(problems).values, ALL)
    shown = decode(replace(encode(problems, ALL), value=filled.value), ALL)
    assert shown == "20 = x7[20] ; 2 = x42[2] ; x7 + x42 = x23[22]"


@pytest.mark.parametrize(
    ("problem_task", "text", "message"),
    [
        (TaskConfig.named("all"), "1 = x0 ; x0 * x0 = x1", r"has the operations \+, the problem uses \*"),
        (TaskConfig(names=300), "1 = x200", "has the names x0 .. x127, the problem uses x200"),
        (TaskConfig(modulus=31), "1 = x0", "is for modulus 23, the problem has modulus 31"),
    ],
)
def test_problems_of_another_language_are_refused(problem_task, text, message):
    with pytest.raises(UserError, match=message):
        encode(parse(text, problem_task), Vocabulary(task=TaskConfig()))
