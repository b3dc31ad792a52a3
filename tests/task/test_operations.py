"""An operation is one row: with it, everything that deals with problems knows it, and the paper's tasks stay."""

import json
import subprocess
import sys

import numpy as np
import pytest

from latentloop.config import TASKS, TaskConfig
from latentloop.errors import UserError
from latentloop.operations import OPERATIONS, RESULTS
from latentloop.task.arithmetic import table

NEW_ROW = """
import json, sys, types
from pathlib import Path
import numpy as np
import latentloop
path = Path(latentloop.__file__).parent / "operations.py"
source = path.read_text()
assert '"*": operator.mul}' in source
row = source.replace('"*": operator.mul}', '"*": operator.mul, "max": np.maximum}')
sys.modules["latentloop.operations"] = module = types.ModuleType("latentloop.operations")
module.np = np
exec(compile(row, path, "exec"), module.__dict__)

from latentloop.config import TASKS, GraphConfig, TaskConfig
from latentloop.task.graph import sample
from latentloop.task.oracle import solve, trace
from latentloop.task.text import parse, to_text
from latentloop.tokens.factored import decode, encode
from latentloop.tokens.vocabulary import Vocabulary

task = TaskConfig(operations=("+", "max"))
problems = sample(task, GraphConfig(nodes=20), 40, np.random.default_rng(0))
texts = [to_text(problems, row) for row in range(40)]
again = [parse(text, task) for text in texts]
values = solve(problems).values
assert (trace(problems)[-1] == values).all()
assert all(one.fingerprints() == problems[row : row + 1].fingerprints() for row, one in enumerate(again))
vocabulary = Vocabulary(task=task)
tokens = encode(problems, vocabulary)
assert [decode(tokens, vocabulary, row) for row in range(40)] == texts
assert vocabulary.symbols("operation")[:2] == ("+", "max")
print(json.dumps({"tasks": TASKS, "texts": texts, "values": [problems.by_variable(row, values[row]) for row in range(40)]}))
"""


def test_adding_an_operation_is_one_row():
    """In a process whose table has one row more."""
    done = subprocess.run([sys.executable, "-c", NEW_ROW], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {name: tuple(symbols) for name, symbols in found["tasks"].items()} == {"add": ("+",), "all": ("+", "-", "*")}
    used = 0
    for text, values in zip(found["texts"], found["values"], strict=True):
        for equation in text.split(" ; "):
            expression, variable = equation.split(" = ")
            words = expression.split()
            numbers = [values[word] if word.startswith("x") else int(word) for word in words[::2]]
            result = numbers[0]
            for word, number in zip(words[1::2], numbers[1:], strict=True):
                used += word == "max"
                result = max(result, number) if word == "max" else (result + number) % 23
            assert values[variable] == result
    assert used > 100


def test_the_papers_tasks_are_frozen():
    assert TASKS == {"add": ("+",), "all": ("+", "-", "*")}
    assert TaskConfig.named("all").operations == ("+", "-", "*")


def test_results_are_those_of_the_table():
    entries = table(7)
    for code, operation in enumerate(OPERATIONS):
        for left in range(7):
            for right in range(7):
                assert entries[code, left, right] == RESULTS[operation](left, right) % 7
    assert (entries[-1, :-1] == np.arange(7)[:, None]).all()  # no operation: the left value


@pytest.mark.parametrize("operations", [("max",), ("-", "+"), ("+", "+"), ()])
def test_operations_without_a_row_or_out_of_order_are_refused(operations):
    with pytest.raises(UserError, match="operations must be a subset"):
        TaskConfig(operations=operations)
