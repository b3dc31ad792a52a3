import json
import subprocess
import sys

import pytest

from latentloop.commands.training import base_run
from latentloop.config import GraphConfig, ModelConfig, RunConfig, TaskConfig, TrainConfig
from latentloop.config.positions import LocalConfig, NoneConfig, PositionsConfig, RotaryConfig
from latentloop.config.task import MODULI
from latentloop.errors import UserError
from latentloop.methods import METHODS, Continuous, Corrected, Discrete, MethodConfig, Recurrent, Stable
from latentloop.presets import PRESETS, preset
from latentloop.schema import changed


def test_the_moduli_are_the_primes_to_97():
    assert len(MODULI) == 25
    assert MODULI[0] == 2
    assert MODULI[-1] == 97


@pytest.mark.parametrize(
    "config",
    [
        TaskConfig(modulus=31),
        GraphConfig(nodes=12, family="chain"),
        RunConfig(task=TaskConfig(modulus=5)),
        RunConfig(method=Stable(skew=0.2), model=ModelConfig(positions=LocalConfig(window=9))),
        *(kind() for kind in MethodConfig.kinds.values()),
        *(kind() for kind in PositionsConfig.kinds.values()),
        *PRESETS.values(),
    ],
)
def test_settings_survive_json(config):
    assert type(config).from_dict(json.loads(json.dumps(config.to_dict()))) == config


@pytest.mark.parametrize("name", ["deberta-L8H16D256", "rope-L2H16D256", "nope-L2H16D256", "abpe-L4H16D384"])
def test_model_names_are_read_and_printed_as_in_the_paper(name):
    assert ModelConfig.named(name).name == name
    assert ModelConfig.named(name.replace("deberta", "DeBERTa")).name == name
    assert ModelConfig.named(name.replace("-L", "-T4L")).name == name  # T is the method's
    run = RunConfig(method=Recurrent(iterations=4), model=ModelConfig.named(name))
    assert run.name == name.replace("-L", "-T4L")


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
        (lambda: ModelConfig(width=100, heads=16), "divisible by heads"),
        (lambda: ModelConfig(width=48, heads=16, positions=RotaryConfig()), "each part even for RoPE"),
        (lambda: ModelConfig(dropout=1.0), "dropout"),
        (lambda: ModelConfig(layers=1, first_mlp=False), "first_mlp sets the first of several layers apart"),
        (lambda: TrainConfig(steps=0), "steps must be at least 1"),
        (lambda: Corrected(corruption=2.0), "corruption must be at least 0 and at most 1, got 2"),
        (lambda: Corrected(corruption=0.0), "is the method discrete: choose that"),
        (lambda: LocalConfig(window=0), "window must be at least 1, got 0"),
        (lambda: Recurrent(iterations=0), "iterations must be at least 1, got 0"),
        (lambda: Stable(true_states=1.1), "true_states must be at least 0 and at most 1, got 1.1"),
        (lambda: RunConfig(train=TrainConfig(curriculum=("8/4:0.5",))), "a stage of a curriculum is NODES"),
        (lambda: RunConfig(train=TrainConfig(curriculum=("8x0:0.5",))), "at least one batch a step"),
        (lambda: RunConfig(train=TrainConfig(curriculum=("8@4:0.5",))), "with 8 nodes has 8 to 128 names, got 4"),
        (lambda: RunConfig(train=TrainConfig(curriculum=("8@999:0.5",))), "with 8 nodes has 8 to 128 names, got 999"),
        (lambda: RunConfig(train=TrainConfig(curriculum=("8,9:0.5",))), "the number of leaves must be 1 to 8"),
        (lambda: RunConfig(train=TrainConfig(curriculum=("0:0.5",))), "the curriculum must .* 1 to 4096, got 0"),
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


def discrete(**parts):
    return {"method": {"name": "discrete"}} | parts


MEANINGLESS = [
    # As stored settings; on the command line of a preset, or None where an option cannot say it; what the error names.
    ({"method": {"name": "discrete", "skew": 0.1}}, ["tiny-discrete", "--skew", "0.1"], "skew"),
    ({"method": {"name": "discrete", "states": 3}}, ["tiny-discrete", "--states", "3"], "states"),
    ({"method": {"name": "discrete", "corruption": 0.1}}, ["tiny-discrete", "--corruption", "0.1"], "corruption"),
    ({"method": {"name": "discrete", "iterations": 3}}, ["tiny-discrete", "--iterations", "3"], "iterations"),
    ({"method": {"name": "discrete", "trajectory": "value"}}, ["tiny-discrete", "--trajectory", "value"], "trajectory"),
    ({"method": {"name": "feedforward", "iterations": 3}}, ["tiny-feedforward", "--iterations", "3"], "iterations"),
    ({"method": {"name": "recurrent", "deeper": "ignored"}}, ["tiny-recurrent", "--deeper", "ignored"], "deeper"),
    (
        {"method": {"name": "recurrent", "lookup_weight": 1.0}},
        ["tiny-recurrent", "--lookup-weight", "1"],
        "lookup.weight",
    ),
    ({"method": {"name": "continuous", "pin_static": True}}, ["tiny-continuous", "--pin-static"], "pin.static"),
    ({"method": {"name": "stable", "pin_static": False}}, ["tiny-stable", "--no-pin-static"], "pin.static"),
    ({"method": {"name": "stable", "deeper": "empty"}}, ["tiny-stable", "--deeper", "empty"], "deeper"),
    (
        discrete(model={"positions": {"name": "nope", "rope_base": 500.0}}),
        ["tiny-discrete", "--positions", "nope", "--rope-base", "500"],
        "rope.base",
    ),
    (
        discrete(model={"positions": {"name": "rope", "window": 8}}),
        ["tiny-discrete", "--positions", "rope", "--window", "8"],
        "window",
    ),
    (
        discrete(model={"positions": {"name": "deberta", "max_positions": 8}}),
        ["tiny-discrete", "--max-positions", "8"],
        "max.positions",
    ),
    (
        discrete(model={"positions": {"name": "local", "relative_width": 8}}),
        ["tiny-stable", "--relative-width", "8"],
        "relative.width",
    ),
    (discrete(model={"hard": True}), None, "hard"),
    (discrete(model={"focus": True}), None, "focus"),
]


@pytest.mark.parametrize(("stored", "words", "named"), MEANINGLESS)
def test_settings_of_another_kind_are_refused(stored, words, named):
    """They do not exist there: neither in a file nor on the command line."""
    with pytest.raises(UserError, match=f"unknown key '{named}' in the"):
        RunConfig.from_dict(stored)
    if words is not None:
        with pytest.raises(UserError, match=f"--(no-)?{named} is a setting of .* and this run's"):
            base_run(["train", "--preset", *words])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"final_lr": 0.1}, "a constant schedule has no final_lr"),
        ({"muon_lr": 0.1}, "muon_lr goes with the optimizer muon"),
        ({"optimizer": "muon"}, "muon_lr goes with the optimizer muon"),
        ({"problems": 100, "curriculum": ("8:0.5",)}, "a fixed training set has no curriculum"),
        ({"curriculum": ("8:0.5", "9:0.6")}, "at most 1 together"),
        ({"layers": 1, "first_heads": 8}, "first_heads sets the first of several layers apart"),
        ({"first_heads": 16}, "first_heads is for a first layer with another number of heads"),
        ({"partial_weight": 1.0}, "partial_weight needs an mlp_depth of at least 2, got 1"),
        ({"lookup_weight": 1.0, "pin_static": True, "layers": 1}, "lookup_weight reads at left-hand sides"),
        ({"lookup_noise": -1.0}, "lookup_noise must be at least 0"),
    ],
)
def test_combinations_that_mean_nothing_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        changed(RunConfig(), **settings)


def test_a_kind_of_settings_that_is_unknown_names_the_nearest():
    with pytest.raises(UserError, match=r"unknown positional encoding 'robe'.*did you mean 'rope'"):
        RunConfig.from_dict({"model": {"positions": {"name": "robe"}}})
    with pytest.raises(UserError, match=r"unknown method 'discreet'.*did you mean 'discrete'"):
        RunConfig.from_dict({"method": {"name": "discreet"}})
    for words in (["--method", "discreet"], ["--method=discreet"], ["--positions", "robe"]):
        with pytest.raises(UserError, match="did you mean"):
            base_run(["train", "--preset", "tiny-discrete", *words])


def test_a_command_line_may_change_the_kind_and_keeps_what_both_have():
    run = base_run(["train", "--preset", "tiny-discrete", "--method", "stable", "--positions", "local"])
    assert isinstance(run.method, Stable)
    assert run.model.positions == LocalConfig()  # DeBERTa's window is something else
    assert run.train == preset("tiny-discrete").train
    run = base_run(["train", "--preset", "tiny-corrected", "--method", "continuous", "--method=discrete"])
    assert run.method == Discrete()  # the last one counts
    assert base_run(["train", "--preset", "tiny-cot"]) == preset("tiny-cot")
    weighted = Continuous(deeper="ignored", lookup_weight=0.5)
    assert weighted.become("corrected") == Corrected(deeper="ignored", lookup_weight=0.5)
    assert LocalConfig(window=9).become("nope") == NoneConfig()
    assert LocalConfig(window=9).become("local") == LocalConfig(window=9)


def test_every_method_and_encoding_can_be_chosen_on_the_command_line():
    for name in METHODS:
        for positions in PositionsConfig.kinds:
            words = ["train", "--preset", "tiny-discrete", "--method", name, "--positions", positions]
            run = base_run(words)
            assert (run.method.name, run.model.positions.name) == (name, positions)


def test_settings_are_replaced_wherever_they_are():
    run = changed(preset("tiny-stable"), lr=0.5, skew=0.1, window=7, nodes=9, modulus=5)
    found = (run.train.lr, run.method.skew, run.model.positions.window, run.graph.nodes, run.task.modulus)
    assert found == (0.5, 0.1, 7, 9, 5)
    with pytest.raises(UserError, match="unknown setting 'skew' in the run"):
        changed(preset("tiny-discrete"), skew=0.1)


WRONG_TYPES = {
    "TaskConfig(operations='+-')": "of type tuple[str, ...], got '+-'",
    "TaskConfig(modulus=23.0)": "modulus in the task must be of type int, got 23.0",
    "GraphConfig.from_dict({'nodes': '32'})": "of type int, got '32'",
    "GraphConfig(nodes=True)": "of type int, got True",
    "GraphConfig(family='chains')": "family in the graph distribution must be one of its choices, got 'chains'",
    "ModelConfig(positions='rope')": "positions in the model must be of type PositionsConfig, got 'rope'",
    "RunConfig(method='discrete')": "method in the run must be of type MethodConfig, got 'discrete'",
    "RunConfig.from_dict({'model': 5})": "the model must be a mapping of settings, got 5",
    "RunConfig.from_dict({'method': 'discrete'})": "the method must be a mapping with a name, one of feedforward,",
    "RunConfig.from_dict({'method': {'name': 'discrete', 'deeper': 'empti'}})": "did you mean 'empty'?",
    "RunConfig.from_dict({'model': {'positions': {'name': 5}}})": "must be a mapping with a name, one of abpe,",
}


def test_values_of_the_wrong_type_are_refused():
    """In a process of its own: here the shape checker would refuse them first."""
    code = (
        "from latentloop.config import *\nfrom latentloop.errors import UserError\n"
        f"for call in {list(WRONG_TYPES)!r}:\n"
        "    try:\n        eval(call)\n        print('accepted')\n"
        "    except UserError as error:\n        print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for message, expected in zip(done.stdout.splitlines(), WRONG_TYPES.values(), strict=True):
        assert expected in message


def test_chosen_settings_are_those_that_are_not_the_defaults():
    run = RunConfig()
    assert run.chosen() == {
        "method": {"name": "discrete"}, "task": {}, "model": {"positions": {"name": "deberta"}}, "train": {},
        "graph": {"depth_limit": 7},
    }  # fmt: skip
    wider = changed(run, width=512, window=32, pin_static=True)
    assert wider.chosen()["model"] == {"positions": {"name": "deberta", "window": 32}, "width": 512}
    assert wider.chosen()["method"] == {"name": "discrete", "pin_static": True}
