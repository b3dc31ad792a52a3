import numpy as np
from hypothesis import strategies as st

from latentloop.config import TaskConfig
from latentloop.task.arithmetic import table
from latentloop.task.graph import EMPTY
from latentloop.task.oracle import solve, trace, update
from latentloop.task.text import parse, to_text
from paper import NINE_GENERATIONS, NINE_NODES, evaluate_text
from strategies import given_problems

ALL = TaskConfig.named("all")


@given_problems()
def test_values_agree_with_an_independent_evaluation_of_the_text(task, problems):
    values = solve(problems).values
    for row in range(len(problems)):
        assert problems.by_variable(row, values[row]) == evaluate_text(to_text(problems, row), problems.modulus)


def test_the_papers_first_example():
    problems = parse(NINE_NODES, ALL)
    solution = solve(problems)
    values = problems.by_variable(0, solution.values[0])
    assert (values["x23"], values["x91"], values["x55"], values["x101"]) == (22, 8, 15, 15)
    assert values["x30"] == (8 - 6 + 15) % 23
    depths = problems.by_variable(0, solution.depths[0])
    assert [{x for x in depths if depths[x] == d} for d in (1, 2, 3)] == NINE_GENERATIONS


def test_operations_apply_from_left_to_right():
    problems = parse("2 = x3 ; 10 = x22 ; 14 = x11 ; x3 + x22 * x11 = x26", ALL)
    assert solve(problems).values[0, -1] == 7


@given_problems()
def test_the_trace_fills_in_one_generation_an_iteration(task, problems):
    solution, states = solve(problems), trace(problems)
    assert (states[-1] == solution.values).all()
    for iteration, state in enumerate(states):
        reached = (solution.depths <= iteration) & problems.exists
        assert (state == np.where(reached, solution.values, EMPTY)).all()
    assert (update(problems, states[-1]) == states[-1]).all()


@given_problems(state_seed=st.integers(0, 2**32))
def test_any_state_heals_within_depth_steps(task, problems, state_seed):
    solution = solve(problems)
    rng = np.random.default_rng(state_seed)
    state = rng.integers(EMPTY, problems.modulus, problems.names.shape, dtype=np.int8)
    for iteration in range(int(solution.depths.max())):
        state = update(problems, state)
        right = solution.depths <= iteration + 1
        assert (state[right] == solution.values[right]).all()
    assert (state == solution.values).all()


def test_one_step_recomputes_every_node_from_its_parents_current_values():
    problems = parse("20 = x7 ; 2 = x42 ; x7 + x42 = x23 ; x23 * x7 - x42 = x1 ; x1 = x2", ALL)
    wrong = np.array([[5, 6, EMPTY, 1, 9]], np.int8)
    assert update(problems, wrong).tolist() == [[20, 2, 11, EMPTY, 1]]


def test_the_table_knows_empty_and_absent():
    results = table(23)
    assert results[0, 20, 5] == 2
    assert results[1, 3, 5] == 21
    assert results[2, 22, 22] == 1
    assert (results[:3, -1, :] == EMPTY).all()
    assert (results[:3, :, -1] == EMPTY).all()
    assert (results[-1, :-1, -1] == np.arange(23)).all()
    assert results[-1, -1, -1] == EMPTY
