"""A run: everything that decides what a training gives."""

from dataclasses import dataclass, replace
from typing import ClassVar

from latentloop.config.model import ModelConfig
from latentloop.config.positions import AbsoluteConfig
from latentloop.config.task import GraphConfig, TaskConfig
from latentloop.config.train import TrainConfig
from latentloop.errors import UserError
from latentloop.methods import ChainOfThought, Discrete, MethodConfig
from latentloop.schema import Config


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """Problems that a part of the steps is trained on."""

    share: float
    """Of the steps."""
    task: TaskConfig
    graph: GraphConfig
    batch: int
    """Problems per step."""


@dataclass(frozen=True, kw_only=True)
class RunConfig(Config):
    """Method, task, graphs, model and training."""

    title: ClassVar[str] = "run"

    method: MethodConfig = Discrete()
    """A row of the table of methods, with its own settings."""
    task: TaskConfig = TaskConfig()
    graph: GraphConfig = GraphConfig(depth_limit=7)
    model: ModelConfig = ModelConfig()
    train: TrainConfig = TrainConfig()

    def __post_init__(self) -> None:
        super().__post_init__()
        if "partial" in self.method.auxiliary and self.model.mlp_depth < 2:
            raise UserError(f"partial_weight needs an mlp_depth of at least 2, got {self.model.mlp_depth}")
        if "lookup" in self.method.auxiliary and self.model.layers == 1 and self.method.pin_static:
            raise UserError(
                "lookup_weight reads at left-hand sides after the first layer, which is the last: raise layers"
            )
        if self.model.lookup_noise and self.model.layers == 1 and self.method.pin_static:
            raise UserError("lookup_noise disturbs the first layer, which reads at right-hand sides only: raise layers")
        if self.model.stray and not (self.method.pin_static and self.model.layers > 1):
            raise UserError("stray is for methods that read values only (stable, or pin_static), with layers 2 or more")
        if isinstance(self.model.positions, AbsoluteConfig):
            room, need = self.model.positions.max_positions, self.longest_sequence
            if room < need:
                raise UserError(f"graphs of {self.graph.nodes} nodes need max_positions of up to {need}, got {room}")
        try:
            _ = self.distributions
        except UserError as error:
            raise UserError(f"the curriculum must give problems that can be sampled: {error}") from error
        if self.graph.nodes > self.task.names:
            raise UserError(f"{self.graph.nodes} nodes need as many names, and there are {self.task.names}")

    @property
    def name(self) -> str:
        """The model's name as the paper would print it, such as ``deberta-T1L8H16D256``."""
        steps = self.method.iterations
        return self.model.name if steps is None else self.model.name.replace("-L", f"-T{steps}L", 1)

    @property
    def distributions(self) -> list[Distribution]:
        """What is trained on, in its order: the curriculum, then the run's own problems."""
        task, graph, batch = self.task, self.graph, self.train.batch
        found: list[Distribution] = []
        for stage in self.train.stages:
            nodes = min(stage.nodes, graph.nodes)
            simpler = replace(
                graph,
                nodes=nodes,
                min_nodes=None if graph.min_nodes is None else min(graph.min_nodes, nodes),
                leaves=graph.leaves if stage.leaves is None else stage.leaves,
                fan_ins=stage.fan_ins or graph.fan_ins,
            )
            names = task.names if stage.names is None else stage.names
            if not nodes <= names <= task.names:
                raise UserError(f"a stage with {nodes} nodes has {nodes} to {task.names} names, got {names}")
            fewer = replace(task, names=names)
            found.append(Distribution(share=stage.share, task=fewer, graph=simpler, batch=stage.times * batch))
        left = 1.0 - sum(one.share for one in found)
        return [*found, Distribution(share=left, task=task, graph=graph, batch=batch)]

    def distribution_at(self, step: int) -> Distribution:
        """Return the distribution of problems that a step trains on."""
        end, found = 0.0, self.distributions
        for one in found:
            end += one.share * self.train.steps
            if step < end - 1e-6:
                return one
        return found[-1]

    @property
    def problems(self) -> int:
        """Problems seen in training, again where a set is fixed."""
        return round(self.train.steps * sum(one.share * one.batch for one in self.distributions))

    @property
    def longest_sequence(self) -> int:
        """Tokens of the longest sequence in training: eight per equation, and the steps of a chain of thought."""
        step = self.method.step_tokens if isinstance(self.method, ChainOfThought) else 0
        return self.graph.nodes * (8 + step) + 2
