"""The table of halting rules: what each says of a roll-out, and a new rule as one new row."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from clockwork import clockwork
from latentloop.config import TaskConfig
from latentloop.evaluate.generalization import evaluate_sizes
from latentloop.halting import CHOICES, RULES, Limits, Rollout, Rule, halted


def rollout(iterations, **ends):
    states = np.arange(2 * (iterations + 1), dtype=np.int8).reshape(-1, 2)
    return Rollout(states=states, **ends)


SETTLED = rollout(5, fixpoint=5)
CYCLING = replace(rollout(9, cycle=(3, 6)), states=np.arange(9, dtype=np.int8)[[*range(9), 3], None])
RESTLESS = rollout(12)


@pytest.mark.parametrize(
    ("rule", "of", "limits", "expected"),
    [
        ("fixpoint", SETTLED, {"cap": 12}, ("fixpoint", 5)),
        ("fixpoint", SETTLED, {"cap": 5}, ("fixpoint", 5)),
        ("fixpoint", SETTLED, {"cap": 4}, ("cap", 4)),
        ("fixpoint", CYCLING, {"cap": 12}, ("cycle", 9)),
        ("fixpoint", CYCLING, {"cap": 9}, ("cycle", 9)),
        ("fixpoint", CYCLING, {"cap": 8}, ("cap", 8)),
        ("fixpoint", RESTLESS, {"cap": 12}, ("cap", 12)),
        ("depth", SETTLED, {"cap": 12, "depth": 4}, ("depth", 4)),
        ("depth", SETTLED, {"cap": 2, "depth": 4}, ("depth", 4)),
        ("depth", SETTLED, {"cap": 12}, None),
        ("paper", SETTLED, {"cap": 12, "deepest": 7}, ("paper", 8)),
        ("paper", SETTLED, {"cap": 12}, None),
        ("fixed", SETTLED, {"cap": 12, "fixed": 3}, ("fixed", 3)),
        ("fixed", SETTLED, {"cap": 12}, None),
        ("cycle", CYCLING, {"cap": 12}, ("cycle", 9)),
        ("cycle", SETTLED, {"cap": 12}, None),
        ("cap", RESTLESS, {"cap": 12}, ("cap", 12)),
    ],
)
def test_what_each_rule_says(rule, of, limits, expected):
    assert halted(of, rule, Limits(**limits)) == expected


def test_every_rule_is_tested_and_guards_cannot_be_chosen():
    assert set(RULES) == {"fixpoint", "depth", "paper", "fixed", "cycle", "cap"}
    assert CHOICES == ("fixpoint", "depth", "paper", "fixed")
    assert [name for name, rule in RULES.items() if rule.guard] == ["cycle", "cap"]
    assert all(rule.summary for rule in RULES.values())


def test_states_past_the_end_are_known_where_they_repeat():
    assert SETTLED.at(99).tolist() == SETTLED.states[5].tolist()
    for iteration in range(40):
        inside = iteration if iteration < 9 else 3 + (iteration - 3) % 6
        assert CYCLING.at(iteration).tolist() == CYCLING.states[inside].tolist()


ROW = """    "patient": Rule(
        summary="at twice the depth", stop=lambda rollout, limits: None if limits.depth is None else 2 * limits.depth
    ),
"""
PATIENT = f"""
import sys, types
from pathlib import Path
import latentloop
path = Path(latentloop.__file__).parent / "halting.py"
source = path.read_text()
sys.modules["latentloop.halting"] = module = types.ModuleType("latentloop.halting")
exec(compile(source.replace('    "cycle": Rule(', {ROW!r} + '    "cycle": Rule('), path, "exec"), module.__dict__)

sys.path.insert(0, {str(Path(__file__).parent)!r})
from clockwork import clockwork
from latentloop.config import TaskConfig
from latentloop.evaluate.generalization import evaluate_size

trained = clockwork(TaskConfig(modulus=3))
counts = evaluate_size(trained, 10, 8, halt="patient")
assert counts.halts == {{"patient": 8}}, counts.halts
assert counts.solved == 8
assert counts.iterations_by_depth == 2 * 8
assert evaluate_size(trained, 10, 8).figures()["solved_patient"] == 1.0  # and is reported beside the others
from latentloop import cli
try:
    cli.run(["evaluate", "--help"])
except SystemExit:
    pass
"""


def test_a_new_rule_is_one_row():
    """In a process whose table has one row more: an evaluation stops by it, and the command line offers it."""
    done = subprocess.run([sys.executable, "-c", PATIENT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "patient" in done.stdout


def test_a_guarded_rule_is_stopped_by_cycles_and_caps(monkeypatch):
    monkeypatch.setitem(RULES, "never", Rule(summary="never", stop=lambda rollout, limits: None, guarded=True))
    assert halted(SETTLED, "never", Limits(cap=7)) == ("cap", 7)
    assert halted(CYCLING, "never", Limits(cap=50)) == ("cycle", 9)
    monkeypatch.setitem(RULES, "unguarded", Rule(summary="never", stop=lambda rollout, limits: None))
    assert halted(CYCLING, "unguarded", Limits(cap=50)) is None


def test_rules_of_an_evaluation_are_those_of_the_table():
    document = evaluate_sizes(clockwork(TaskConfig(modulus=3)), [8], 3)
    reported = {key.removeprefix("solved_") for key in document["rows"][0] if key.startswith("solved_")}
    assert reported >= {"fixpoint", "depth", "paper", "2x", "4x"}
    assert "fixed" not in reported  # no number of iterations was asked for
