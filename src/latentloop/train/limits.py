"""How large a run may be: limits on its settings, and the memory it needs at least, checked before anything is built."""

import math
import os
from collections.abc import Iterator
from dataclasses import fields

from latentloop.config import RunConfig
from latentloop.errors import UserError
from latentloop.model.shapes import parameter_shapes
from latentloop.schema import Config

MOST = 2**20
"""The largest integer of a setting that has no other limit."""
LIMITS = {
    "layers": 1024, "mlp_depth": 1024, "mlp_ratio": 1024, "width": 2**16, "relative_width": 2**16,
    "steps": 10**12, "warmup": 10**12, "log_every": 10**12, "validate_every": 10**12, "checkpoint_every": 10**12,
    "seed": 2**64 - 1,
}  # fmt: skip
BYTES = 4  # of a weight or an activation
SYMBOLS_BYTES = 48  # of a token in a batch: at least six integers of eight bytes
ACTIVATIONS = 8  # vectors of the model's width that each layer keeps for the backward pass, at least


def check_limits(run: RunConfig) -> None:
    """Refuse settings that no machine could serve, whoever wrote them."""
    for name, value in _integers(run):
        most = LIMITS.get(name, MOST)
        if value > most:
            raise UserError(f"{name} must be at most {most:,}, got {value:,}")


def _integers(config: Config) -> Iterator[tuple[str, int]]:
    for field in fields(config):
        value = getattr(config, field.name)
        if isinstance(value, Config):
            yield from _integers(value)
        elif isinstance(value, int):
            yield field.name, value


def check_memory(run: RunConfig, processes: int = 1) -> None:
    """Refuse a run that cannot fit into this machine's memory."""
    need, have = processes * least_memory(run), memory()
    if need > have:
        raise UserError(
            f"training needs at least {need / 2**30:,.0f} GiB of memory, and this machine has {have / 2**30:,.0f}: "
            "choose a smaller model, or lower --batch, --micro-batch or --validation-problems"
        )


def least_memory(run: RunConfig) -> int:
    """Return bytes that training cannot do without; it takes more, for instance for scores of attention."""
    parameters = sum(math.prod(shape) for shape in parameter_shapes(run).values())
    copies = 4 + (run.train.ema > 0)  # weights, gradients, two moments, moving average
    tokens = 4 * run.graph.nodes  # an equation has at least four
    batch = max(one.batch for one in run.distributions)
    rows = max(batch * run.method.states, run.train.validation_problems)
    kept = min(batch, run.train.micro_batch) * tokens * run.model.width * run.model.layers * ACTIVATIONS
    return BYTES * (copies * parameters + kept) + SYMBOLS_BYTES * rows * tokens


def memory() -> int:
    """Return the bytes of memory that this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
