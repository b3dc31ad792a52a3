"""Runs with a name: the paper's best models as the authors trained them, ours, and tiny ones that take seconds."""

from dataclasses import replace
from typing import Any

from latentloop.config import GraphConfig, ModelConfig, RunConfig, TaskConfig, TrainConfig
from latentloop.errors import UserError, nearest

PAPER_TRAINING = TrainConfig(steps=156_250, batch=32, lr=1e-3, weight_decay=0.01)
PAPER_GRAPH = GraphConfig(nodes=32, depth_limit=7)
VARIABLE_GRAPH = GraphConfig(nodes=32, min_nodes=8, depth_limit=7)
COT_POSITIONS = 3072
"""Positions that cover a published problem of 128 nodes with its longest chain of thought."""


def _paper(method: str, model: str, graph: GraphConfig = PAPER_GRAPH, **more: int) -> RunConfig:
    return RunConfig(method=method, model=ModelConfig.named(model, **more), graph=graph, train=PAPER_TRAINING)


TINY_GRAPH = GraphConfig(nodes=8, leaves=3, depth_limit=4)
TINY_TRAINING = TrainConfig(
    steps=120, batch=16, micro_batch=32, lr=3e-3, warmup=5, schedule="linear", final_lr=0.1, clip=1.0, ema=0.9,
    log_every=5, validate_every=20, validation_problems=16, checkpoint_every=20,
)  # fmt: skip


def _tiny(method: str, iterations: int | None) -> RunConfig:
    model = ModelConfig(
        iterations=iterations,
        layers=2,
        heads=2,
        width=32,
        relative_width=32,
        window=16,
        dropout=0.0,
        max_positions=COT_POSITIONS,
    )
    return RunConfig(method=method, model=model, graph=TINY_GRAPH, train=TINY_TRAINING)


LAPTOP: dict[str, int] = {
    "layers": 2, "heads": 8, "first_heads": 2, "width": 128, "offset_heads": 6, "mlp_ratio": 2, "mlp_depth": 2,
}  # fmt: skip
LAPTOP_TRAINING = TrainConfig(
    steps=4000, batch=32, micro_batch=64, lr=2e-3, warmup=100, schedule="linear", final_lr=0.02, beta2=0.98, clip=1.0,
    ema=0.998, small_nodes=16, small_share=0.5, log_every=50, validate_every=500, checkpoint_every=500,
)  # fmt: skip


def _stable(graph: GraphConfig, train: TrainConfig, **sizes: Any) -> RunConfig:
    """A local update with everything that makes it quick to learn; see docs/recipe.md."""
    model = ModelConfig(
        positions="nope", dropout=0.0, pin_static=True, mlp="gated", relative_bias=True, value_init="characters",
        lookup=True, partial=True, first_mlp=False, sharpen="log-n", temperature=0.5,
        focus=True, **sizes,
    )  # fmt: skip
    return RunConfig(method="stable", graph=graph, model=model, train=train)


DENSE_GRAPH = GraphConfig(nodes=32, depth_limit=7, fan_ins=(1, 2, 3, 3, 3, 3))
"""Many equations of three operands: their values are what takes most examples."""

PRESETS: dict[str, RunConfig] = {
    "paper-feedforward": _paper("feedforward", "deberta-T1L8H16D256"),
    "paper-recurrent": _paper("recurrent", "rope-T4L2H16D256"),
    "paper-cot": _paper("cot", "rope-T4L2H16D256", max_positions=COT_POSITIONS),
    "paper-cot-nope": _paper("cot", "nope-T4L2H16D256", max_positions=COT_POSITIONS),
    "paper-cot-variable": _paper("cot", "nope-T4L2H16D256", VARIABLE_GRAPH, max_positions=COT_POSITIONS),
    "paper-continuous": _paper("continuous", "deberta-L2H16D256"),
    "paper-discrete": _paper("discrete", "deberta-L2H16D256"),
    "paper-corrected": _paper("corrected", "deberta-L4H16D384"),
    "tiny-feedforward": _tiny("feedforward", 1),
    "tiny-recurrent": _tiny("recurrent", 3),
    "tiny-cot": _tiny("cot", 1),
    "tiny-continuous": _tiny("continuous", None),
    "tiny-discrete": _tiny("discrete", None),
    "tiny-corrected": _tiny("corrected", None),
    "tiny-stable": _stable(
        TINY_GRAPH, TINY_TRAINING, layers=2, heads=4, width=32, offset_heads=3, mlp_ratio=2, mlp_depth=2
    ),
    "laptop-add": _stable(PAPER_GRAPH, LAPTOP_TRAINING, **LAPTOP),
    "laptop-all": replace(
        _stable(DENSE_GRAPH, LAPTOP_TRAINING, **LAPTOP | {"width": 192, "heads": 6, "mlp_depth": 4}),
        task=TaskConfig.named("all"),
        train=replace(LAPTOP_TRAINING, steps=5000, small_share=0.1),
    ),
    "laptop-add-1024": replace(
        _stable(PAPER_GRAPH, replace(LAPTOP_TRAINING, steps=6000), **LAPTOP),
        task=TaskConfig.named("add", names=1024),
    ),
}


DEFAULT_MODEL = "laptop-all"
"""The shipped checkpoint that is asked where none is named."""


def preset(name: str) -> RunConfig:
    """Look up a preset by name."""
    if name not in PRESETS:
        raise UserError(f"unknown preset {name!r}: {nearest(name, PRESETS)}")
    return PRESETS[name]
