"""What the first rank alone does during training: metrics, progress, validation, checkpoints."""

import math
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from latentloop.errors import UserError
from latentloop.files import write_json
from latentloop.train.folder import keep
from latentloop.train.log import LiveProgress, RunLog
from latentloop.train.loss import Learner
from latentloop.train.state import TrainingState
from latentloop.train.validate import validate, validation_batch


class Recorder:
    """Keeps the run folder: ``metrics`` is what the next checkpoint says about itself."""

    def __init__(self, folder: Path, state: TrainingState, metrics: dict[str, Any], console: Console) -> None:
        self.folder, self.state, self.metrics = folder, state, metrics
        self.run = state.run
        write_json(folder / "config.json", self.run.to_dict())
        self.batch = validation_batch(self.run)
        self.log = RunLog(folder, metrics["step"], console.print)
        self.progress = LiveProgress(console, self.run.train.steps, metrics["step"])

    def advance(self, step: int) -> None:
        """Show that a step is done."""
        self.progress.advance(step)

    def show(self, step: int, figures: dict[str, float], *, line: bool) -> None:
        """Record and show figures."""
        self.log.write("train", step, figures)
        self.progress.show(step, figures, line=line or step % (10 * self.run.train.log_every) == 0)

    def save(self, step: int, seconds: float, device: torch.device) -> None:
        """Write a checkpoint; where the schedule says so, or at the very end, validate it first.

        A validation that came only from an interruption would make the best checkpoint depend on when that was.
        """
        if not all(weights.isfinite().all() for weights in self.state.model.parameters()):
            raise UserError(
                f"weights are not finite after step {step}: resume from the last checkpoint, which is, "
                "or start anew with a lower --lr or with --clip 1"
            )
        self.metrics.pop("validation", None)  # of earlier weights; the loop holds this dictionary too
        self.metrics |= {"step": step, "seconds": seconds}
        best = False
        if step % self.run.train.validate_every == 0 or step == self.run.train.steps:
            learner = Learner(self.state.evaluated)
            found = validate(learner, self.batch, device)
            self.log.write("validation", step, found)
            least = self.metrics["best_loss"]
            best = math.isfinite(found["loss"]) and (least is None or found["loss"] < least)
            self.metrics |= {"validation": found} | ({"best_loss": found["loss"]} if best else {})
        keep(self.folder, self.state.checkpoint(self.metrics), best=best)

    def close(self) -> None:
        """Finish the files."""
        self.progress.close()
        self.log.close()
