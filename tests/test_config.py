import json
import subprocess
import sys

import pytest

from latentloop.config import MODULI, GraphConfig, ModelConfig, RunConfig, TaskConfig, TrainConfig
from latentloop.errors import UserError


def test_the_moduli_are_the_primes_to_97():
    assert len(MODULI) == 25
    assert MODULI[0] == 2
    assert MODULI[-1] == 97


@pytest.mark.parametrize(
    "config", [TaskConfig(modulus=31), GraphConfig(nodes=12, family="chain"), RunConfig(task=TaskConfig(modulus=5))]
)
def test_settings_survive_json(config):
    assert type(config).from_dict(json.loads(json.dumps(config.to_dict()))) == config


@pytest.mark.parametrize("name", ["deberta-T1L8H16D256", "rope-T4L2H16D256", "nope-L2H16D256", "abpe-L4H16D384"])
def test_model_names_are_read_and_printed_as_in_the_paper(name):
    assert ModelConfig.named(name).name == name
    assert ModelConfig.named(name.replace("deberta", "DeBERTa")).name == name


def test_unknown_keys_name_the_nearest():
    with pytest.raises(UserError, match=r"unknown key 'modulos' in the task.*did you mean 'modulus'"):
        RunConfig.from_dict({"task": {"modulos": 23}})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TaskConfig(modulus=22), "prime from 2 to 97, got 22"),
        (lambda: TaskConfig(modulus=101), "prime from 2 to 97, got 101"),
        (lambda: TaskConfig(names=0), "got 0"),
        (lambda: TaskConfig(operations=("/",)), "subset"),
        (lambda: ModelConfig(width=100, heads=16), "divisible by the heads"),
        (lambda: ModelConfig(dropout=1.0), "dropout"),
        (lambda: ModelConfig(partial=True), "partial needs an mlp_depth of at least 2, got 1"),
        (lambda: ModelConfig(layers=1, first_mlp=False), "first_mlp can be off only where there is a second layer"),
        (lambda: TrainConfig(steps=0), "steps must be at least 1"),
        (lambda: TrainConfig(corruption=2.0), "a share from 0 to 1"),
        (lambda: RunConfig(method="discrete", model=ModelConfig(iterations=3)), "leave them out, got 3"),
        (lambda: RunConfig(method="recurrent"), "needs a fixed number of iterations"),
        (lambda: RunConfig(train=TrainConfig(small_fan_ins=(4,))), "small_fan_ins must give graphs that can be drawn"),
        (lambda: RunConfig(train=TrainConfig(small_nodes=0)), "small_nodes and small_fan_ins must .* 1 to 4096, got 0"),
        (lambda: ModelConfig(positions="nope", layers=1, lookup=True, focus=True, pin_static=True), "raise layers"),
        (lambda: RunConfig(graph=GraphConfig(nodes=200)), "200 nodes need as many names"),
        (lambda: ModelConfig.named("deberta"), "expected one such as deberta-T1L8H16D256"),
        (lambda: TaskConfig.named("al"), "did you mean 'all'"),
        (lambda: GraphConfig(nodes=-3), "1 to 4096, got -3"),
        (lambda: GraphConfig(nodes=5000), "1 to 4096, got 5000"),
        (lambda: GraphConfig(leaves=0), "got 0"),
        (lambda: GraphConfig(nodes=8, leaves=9), "1 to 8, the number of nodes, got 9"),
        (lambda: GraphConfig(nodes=8, min_nodes=9), "got 9"),
        (lambda: GraphConfig(depth_limit=1), "at least 2"),
    ],
)
def test_impossible_settings_are_refused(make, message):
    with pytest.raises(UserError, match=message):
        make()


WRONG_TYPES = {
    "TaskConfig(operations='+-')": "of type tuple[str, ...], got '+-'",
    "TaskConfig(modulus=23.0)": "modulus in the task must be of type int, got 23.0",
    "GraphConfig.from_dict({'nodes': '32'})": "of type int, got '32'",
    "GraphConfig(nodes=True)": "of type int, got True",
    "GraphConfig(family='chains')": "family in the graph distribution must be one of its choices, got 'chains'",
    "ModelConfig(positions='robe')": "did you mean 'rope'?",
    "RunConfig(method='discreet')": "did you mean 'discrete'?",
}


def test_values_of_the_wrong_type_are_refused():
    """In a process of its own: here the shape checker would refuse them first."""
    code = (
        "from latentloop.config import *\n"
        f"for call in {list(WRONG_TYPES)!r}:\n"
        "    try:\n        eval(call)\n        print('accepted')\n"
        "    except UserError as error:\n        print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for message, expected in zip(done.stdout.splitlines(), WRONG_TYPES.values(), strict=True):
        assert expected in message
