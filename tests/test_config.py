import pytest

from latentloop.config import MODULI, GraphConfig, TaskConfig
from latentloop.errors import UserError


def test_the_moduli_are_the_primes_to_97():
    assert len(MODULI) == 25
    assert MODULI[0] == 2
    assert MODULI[-1] == 97


@pytest.mark.parametrize("config", [TaskConfig(modulus=31), GraphConfig(nodes=12, family="chain")])
def test_settings_survive_json(config):
    assert type(config).from_dict(config.to_dict()) == config


def test_unknown_keys_name_the_nearest():
    with pytest.raises(UserError, match=r"unknown key 'modulos' in the task.*did you mean 'modulus'"):
        TaskConfig.from_dict({"modulos": 23})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TaskConfig(modulus=22), "prime from 2 to 97, got 22"),
        (lambda: TaskConfig(modulus=101), "prime from 2 to 97, got 101"),
        (lambda: TaskConfig(names=0), "got 0"),
        (lambda: TaskConfig(operations=("/",)), "subset"),
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
