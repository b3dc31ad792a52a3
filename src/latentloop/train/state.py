"""Everything a training run carries from step to step: weights, their moving average, the optimizer's moments."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from latentloop.config import RunConfig
from latentloop.errors import UserError
from latentloop.model.build import load_weights, weights_of
from latentloop.model.shapes import parameter_shapes
from latentloop.model.transformer import Transformer
from latentloop.provenance import provenance
from latentloop.train.checkpoint import Checkpoint, is_checkpoint, pointed, read_checkpoint, weights_hash
from latentloop.train.optimizer import MovingAverage, moments


@dataclass(frozen=True, kw_only=True)
class TrainingState:
    """The live parts of a run that a checkpoint must hold for the run to go on bit for bit."""

    run: RunConfig
    model: Transformer
    optimizer: torch.optim.AdamW
    average: MovingAverage | None

    @property
    def evaluated(self) -> Transformer:
        """The model to evaluate and to ship: the moving average where there is one."""
        return self.model if self.average is None else self.average.model

    def checkpoint(self, metrics: dict[str, Any]) -> Checkpoint:
        """Return a checkpoint of this moment."""
        names = {parameter: name for name, parameter in self.model.named_parameters()}
        training = {
            f"{key}.{names[parameter]}": value.cpu().contiguous().numpy()
            for group in self.optimizer.param_groups
            for parameter in group["params"]
            for key, value in self.optimizer.state[parameter].items()
        }
        if self.average is not None:
            training |= {f"raw.{name}": value for name, value in weights_of(self.model).items()}
        metrics = metrics | {"provenance": provenance()}
        return Checkpoint(run=self.run, weights=weights_of(self.evaluated), metrics=metrics, training=training)

    def begin(self, folder: Path | None) -> None:
        """Load the weights that the run begins with, in place of random ones."""
        start = self.run.train.start
        if folder is None:
            raise UserError(f"the run begins with the weights {start}: say with --weights in which checkpoint they are")
        if (found := weights_hash(folder)) != start:
            raise UserError(
                f"the run begins with the weights {start}, and {folder} has {found}: give another checkpoint"
            )
        checkpoint = read_checkpoint(folder)
        if parameter_shapes(checkpoint.run) != parameter_shapes(self.run):
            raise UserError(
                f"{folder} is a {checkpoint.run.name} and the run a {self.run.name}: their weights differ in shape"
            )
        for model in {self.model, self.evaluated}:
            load_weights(model, checkpoint.weights)

    def restore(self, folder: Path) -> dict[str, Any]:
        """Load the last checkpoint of a settled run folder and return its metrics; nothing if there is none yet."""
        last = pointed(folder / "last")
        if not is_checkpoint(last):
            return {}
        checkpoint = read_checkpoint(last, training=True)
        if checkpoint.run != self.run:
            old, new = checkpoint.run.to_dict(), self.run.to_dict()
            changed = ", ".join(sorted(key for key in old if old[key] != new[key]))
            raise UserError(f"{folder / 'config.json'} differs from the checkpoint's own settings in: {changed}")
        training = checkpoint.training or {}
        load_weights(self.evaluated, checkpoint.weights)
        if self.average is not None:
            load_weights(self.model, {n.removeprefix("raw."): v for n, v in training.items() if n.startswith("raw.")})
        for name, parameter in self.model.named_parameters():
            kept = moments(name, parameter.ndim, self.run.train)
            state = {key: torch.from_numpy(training[f"{key}.{name}"]).to(parameter.device) for key in kept}
            if f"step.{name}" in training:  # fused kernels want it beside the parameter
                fused = self.optimizer.defaults.get("fused")
                state["step"] = torch.from_numpy(training[f"step.{name}"]).to(parameter.device if fused else "cpu")
            self.optimizer.state[parameter] = state
        metrics = {name: value for name, value in checkpoint.metrics.items() if name != "provenance"}
        if not is_checkpoint(pointed(folder / "best")):  # a loss to beat needs a checkpoint that has it
            metrics["best_loss"] = None
        return metrics
