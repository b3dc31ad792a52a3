"""The one JSON form of a run: what is written is valid, and what is not is refused with its place."""

import copy
import json
import re
from pathlib import Path

import pytest

from latentloop.errors import UserError
from latentloop.evaluate.pretrained import LatentLoop
from latentloop.explorer.runs import check_run, record_run, run_schema
from latentloop.presets import preset
from latentloop.task.oracle import solve
from latentloop.task.text import parse
from untrained import untrained

PROBLEM = "6 = x8 ; 12 = x7 ; 18 = x5 ; x5 + x8 = x2 ; x7 + x8 - x5 = x9 ; x7 * x2 = x1"


@pytest.fixture(scope="module")
def document():
    trained = LatentLoop.from_pretrained("laptop-all")
    problems = parse(PROBLEM, trained.run.task)
    answer = trained.solve_problems(problems)[0]
    return json.loads(json.dumps(record_run(trained, "laptop-all", problems, solve(problems), answer)))


def test_a_recorded_run_is_valid_and_says_what_happened(document):
    assert check_run(document) is document
    assert document["halt"] == {"reason": "fixpoint", "at": 4}
    assert document["states"][0] == [None] * 6
    assert document["states"][-1] == document["truth"]
    assert len(document["margins"]) == len(document["states"]) - 1
    tokens, nodes = document["tokens"], document["nodes"]
    assert " ".join(tokens) == PROBLEM
    (head,) = document["attention"]
    for node in nodes:
        assert tokens[node["position"]] == node["name"]
        for place, parent in zip(node["operands"], node["parents"], strict=True):
            assert tokens[place] == nodes[parent]["name"]
            (found, weight), _ = head["top"][-1][head["queries"].index(place)]
            assert found == nodes[parent]["position"]
            assert weight > 0.9


BROKEN = {
    "run lacks halt": lambda run: run.pop("halt"),
    "run.format must be 'latentloop-run', got 'other'": lambda run: run.update(format="other"),
    "run.states[1] must have 6 items, one for each node, got 5": lambda run: run["states"][1].pop(),
    "run.states[2] has 23, and values are below 23": lambda run: run["states"][2].__setitem__(0, 23),
    "run.states[0][0] must be of type integer or null, got True": lambda run: run["states"][0].__setitem__(0, True),
    "run.nodes[1] has the parent 4, which does not come before it": lambda run: run["nodes"][1].update(parents=[4]),
    "run.truth must have 6 items, one for each node, got 5": lambda run: run["truth"].pop(),
    "run.modulus must be at most 97, got 100": lambda run: run.update(modulus=100),
    "the length of run.nodes must be at least 1, got 0": lambda run: run.update(nodes=[]),
    "run.halt.reason must be one of": lambda run: run["halt"].update(reason="bored"),
    "the length of run.model.name must be at most 200, got 500": lambda run: run["model"].update(name="x" * 500),
}


@pytest.mark.parametrize("message", BROKEN)
def test_what_is_no_run_is_refused(document, message):
    broken = copy.deepcopy(document)
    BROKEN[message](broken)
    with pytest.raises(UserError) as error:
        check_run(broken)
    assert str(error.value).startswith(message)


def test_the_run_in_the_docs_is_one():
    page = (Path(__file__).parents[2] / "docs" / "explore.md").read_text()
    (written,) = re.findall(r"```json\n(.*?)```", page, re.S)
    check_run(json.loads(written))
    for name in re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", page, re.M):
        assert set(re.findall(r"`(\w+)`", name)) <= set(run_schema()["properties"])


def test_a_recorded_chain_of_thought_has_the_graph_of_its_problem():
    trained = LatentLoop(untrained(preset("tiny-cot")))
    problems = parse("3 = x1 ; 4 = x2 ; x1 + x2 = x3", trained.run.task)
    answer = trained.solve_problems(problems)[0]
    document = check_run(record_run(trained, "tiny-cot", problems, solve(problems), answer))
    assert [node["parents"] for node in document["nodes"]] == [[], [], [0, 1]]
    assert len(document["states"]) == len(document["written"]) + 1


@pytest.mark.parametrize("document", [None, [], "run", 3, {}])
def test_other_documents_are_refused(document):
    with pytest.raises(UserError, match=r"^run (must be of type object|lacks)"):
        check_run(document)


def test_python_and_the_page_refuse_the_same(program, document):
    attempts = [document]
    for spoil in BROKEN.values():
        attempts.append(copy.deepcopy(document))
        spoil(attempts[-1])
    refused = program.evaluate(
        """([attempts, schema]) => attempts.map((one) => {
          try { checkRun(one, schema); return false; } catch { return true; }
        })""",
        [attempts, run_schema()],
    )
    assert refused == [False] + [True] * len(BROKEN)
