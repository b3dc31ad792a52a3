"""Runs with a name: the paper's best models as the authors trained them, ours, and tiny ones that take seconds."""

from dataclasses import replace
from typing import Any

from latentloop.config import GraphConfig, ModelConfig, RunConfig, TaskConfig, TrainConfig
from latentloop.config.positions import DisentangledConfig, LocalConfig, NoneConfig, PositionsConfig, RotaryConfig
from latentloop.errors import UserError, nearest
from latentloop.methods import (
    ChainOfThought,
    Continuous,
    Corrected,
    Discrete,
    Feedforward,
    MethodConfig,
    Recurrent,
    Stable,
)

PAPER_TRAINING = TrainConfig(steps=156_250, batch=32, problems=50_000, lr=1e-3, weight_decay=0.01, decay="all")
PAPER_GRAPH = GraphConfig(nodes=32, depth_limit=7, order="topological")
VARIABLE_GRAPH = replace(PAPER_GRAPH, min_nodes=8)


def _paper(method: MethodConfig, model: str, graph: GraphConfig = PAPER_GRAPH) -> RunConfig:
    """A model of the paper, trained as the authors' code does; docs/fidelity.md says where we differ."""
    settings = ModelConfig.named(model, embedding_std=1.0, dropout_at="authors")
    return RunConfig(method=method, model=settings, graph=graph, train=PAPER_TRAINING)


TINY_GRAPH = GraphConfig(nodes=8, leaves=3, depth_limit=4)
TINY_TRAINING = TrainConfig(
    steps=120, batch=16, micro_batch=32, lr=3e-3, warmup=5, schedule="linear", final_lr=0.1, clip=1.0, ema=0.9,
    log_every=5, validate_every=20, validation_problems=16, checkpoint_every=20,
)  # fmt: skip


def _tiny(method: MethodConfig) -> RunConfig:
    positions = DisentangledConfig(relative_width=32, window=16)
    model = ModelConfig(positions=positions, layers=2, heads=2, width=32, dropout=0.0)
    return RunConfig(method=method, model=model, graph=TINY_GRAPH, train=TINY_TRAINING)


def _plain(**sizes: Any) -> ModelConfig:
    """An ordinary global/local transformer: one head looks names up, then a window of eight tokens is read."""
    settings: dict[str, Any] = {"first_heads": 1, "heads": 4, "width": 128, "mlp_depth": 2, "lookup_noise": 4.0} | sizes
    return ModelConfig(positions=LocalConfig(), layers=2, first_mlp=False, dropout=0.0, **settings)


FAST = TrainConfig(
    steps=1200, batch=32, micro_batch=64, optimizer="muon", muon_lr=0.03, lr=2e-3, weight_decay=0.1, warmup=50,
    schedule="linear", final_lr=0.02, beta2=0.98, clip=1.0, ema=0.998, curriculum=("16/12:0.17", "16:0.63"),
    log_every=50, validate_every=300, checkpoint_every=300,
)  # fmt: skip
STABLE = Stable(lookup_weight=1.0, partial_weight=1.0)
DENSE = GraphConfig(nodes=32, depth_limit=7, fan_ins=(1, 2, 3, 3, 3))
"""Many equations of three operands: their values are what takes most examples."""
LAPTOP_ADD = RunConfig(method=STABLE, graph=DENSE, model=_plain(heads=8), train=FAST)
LAPTOP_ALL = RunConfig(
    method=STABLE, task=TaskConfig.named("all"), graph=replace(DENSE, fan_ins=(1, 2, 3, 3, 3, 3)),
    model=_plain(mlp_depth=4),
    train=replace(FAST, steps=3200, muon_lr=0.02, curriculum=("16/12:0.08", "24:0.62")),
)  # fmt: skip
QUICK = replace(
    LAPTOP_ADD, task=TaskConfig(modulus=11, names=32), graph=replace(DENSE, nodes=16),
    model=_plain(width=64, lookup_noise=0.0),
    train=replace(
        FAST, steps=700, muon_lr=0.04, ema=0.98, curriculum=("16/12:0.25",), log_every=25, validate_every=100,
        checkpoint_every=100,
    ),
)  # fmt: skip
"""Half a minute on two cores: sums modulo 11 on graphs of 16 nodes."""

LADDER_GRAPH = GraphConfig(nodes=16, min_nodes=8, depth_limit=7)
LADDER_TRAINING = replace(FAST, batch=16, curriculum=("16/12:0.2",), validate_every=500, checkpoint_every=500)


def _ladder(
    method: MethodConfig, positions: PositionsConfig, layers: int = 2, rate: float = 0.02, **settings: Any
) -> RunConfig:
    """A method of the paper at a laptop's cost: trained on 8 to 16 nodes, tested on up to 64, as many as there are names.

    Width, optimizer, schedule, curriculum and moving average are those of the fast recipe for all of them; the rate is the
    one with the lowest validation loss (experiment ``tuning``). Steps are those that 20 minutes of one core give;
    ``latentloop.experiments`` sets them.
    """
    model = ModelConfig(positions=positions, layers=layers, heads=8, width=128, dropout=0.0, **settings)
    train = replace(LADDER_TRAINING, muon_lr=rate, lr=rate / 15)
    return RunConfig(method=method, task=TaskConfig(names=64), graph=LADDER_GRAPH, model=model, train=train)


RELATIVE = DisentangledConfig(relative_width=128)
HELPED: dict[str, Any] = {"lookup_weight": 1.0, "partial_weight": 1.0}
LOOKUP_FIRST: dict[str, Any] = {"positions": LocalConfig(), "first_heads": 1, "mlp_depth": 2, "lookup_noise": 4.0}
"""The fast recipe's architecture: the first layer alone sees everything, so that a block makes one look-up."""


PRESETS: dict[str, RunConfig] = {
    "paper-feedforward": _paper(Feedforward(), "deberta-L8H16D256"),
    "paper-recurrent": _paper(Recurrent(iterations=4), "rope-L2H16D256"),
    "paper-cot": _paper(ChainOfThought(iterations=4), "rope-L2H16D256"),
    "paper-cot-nope": _paper(ChainOfThought(iterations=4), "nope-L2H16D256"),
    "paper-cot-variable": _paper(ChainOfThought(iterations=4), "nope-L2H16D256", VARIABLE_GRAPH),
    "paper-continuous": _paper(Continuous(), "deberta-L2H16D256"),
    "paper-discrete": _paper(Discrete(), "deberta-L2H16D256"),
    "paper-corrected": _paper(Corrected(), "deberta-L4H16D384"),
    "paper-stable": _paper(Stable(), "deberta-L2H16D256"),
    "quick": QUICK,
    "ladder-feedforward": _ladder(Feedforward(), RELATIVE, layers=8),
    "ladder-recurrent": _ladder(Recurrent(iterations=4), RotaryConfig()),
    "ladder-cot": _ladder(ChainOfThought(), NoneConfig(), layers=4),
    "ladder-continuous": _ladder(Continuous(**HELPED), **LOOKUP_FIRST, rate=0.04),
    "ladder-discrete": _ladder(Discrete(**HELPED), **LOOKUP_FIRST),
    "ladder-corrected": _ladder(Corrected(**HELPED), **LOOKUP_FIRST, layers=4),
    "ladder-stable": _ladder(STABLE, **LOOKUP_FIRST, rate=0.04),
    "tiny-feedforward": _tiny(Feedforward()),
    "tiny-recurrent": _tiny(Recurrent(iterations=3)),
    "tiny-cot": _tiny(ChainOfThought()),
    "tiny-continuous": _tiny(Continuous()),
    "tiny-discrete": _tiny(Discrete()),
    "tiny-corrected": _tiny(Corrected()),
    "tiny-stable": RunConfig(method=STABLE, graph=TINY_GRAPH, model=_plain(width=32), train=TINY_TRAINING),
    "laptop-add": LAPTOP_ADD,
    "laptop-all": LAPTOP_ALL,
    "laptop-all-4096": replace(
        LAPTOP_ALL,
        task=TaskConfig.named("all", names=4096),
        model=replace(LAPTOP_ALL.model, stray=0.1),
        train=replace(LAPTOP_ALL.train, steps=9600),
    ),
}


DEFAULT_MODEL = "laptop-all"
"""The shipped checkpoint that is asked where none is named."""


def preset(name: str) -> RunConfig:
    """Return a preset by name."""
    if name not in PRESETS:
        raise UserError(f"unknown preset {name!r}: {nearest(name, PRESETS)}")
    return PRESETS[name]
