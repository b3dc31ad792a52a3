"""Certificates and stress tests, of a clockwork model that is right, and of one that is not."""

import json

import numpy as np
import pytest
import torch

from clockwork import clockwork
from latentloop.config import GraphConfig, TaskConfig
from latentloop.errors import UserError
from latentloop.evaluate.certify import certify, check_probes, independent_equations, patterns, worst_lookups
from latentloop.evaluate.stress import run_scenario, scenarios, stress
from latentloop.methods import METHODS
from latentloop.presets import preset
from latentloop.report.card import model_card
from latentloop.report.console import certificate_table, stress_table, verdict
from latentloop.task.graph import ABSENT, sample
from latentloop.task.splits import sampled_generator


def test_patterns_cover_everything_a_task_allows():
    add, everything = patterns(TaskConfig()), patterns(TaskConfig.named("all"))
    assert [probe.name for probe in add] == ["a", "a + b", "a + b + c"]
    assert [len(probe.values) for probe in add] == [23, 23**2, 23**3]
    assert len(everything) == 1 + 3 + 9
    assert sum(len(probe.values) for probe in everything) == 23 + 3 * 23**2 + 9 * 23**3
    assert len({tuple(row) for row in everything[-1].values.tolist()}) == 23**3


def test_probed_equations_share_no_parent():
    problems = sample(TaskConfig(), GraphConfig(nodes=64), 20, sampled_generator(0))
    for fan_in in (1, 2, 3):
        where = independent_equations(problems, fan_in)
        assert len(where) >= 40
        for row in range(20):
            nodes = where[where[:, 0] == row, 1]
            parents = problems.parents[row, nodes]
            parents = parents[parents != ABSENT]
            assert len(parents) == fan_in * len(nodes) == len(set(parents))


def small(twist=None, task="add"):
    """A clockwork of modulus 3, so that everything can be probed in a moment."""
    trained = clockwork(TaskConfig.named(task, modulus=3))
    if twist is not None:
        trained.model.twist = twist
    return trained


def test_a_right_model_is_certified():
    found = certify(small(), 10)
    assert found["entries"] == 3 + 9 + 27
    assert found["wrong"] == []
    assert {pattern["smallest_margin"] for pattern in found["patterns"].values()} == {1.0}
    looked = found["lookup"]
    assert looked["head"] == 1
    for name in ("smallest", "median"):
        assert looked[f"{name}_margin"] == pytest.approx(np.log(0.8 / 0.2), rel=1e-5)
    for name in ("smallest", "mean"):
        assert looked[f"{name}_attention"] == pytest.approx(0.8)


def test_every_operation_is_probed():
    trained = small(task="all")
    assert certify(trained, 10)["wrong"] == []
    trained.model.operations = ("+", "+", "*")  # takes - for +
    found = certify(trained, 10)
    assert found["entries"] == 3 + 3 * 9 + 9 * 27
    combine = {"+": np.add, "-": np.subtract, "*": np.multiply}
    expected = set()
    for probe in patterns(trained.run.task):
        for values in probe.values.tolist():
            right = said = values[0]
            for operation, value in zip(probe.operations, values[1:], strict=True):
                right = combine[operation](right, value) % 3
                said = combine["+" if operation == "-" else operation](said, value) % 3
            if right != said:
                expected.add((probe.name, *values, str(said)))
    assert {(w["pattern"], *w["operands"], w["said"]) for w in found["wrong"]} == expected
    assert len(expected) > 50


def test_scores_that_are_no_numbers_are_wrong():
    trained = small()
    trained.model.read = lambda x: {"value": torch.full((*x.shape[:2], trained.vocabulary.size("value")), torch.nan)}
    found = certify(trained, 10)
    assert len(found["wrong"]) == found["entries"] == sum(size["wrong"] for size in found["patterns"].values())


def test_every_wrong_entry_is_listed():
    def slip(values, before, kinds):
        return torch.where((values == 2) & (kinds == 1), 0, values)  # never says 2

    found = certify(small(slip), 10)
    wrong = {(entry["pattern"], tuple(entry["operands"])) for entry in found["wrong"]}
    sums = [("a" + " + b" * (k > 1) + " + c" * (k > 2), v) for k in (1, 2, 3) for v in np.ndindex(*[3] * k)]
    assert wrong == {(name, values) for name, values in sums if sum(values) % 3 == 2}
    assert all(entry["said"] == "0" for entry in found["wrong"])
    said = verdict({"sizes": [found]}, most=2).splitlines()
    assert said[0] == f"10 nodes: {len(wrong)} of 39 entries wrong"
    assert said[1] == "  a of 2: says 0"
    assert said[3] == f"  and {len(wrong) - 2} more"


def test_stress_of_a_right_model():
    trained = small()
    rows = list(stress(trained, nodes=12, instances=3))
    assert len(rows) == len(scenarios(trained, 12, 3)) == 1 + 3 + 10
    assert all(row["solved"] == row["solved_4x"] == 1.0 for row in rows)
    assert all(row["false_halts"] == row["cycles"] == row["caps"] == 0 for row in rows)
    by_name = {row["scenario"]: row for row in rows}
    assert by_name["family chain"]["iterations"] == 13
    assert by_name["random values"]["iterations_by_depth"] <= 1.8


def test_larger_graphs_come_where_names_allow():
    wide = clockwork(TaskConfig(names=600))
    found = scenarios(wide, 128, 64)
    assert {s.nodes for s in found} == {128, 256, 512}
    assert {(s.nodes, s.instances) for s in found if s.family == "random"} == {(128, 64), (256, 32), (512, 16)}
    assert {(s.nodes, s.instances) for s in found if s.family == "chain"} == {(128, 64), (256, 4), (512, 2)}
    assert {s.nodes for s in scenarios(wide, 400, 1)} == {400, 512}


def test_states_flipped_in_the_middle_are_what_rollouts_start_from():
    trained = small(lambda values, before, kinds: torch.where(before < 3, before, values))  # never changes its mind
    flips = [s for s in scenarios(trained, 12, 20) if s.start == "flipped"]
    solved = [run_scenario(trained, scenario).solved for scenario in flips]
    assert solved[0] > solved[1] > solved[2]


def test_other_problems_can_be_asked_for():
    trained = small(lambda values, before, kinds: torch.where(before < 3, before, values))
    (some, *_), (others, *_) = (scenarios(trained, 12, 20, skip) for skip in (0, 20))
    first, second = (run_scenario(trained, scenario).figures() for scenario in (some, others))
    assert first != second
    assert all(scenario.skip == 20 for scenario in scenarios(trained, 12, 20, 20))


def test_only_discrete_states_can_be_trusted_so():
    trained = small()
    trained.method = METHODS["recurrent"]
    with pytest.raises(UserError, match="a certificate needs a size"):
        check_probes(small(), [])
    with pytest.raises(UserError, match="only methods with a discrete state"):
        certify(trained, 8)
    with pytest.raises(UserError, match="only methods with a discrete state"):
        list(stress(trained, 8, 1))


def test_results_become_tables_and_cards():
    from latentloop.evaluate.generalization import evaluate_sizes

    trained = small()
    machine = {"cores": 2, "processor": "abacus"}
    metrics = {"step": 10, "seconds": 60.0, "provenance": {"command": "latentloop train", "machine": machine}}
    certificate = {
        "sizes": [certify(trained, 10)],
        "worst_lookups": worst_lookups(trained),
        "model": trained.describe(),
    }
    trouble = {"rows": list(stress(trained, 10, 2)), "model": trained.describe()}
    assert certificate_table(certificate).row_count == 4
    assert stress_table(trouble).row_count == 14
    evaluation = json.loads(json.dumps(evaluate_sizes(trained, [8, 10], 3)))
    card = model_card("clockwork", metrics, evaluation, certificate, trouble)
    assert "| 8 | 3 | 100.00 |" in card
    assert "| 10 | 39 | 0 | 1.00 | 1.39 |" in card
    assert "| family chain | 10 | 2 | 100.00 | 100.00 | 1.10 | 0 | 0 |" in card
    assert "What is built in" not in card
    evaluation["model"]["config"] = preset("tiny-stable").to_dict()
    card = model_card("clockwork", metrics, evaluation, certificate, trouble)
    for item in (
        "*Intermediate values.* In",
        "*The algorithm.* Targets",
        "the last one a window of 8 tokens, with a bias",
    ):
        assert item in card
