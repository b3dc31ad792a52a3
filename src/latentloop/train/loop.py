"""The training loop, for every method and for one device or many.

Step k of a run depends on its configuration, its seed and k alone: problems, corruption and dropout of a step are drawn
from generators made for that step. So a resumed run goes on bit for bit, and the state of all randomness is the step.
"""

import math
import time
from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from signal import Signals
from typing import Any, Literal

import torch
from lightning_fabric import Fabric
from rich.console import Console

from latentloop.config import RunConfig
from latentloop.errors import UserError
from latentloop.model.build import build_model
from latentloop.tokens.vocabulary import Vocabulary
from latentloop.train.checkpoint import CONFIG
from latentloop.train.data import sample_batch
from latentloop.train.devices import any_rank, sum_ranks
from latentloop.train.folder import settle, sweep
from latentloop.train.interrupt import StopSignals
from latentloop.train.lock import locked
from latentloop.train.loss import Learner, Sealed, add_sums
from latentloop.train.optimizer import MovingAverage, make_optimizer, set_learning_rate
from latentloop.train.recorder import Recorder
from latentloop.train.state import TrainingState
from latentloop.train.targets import Sums, TrainingBatch, micro_batches
from latentloop.train.validate import accuracies


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run ended."""

    reason: Literal["done", "minutes", "interrupted"]
    step: int
    figures: dict[str, float]
    signal: Signals | None = None
    """What interrupted it."""


def train(
    run: RunConfig,
    folder: Path,
    fabric: Fabric,
    *,
    resume: bool,
    weights: Path | None = None,
    minutes: float | None = None,
    console: Console,
) -> Outcome:
    """Train until the steps are done, the minutes are over, Ctrl-C or SIGTERM; the run folder gets checkpoints and metrics.

    ``weights`` is the checkpoint that a run with a ``start`` begins with.
    """
    with ExitStack() as stack:
        if fabric.is_global_zero:
            stack.enter_context(locked(folder))
            if resume:
                settle(folder, console.print)
            elif (folder / CONFIG).exists():
                raise UserError(
                    f"the run folder {folder} exists: go on with --resume {folder}, or choose another --output"
                )
            else:
                sweep(folder)
        fabric.launch()
        fabric.barrier()  # other ranks read the folder only when the first one has settled it
        return _loop(run, folder, fabric, resume=resume, weights=weights, minutes=minutes, console=console)


def _loop(
    run: RunConfig,
    folder: Path,
    fabric: Fabric,
    *,
    resume: bool,
    weights: Path | None,
    minutes: float | None,
    console: Console,
) -> Outcome:
    clock = time.monotonic()
    vocabulary = Vocabulary(task=run.task)
    model = build_model(run)
    inner = make_optimizer(model, run.train)
    learner, optimizer = fabric.setup(Learner(model), inner)
    average = MovingAverage(model, run.train.ema) if run.train.ema else None
    if run.train.compile:  # after the copy for the average, which would else run on the weights of this one
        model.block = torch.compile(model.block, dynamic=True)  # pyrefly: ignore
    state = TrainingState(run=run, model=model, optimizer=inner, average=average)
    metrics: dict[str, Any] = {"step": 0, "seconds": 0.0, "best_loss": None}
    if resume:
        metrics |= state.restore(folder)
    if run.train.start is not None and not metrics["step"]:
        state.begin(weights)
    seconds_before = metrics["seconds"]
    recorder = Recorder(folder, state, metrics, console) if fabric.is_global_zero else None

    step = metrics["step"]
    counts: Sums = {}
    figures: dict[str, float] = {}
    reason: Literal["done", "minutes", "interrupted"] = "done"
    with StopSignals(console) as stopping, nullcontext() if recorder is None else closing(recorder):
        while step < run.train.steps:
            rate = set_learning_rate(inner, step, run.train)
            model.disturb(step / run.train.steps)
            loss, right = optimizer_step(run, step, vocabulary, fabric, learner, optimizer)
            if average is not None:
                average.update(model, step)
            step += 1
            if recorder is not None:
                recorder.advance(step)
            add_sums(counts, right | {"sum/loss": loss, "sum/steps": torch.ones((), device=fabric.device)})

            over = minutes is not None and time.monotonic() - clock > 60 * minutes
            stop = any_rank(fabric, over or stopping.received is not None)
            end = stop or step == run.train.steps
            logging = not step % run.train.log_every
            saving = end or not step % run.train.validate_every or not step % run.train.checkpoint_every
            if saving or logging:
                figures = _figures(fabric, counts)
                if not math.isfinite(figures["loss"]):
                    raise UserError(
                        f"the loss is {figures['loss']} after step {step}: start anew with a lower --lr or with --clip 1"
                    )
                seconds = seconds_before + time.monotonic() - clock
                if recorder is not None and (end or logging):
                    recorder.show(step, figures | {"lr": rate, "seconds": seconds}, line=end)
                if logging:
                    counts = {}
                if recorder is not None and saving:
                    recorder.save(step, seconds, fabric.device)
            if end:
                reason = "done" if step == run.train.steps else "interrupted" if stopping.received else "minutes"
                break
    validation = {f"validation_{name}": value for name, value in metrics.get("validation", {}).items()}
    return Outcome(reason=reason, step=step, figures=figures | validation, signal=stopping.received)


def optimizer_step(
    run: RunConfig, step: int, vocabulary: Vocabulary, fabric: Fabric, learner: Any, optimizer: Any
) -> tuple[torch.Tensor, Sums]:
    """Take one step; return this rank's share of the loss, and its counts of right answers."""
    batch = sample_batch(run, step, vocabulary, fabric.global_rank)
    found = backward(fabric, learner, batch, run.train.micro_batch)
    if run.train.clip:
        fabric.clip_gradients(learner, optimizer, max_norm=run.train.clip, error_if_nonfinite=False)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return found


def backward(fabric: Fabric, learner: Any, batch: TrainingBatch, rows: int) -> tuple[torch.Tensor, Sums]:
    """Accumulate the gradient of this rank's rows, micro-batch by micro-batch; return its share of the loss, and counts.

    Totals are those of the whole batch, and strategies average over ranks, so each rank's loss is scaled up by their number.
    """
    totals = {name: count.to(fabric.device) for name, count in batch.totals().items()}
    mine = list(micro_batches(batch.rows(slice(fabric.global_rank, None, fabric.world_size)), rows))
    loss = torch.zeros((), device=fabric.device)
    counts: Sums = {}
    for number, part in enumerate(mine):
        with fabric.no_backward_sync(learner, enabled=fabric.world_size > 1 and number < len(mine) - 1):
            share, right = learner(Sealed(part.to(fabric.device), totals))
            fabric.backward(share * fabric.world_size)
        loss += share.detach()
        add_sums(counts, right)
    return loss, counts


def _figures(fabric: Fabric, counts: Sums) -> dict[str, float]:
    """Merge counts over ranks, then divide each of them once."""
    found = sum_ranks(fabric, counts)
    return {"loss": found["sum/loss"] / (found["sum/steps"] / fabric.world_size)} | accuracies(found)
