"""Runs with a name: the paper's best models as the authors trained them, ours, and tiny ones that take seconds."""

from dataclasses import replace
from typing import Any

from latentloop.config import GraphConfig, ModelConfig, RunConfig, TaskConfig, TrainConfig
from latentloop.config.positions import BiasConfig, DisentangledConfig, LocalConfig
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


QUICK = RunConfig(
    method=Stable(lookup_weight=1.0),
    task=TaskConfig(modulus=11, names=32),
    graph=GraphConfig(nodes=12, leaves=3, depth_limit=7, fan_ins=(1, 2, 3, 3, 3)),
    model=ModelConfig(
        positions=LocalConfig(), layers=2, heads=4, first_heads=1, width=64, mlp_depth=2, first_mlp=False, dropout=0.0,
    ),
    train=TrainConfig(
        steps=500, batch=32, micro_batch=64, lr=2e-3, optimizer="muon", muon_lr=0.04, warmup=50, schedule="linear",
        final_lr=0.02, beta2=0.98, clip=1.0, ema=0.98, curriculum=("12/12:0.25",), log_every=25, validate_every=100,
        checkpoint_every=100,
    ),
)  # fmt: skip
"""Half a minute on two cores: sums modulo 11 on graphs of 12 nodes."""
LAPTOP_GRAPH = GraphConfig(nodes=32, depth_limit=7)
DENSE_GRAPH = GraphConfig(nodes=32, depth_limit=7, fan_ins=(1, 2, 3, 3, 3, 3))
"""Many equations of three operands: their values are what takes most examples."""
LAPTOP_TRAINING = TrainConfig(
    steps=4000, batch=32, micro_batch=64, lr=2e-3, warmup=100, schedule="linear", final_lr=0.02, beta2=0.98, clip=1.0,
    ema=0.998, curriculum=("16:0.5",), log_every=50, validate_every=500, checkpoint_every=500,
)  # fmt: skip
LAPTOP: dict[str, Any] = {"heads": 8, "first_heads": 2, "width": 128}


def _stable(graph: GraphConfig, train: TrainConfig, *, offset_heads: int = 6, **sizes: Any) -> RunConfig:
    """A local update with everything that makes it quick to learn; see docs/recipe.md."""
    model: dict[str, Any] = {"mlp_ratio": 2, "mlp_depth": 2, **sizes}
    settings = ModelConfig(
        positions=BiasConfig(offset_heads=offset_heads), dropout=0.0, mlp="gated", value_init="characters",
        first_mlp=False, sharpen="log-n", temperature=0.5, **model,
    )  # fmt: skip
    method = Stable(lookup_weight=1.0, partial_weight=1.0)
    return RunConfig(method=method, graph=graph, model=settings, train=train)


PRESETS: dict[str, RunConfig] = {
    "paper-feedforward": _paper(Feedforward(), "deberta-L8H16D256"),
    "paper-recurrent": _paper(Recurrent(iterations=4), "rope-L2H16D256"),
    "paper-cot": _paper(ChainOfThought(iterations=4), "rope-L2H16D256"),
    "paper-cot-nope": _paper(ChainOfThought(iterations=4), "nope-L2H16D256"),
    "paper-cot-variable": _paper(ChainOfThought(iterations=4), "nope-L2H16D256", VARIABLE_GRAPH),
    "paper-continuous": _paper(Continuous(), "deberta-L2H16D256"),
    "paper-discrete": _paper(Discrete(), "deberta-L2H16D256"),
    "paper-corrected": _paper(Corrected(), "deberta-L4H16D384"),
    "quick": QUICK,
    "tiny-feedforward": _tiny(Feedforward()),
    "tiny-recurrent": _tiny(Recurrent(iterations=3)),
    "tiny-cot": _tiny(ChainOfThought()),
    "tiny-continuous": _tiny(Continuous()),
    "tiny-discrete": _tiny(Discrete()),
    "tiny-corrected": _tiny(Corrected()),
    "tiny-stable": _stable(TINY_GRAPH, TINY_TRAINING, heads=4, width=32, offset_heads=3),
    "laptop-add": _stable(LAPTOP_GRAPH, LAPTOP_TRAINING, **LAPTOP),
    "laptop-all": replace(
        _stable(DENSE_GRAPH, LAPTOP_TRAINING, **LAPTOP | {"width": 192, "heads": 6, "mlp_depth": 4}),
        task=TaskConfig.named("all"),
        train=replace(LAPTOP_TRAINING, steps=5000, curriculum=("16:0.1",)),
    ),
    "laptop-add-1024": replace(
        _stable(LAPTOP_GRAPH, replace(LAPTOP_TRAINING, steps=6000), **LAPTOP),
        task=TaskConfig.named("add", names=1024),
    ),
}


DEFAULT_MODEL = "laptop-all"
"""The shipped checkpoint that is asked where none is named."""


def preset(name: str) -> RunConfig:
    """Return a preset by name."""
    if name not in PRESETS:
        raise UserError(f"unknown preset {name!r}: {nearest(name, PRESETS)}")
    return PRESETS[name]
