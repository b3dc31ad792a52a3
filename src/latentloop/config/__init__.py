"""Every setting of the system, as frozen dataclasses; a combination that means nothing cannot be written, or is refused."""

from latentloop.config.model import ModelConfig
from latentloop.config.positions import PositionsConfig
from latentloop.config.run import Distribution, RunConfig
from latentloop.config.task import MAX_FAN_IN, MAX_NODES, TASKS, FamilyName, GraphConfig, OrderName, TaskConfig
from latentloop.config.train import TrainConfig

__all__ = [
    "MAX_FAN_IN",
    "MAX_NODES",
    "TASKS",
    "Distribution",
    "FamilyName",
    "GraphConfig",
    "ModelConfig",
    "OrderName",
    "PositionsConfig",
    "RunConfig",
    "TaskConfig",
    "TrainConfig",
]
