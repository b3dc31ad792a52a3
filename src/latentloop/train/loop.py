"""The training loop, for every method and for one device or many. All calls of Fabric are in this file.

Step k of a run depends on its configuration, its seed and k alone: problems, corruption and dropout of a step are drawn
from generators made for that step. So a resumed run goes on bit for bit, and the state of all randomness is the step.
"""

import math
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import torch
from lightning_fabric import Fabric
from lightning_fabric.utilities.exceptions import MisconfigurationException
from rich.console import Console

from latentloop.config import RunConfig
from latentloop.errors import UserError
from latentloop.files import write_json
from latentloop.methods import method as lookup
from latentloop.model.transformer import Transformer
from latentloop.provenance import provenance
from latentloop.task.graph import sample
from latentloop.task.splits import train_generator, validation_problems
from latentloop.tokens.vocabulary import Vocabulary
from latentloop.train.checkpoint import Checkpoint, keep, read_checkpoint
from latentloop.train.log import LiveProgress, RunLog
from latentloop.train.loss import Learner, Sealed, add_counts
from latentloop.train.optimise import RunningMean, learning_rate, make_optimizer
from latentloop.train.targets import Counts, Lesson, TrajectoryLesson, make_lesson, pieces

EVAL_ROWS = 64  # sequences a forward pass takes where nothing is kept for a backward one


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run ended."""

    reason: Literal["done", "minutes", "interrupted"]
    step: int
    figures: dict[str, float]


def build_model(run: RunConfig) -> Transformer:
    """Build the transformer of a run, with random weights that its seed decides."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run.train.seed)
        return Transformer(run.model, Vocabulary(task=run.task), flat=not lookup(run.method).latent)


def make_fabric(
    run: RunConfig, *, accelerator: str = "cpu", devices: int = 1, machines: int = 1, strategy: str = "auto"
) -> Fabric:
    """Ask for devices; say in one line if they cannot be had."""
    if run.train.batch < devices * machines:
        raise UserError(f"a batch of {run.train.batch} cannot be shared by {devices * machines} devices: raise --batch")
    if accelerator == "auto":
        accelerator = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return Fabric(
            accelerator=accelerator,
            devices=devices,
            num_nodes=machines,
            strategy=strategy,
            precision=run.train.precision,
        )
    except (RuntimeError, ValueError, MisconfigurationException) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"cannot use {devices} x {accelerator} with {strategy}: {reason}") from error


def train(
    run: RunConfig, folder: Path, fabric: Fabric, *, resume: bool, minutes: float | None = None, console: Console
) -> Outcome:
    """Train until the steps are done, the minutes are over or Ctrl-C; checkpoints and metrics go to the run's folder."""
    fabric.launch()
    clock, vocabulary, method = time.monotonic(), Vocabulary(task=run.task), lookup(run.method)
    model = build_model(run)
    inner = make_optimizer(model, run.train)
    learner, optimizer = fabric.setup(Learner(model, method, run.train), inner)
    mean = RunningMean(model, run.train.ema) if run.train.ema else None
    if run.train.compile:  # after the copy for the mean, which would else run on the weights of this one
        model.block = torch.compile(model.block, dynamic=True)  # pyrefly: ignore
    metrics: dict[str, Any] = {"step": 0, "seconds": 0.0, "best_loss": None}
    if resume:
        metrics |= _restore(run, folder, model, inner, mean)
    start, seconds_before = metrics["step"], metrics["seconds"]
    keeper = _Keeper(run, folder, model, inner, mean, metrics, console) if fabric.is_global_zero else None

    stopping = _Stop(console)
    step, counts, figures = start, Counts(), dict[str, float]()
    reason: Literal["done", "minutes", "interrupted"] = "done"
    try:
        while step < run.train.steps:
            rate = learning_rate(step, run.train)
            for group in inner.param_groups:
                group["lr"] = rate
            loss, right = teach(run, step, vocabulary, fabric, learner, optimizer)
            if mean is not None:
                mean.update(model, step)
            step += 1
            add_counts(counts, right | {"sum/loss": loss, "sum/steps": torch.ones((), device=fabric.device)})

            over = minutes is not None and time.monotonic() - clock > 60 * minutes
            stop = _agreed(fabric, over or stopping.asked)
            end = stop or step == run.train.steps
            saving = end or not step % run.train.validate_every or not step % run.train.checkpoint_every
            if saving or not step % run.train.log_every:
                figures = _figures(fabric, counts)
                if not math.isfinite(figures["loss"]):
                    raise UserError(
                        f"the loss is {figures['loss']} after step {step}: start anew with a lower --lr or with --clip 1"
                    )
                seconds = seconds_before + time.monotonic() - clock
                if keeper is not None and (end or not step % run.train.log_every):
                    keeper.show(step, figures | {"lr": rate, "seconds": seconds}, line=end)
                if not step % run.train.log_every:
                    counts = Counts()
                if keeper is not None and saving:
                    keeper.save(step, seconds, fabric.device)
            if end:
                reason = "done" if step == run.train.steps else "interrupted" if stopping.asked else "minutes"
                break
    finally:
        stopping.restore()
        if keeper is not None:
            keeper.close()
    return Outcome(reason=reason, step=step, figures=figures | _prefixed(metrics.get("validation", {})))


class _Keeper:
    """What the first rank alone does: metrics, progress, validation, checkpoints."""

    def __init__(
        self,
        run: RunConfig,
        folder: Path,
        model: Transformer,
        optimizer: torch.optim.AdamW,
        mean: RunningMean | None,
        metrics: dict[str, Any],
        console: Console,
    ) -> None:
        self.run, self.folder, self.model, self.optimizer, self.mean = run, folder, model, optimizer, mean
        self.metrics = metrics
        write_json(folder / "config.json", run.to_dict())
        self.lesson = validation_lesson(run)
        self.log = RunLog(folder, metrics["step"])
        self.progress = LiveProgress(console, run.train.steps, metrics["step"])

    def show(self, step: int, figures: dict[str, float], *, line: bool) -> None:
        """Record and show figures."""
        self.log.write("train", step, figures)
        self.progress.show(step, figures, line=line or step % (10 * self.run.train.log_every) == 0)

    def save(self, step: int, seconds: float, device: torch.device) -> None:
        """Write a checkpoint; where the schedule says so, or at the very end, validate it first.

        A validation that came only from an interruption would make the best checkpoint depend on when that was.
        """
        self.metrics |= {"step": step, "seconds": seconds}
        best = False
        if step % self.run.train.validate_every == 0 or step == self.run.train.steps:
            used = self.mean.model if self.mean is not None else self.model
            found = validate(Learner(used, lookup(self.run.method), self.run.train), self.lesson, device)
            self.log.write("validation", step, found)
            best = self.metrics["best_loss"] is None or found["loss"] < self.metrics["best_loss"]
            self.metrics |= {"validation": found} | ({"best_loss": found["loss"]} if best else {})
        keep(self.folder, _checkpoint(self.run, self.model, self.mean, self.optimizer, self.metrics), best=best)

    def close(self) -> None:
        """Finish the files."""
        self.progress.close()
        self.log.close()


def teach(
    run: RunConfig, step: int, vocabulary: Vocabulary, fabric: Fabric, learner: Any, optimizer: Any
) -> tuple[torch.Tensor, Counts]:
    """Take one step; gives this rank's share of the loss and of what was right."""
    lesson = draw_lesson(run, step, vocabulary, fabric.global_rank)
    found = backward(fabric, learner, lesson, run.train.micro_batch)
    if run.train.clip:
        fabric.clip_gradients(learner, optimizer, max_norm=run.train.clip, error_if_nonfinite=False)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return found


def draw_lesson(run: RunConfig, step: int, vocabulary: Vocabulary, rank: int) -> Lesson | TrajectoryLesson:
    """Draw a step's whole lesson, the same on every rank, and seed this rank's dropout."""
    rng = train_generator(run.train.seed, step)
    graph = run.small_graph if step < run.train.small_share * run.train.steps else run.graph
    problems = sample(run.task, graph, run.train.batch, rng)
    generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
    torch.manual_seed(int(rng.integers(2**62)) + rank)
    return make_lesson(problems, run, vocabulary, generator)


def backward(fabric: Fabric, learner: Any, lesson: Lesson | TrajectoryLesson, rows: int) -> tuple[torch.Tensor, Counts]:
    """Accumulate the gradient of this rank's rows, piece by piece; gives its share of the loss and of what was right.

    Totals are those of the whole batch, and strategies average over ranks, so each rank's loss is scaled up by their number.
    """
    totals = {name: count.to(fabric.device) for name, count in lesson.totals().items()}
    mine = list(pieces(lesson.rows(slice(fabric.global_rank, None, fabric.world_size)), rows))
    loss, counts = torch.zeros((), device=fabric.device), Counts()
    for number, piece in enumerate(mine):
        with fabric.no_backward_sync(learner, enabled=fabric.world_size > 1 and number < len(mine) - 1):
            share, right = learner(Sealed(piece.to(fabric.device), totals))
            fabric.backward(share * fabric.world_size)
        loss += share.detach()
        add_counts(counts, right)
    return loss, counts


def _figures(fabric: Fabric, counts: Counts) -> dict[str, float]:
    """Merge counts over ranks, then divide each of them once."""
    names = sorted(counts)
    mine = torch.stack([counts[name].cpu().double() for name in names])  # not every device knows double precision
    merged = mine if fabric.world_size == 1 else fabric.all_reduce(mine.to(fabric.device), reduce_op="sum")
    found = dict(zip(names, merged.tolist(), strict=True))  # pyrefly: ignore
    return _shares(found) | {"loss": found["sum/loss"] / (found["sum/steps"] / fabric.world_size)}


def _shares(found: dict[str, float]) -> dict[str, float]:
    kinds = [name.removeprefix("all/") for name in found if name.startswith("all/")]
    return {f"right_{kind}": found[f"right/{kind}"] / found[f"all/{kind}"] for kind in kinds if found[f"all/{kind}"]}


def validation_lesson(run: RunConfig) -> Lesson | TrajectoryLesson:
    """Make the lesson that a run's choices are made by."""
    problems = validation_problems(run.task, run.graph, run.train.validation_problems)
    return make_lesson(problems, run, Vocabulary(task=run.task), torch.Generator().manual_seed(0))


@torch.inference_mode()
def validate(learner: Learner, lesson: Lesson | TrajectoryLesson, device: torch.device) -> dict[str, float]:
    """Give the loss of a lesson, and shares of what came out right."""
    was_training = learner.training
    learner.eval()
    totals = {name: count.to(device) for name, count in lesson.totals().items()}
    counts = Counts()
    for piece in pieces(lesson, EVAL_ROWS):
        loss, right = learner(Sealed(piece.to(device), totals))
        add_counts(counts, right | {"loss": loss})
    learner.train(was_training)
    found = {name: float(count) for name, count in counts.items()}
    return {"loss": found["loss"]} | _shares(found)


def _agreed(fabric: Fabric, stop: bool) -> bool:
    """Stop everywhere as soon as one rank wants to."""
    if fabric.world_size == 1:
        return stop
    votes = fabric.all_reduce(torch.tensor(float(stop), device=fabric.device), reduce_op="sum")
    return bool(votes > 0)  # pyrefly: ignore


def _checkpoint(
    run: RunConfig, model: Transformer, mean: RunningMean | None, optimizer: Any, metrics: dict[str, Any]
) -> Checkpoint:
    names = {parameter: name for name, parameter in model.named_parameters()}
    training = {
        f"{key}.{names[parameter]}": value.cpu().contiguous()
        for group in optimizer.param_groups
        for parameter in group["params"]
        for key, value in optimizer.state[parameter].items()
    }
    weights = weights_of(mean.model if mean is not None else model)
    if mean is not None:
        training |= {f"raw.{name}": value for name, value in weights_of(model).items()}
    return Checkpoint(run=run, weights=weights, metrics=metrics | {"provenance": provenance()}, training=training)


def weights_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Give a model's weights by name, as they are stored."""
    return {name: value.detach().cpu().contiguous() for name, value in model.named_parameters()}


def _restore(
    run: RunConfig, folder: Path, model: Transformer, optimizer: torch.optim.AdamW, mean: RunningMean | None
) -> dict[str, Any]:
    """Put weights, running mean and optimiser back; gives the metrics of that moment, nothing if there is none yet."""
    found = [folder / name for name in ("last", "best") if (folder / name).exists()]
    if not found:
        return {}
    checkpoint = read_checkpoint(found[0], training=True)
    if checkpoint.run != run:
        old, new = checkpoint.run.to_dict(), run.to_dict()
        changed = sorted(key for key in old if old[key] != new[key])
        raise UserError(f"{folder / 'config.json'} differs from the checkpoint's own settings in: {', '.join(changed)}")
    training = checkpoint.training or {}
    load_weights(mean.model if mean is not None else model, checkpoint.weights)
    if mean is not None:
        load_weights(model, {n.removeprefix("raw."): v for n, v in training.items() if n.startswith("raw.")})
    for name, parameter in model.named_parameters():
        moments = {key: training[f"{key}.{name}"].to(parameter.device) for key in ("exp_avg", "exp_avg_sq")}
        optimizer.state[parameter] = {"step": training[f"step.{name}"], **moments}
    return {name: value for name, value in checkpoint.metrics.items() if name != "provenance"}


def load_weights(model: torch.nn.Module, weights: dict[str, torch.Tensor]) -> None:
    """Copy weights into a model of exactly these parameters."""
    parameters = dict(model.named_parameters())
    if parameters.keys() != weights.keys() or any(parameters[n].shape != weights[n].shape for n in weights):
        raise UserError("the weights do not fit the configuration beside them: the checkpoint was put together by hand")
    with torch.no_grad():
        for name, value in weights.items():
            parameters[name].copy_(value)


def _prefixed(figures: dict[str, float]) -> dict[str, float]:
    return {f"validation_{name}": value for name, value in figures.items()}


class _Stop:
    """The first Ctrl-C asks the loop to finish its step and save; the second one breaks off."""

    def __init__(self, console: Console) -> None:
        self.asked, self.console = False, console
        self.before = signal.getsignal(signal.SIGINT)
        signal.signal(signal.SIGINT, self._ask)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        self.console.print("finishing this step, then saving (Ctrl-C again to give up)")

    def restore(self) -> None:
        """Let Ctrl-C do what it did before."""
        signal.signal(signal.SIGINT, self.before)
