import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentloop.config import TaskConfig
from latentloop.task.oracle import solve
from latentloop.task.text import ProblemError, parse, to_text
from strategies import given_problems

ALL = TaskConfig.named("all")


@given_problems()
def test_parse_and_print_round_trip(task, problems):
    for row in range(len(problems)):
        again = parse(to_text(problems, row), task)
        assert again.fingerprints() == problems[row : row + 1].fingerprints()


@given_problems(count=1, shuffle=st.randoms(use_true_random=False))
def test_order_spelling_and_spacing_do_not_matter(task, problems, shuffle: random.Random):
    equations = to_text(problems).split(" ; ")
    shuffle.shuffle(equations)
    joined = equations[0]
    for equation in equations[1:]:
        joined += shuffle.choice([";", "\n", " ; # a remark\n", "\r\n;;"]) + equation
    joined = joined.replace(" = ", shuffle.choice(["=", "->", "  =\t"])).replace("*", shuffle.choice(["*", "×"]))
    again = parse(joined, task)
    assert problems.by_variable(0, solve(problems).values[0]) == again.by_variable(0, solve(again).values[0])
    assert sorted(to_text(problems).split(" ; ")) == sorted(to_text(again).split(" ; "))


def test_an_operand_may_repeat():
    assert solve(parse("3 = x0 ; x0 * x0 = x1", ALL)).values.tolist() == [[3, 9]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the problem is empty"),
        (" ;\n# only a remark\n", "the problem is empty"),
        ("1 = x1 ; x2 = x3", r"equation 2 \('x2 = x3'\): x2 is not defined"),
        ("1 = x1 ; 2 = x1", r"equation 2 \('2 = x1'\): x1 is defined twice, first by equation 1"),
        ("1 = x0 ; x1 + x0 = x2 ; x2 = x3 ; x3 = x1", "form a cycle: x2 -> x3 -> x1 -> x2"),
        ("x1 = x1", r"equation 1 \('x1 = x1'\): the equations form a cycle: x1 -> x1"),
        ("1 = x1 ; x1 / x1 = x2", r"equation 2 .*unknown operator '/': use one of \+ - \*"),
        ("1 = x1 ; x1 ** x1 = x2", r"unknown operator '\*\*'"),
        ("1 = x1 ; x1 x1 = x2", "an operator is missing before 'x1'"),
        ("23 = x1", r"equation 1 \('23 = x1'\): the value must be 0 to 22, got 23"),
        ("-1 = x1", "the value must be 0 to 22, got -1"),
        ("9999999999999999999999999 = x1", "the value must be 0 to 22, got 99999"),
        ("1 = x1 ; x1 + x1 + x1 + x1 = x2", "at most 3 operands are allowed, got 4"),
        ("1 = x128", r"the name 'x128' is not one of x0 .. x127"),
        ("1 = y", "the name 'y' is not one of"),
        ("1 = x07", "the name 'x07' is not one of"),
        ("1 = x99999999999999", "the name 'x99999999999999' is not one of"),
        ("x7 = 20", "write '20 = x7', not 'x7 = 20'"),
        ("1 = x1 ; x1 + 3 = x2", "give 3 a variable of its own"),
        ("1 = x1 ; x1 + = x2", r"nothing stands after the last '\+'"),
        ("1 = x1 ; + x1 = x2", r"the expression begins with '\+'"),
        ("1 = x1 ; (x1 + x1) * x1 = x2", "there are no brackets"),
        ("2 0 = x7", "an operator is missing before '0'"),
        ("1 = x7 ; x8 = x7 + x7", "the variable stands on the right"),
        ("\n".join(f"x{i} = x{(i + 1) % 100}" for i in range(100)), r"form a cycle: .*\.\.\. 90 more \.\.\."),
        ("1 = x1 ; x1 = x2 = x3", "expected one '=' or '->' between expression and variable, found 2"),
        ("hello", "found 0"),
        ("1 =", "nothing stands on the right"),
        ("= x1", "nothing stands on the left"),
        ("1 = x1 x2", "expected one variable on the right, got 'x1 x2'"),
        (" ; ".join(f"1 = x{i}" for i in range(5000)), "5000 equations, and 4096 is the limit"),
        ("#" * 300_000, "300000 characters"),
    ],
)
def test_mistakes_name_the_equation_and_say_what_is_wrong(text, message):
    task = TaskConfig.named("all", names=10_000) if len(text) > 10_000 else ALL
    with pytest.raises(ProblemError, match=message) as caught:
        parse(text, task)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(
    "text",
    [
        "1 = x1 ; x1 " + "/" * 400 + " x1 = x2",
        "1 = " + "x1 " * 200,
        "1 = x1 ; x1 + " + "3" * 400 + " = x2",
        "1 = x1 ; x1 + x1 " + "+" * 400 + " = x2",
        "\x01" * 100 + " = x1",
        "1 = x1 ; " + "\U000e0001" * 100 + " = x2",
        "1 = " + "\U000e0001" * 100,
        "1 = x1 ; " + "'\"\\" * 60 + " + x1 = x2",
    ],
)
def test_mistakes_of_any_length_fit_on_a_few_lines(text):
    with pytest.raises(ProblemError) as caught:
        parse(text, ALL)
    assert len(str(caught.value)) < 250


def test_a_tasks_own_operations_are_the_ones_allowed():
    with pytest.raises(ProblemError, match=r"unknown operator '\*': use one of \+"):
        parse("1 = x1 ; x1 * x1 = x2", TaskConfig())


@given(st.text(alphabet="x0123456789+-*×=> ;\n#y", max_size=60))
def test_no_text_breaks_the_parser(text):
    try:
        problems = parse(text, ALL)
    except ProblemError:
        return
    assert solve(problems).values.min() >= 0


def test_a_chain_as_long_as_allowed_is_no_trouble():
    task = TaskConfig(names=4096)
    text = "1 = x0\n" + "\n".join(f"x{i} = x{i + 1}" for i in reversed(range(4095)))
    assert solve(parse(text, task)).depths.max() == 4096
