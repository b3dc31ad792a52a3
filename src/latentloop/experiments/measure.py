"""Train and measure one run of an experiment: everything that figures and claims are read from, in one document."""

import shutil
from pathlib import Path
from signal import Signals
from typing import Any

import numpy as np
from rich.console import Console

from latentloop.errors import MachineError, Terminated, UserError
from latentloop.evaluate.entropy import attention_entropy
from latentloop.evaluate.flops import operations_per_problem
from latentloop.evaluate.generalization import evaluate_sizes
from latentloop.evaluate.pretrained import LatentLoop
from latentloop.evaluate.rollout import roll_out
from latentloop.experiments.jobs import MINUTES, TIMED, Evaluation, Job
from latentloop.experiments.store import ALLOWED, ALLOWED_PROBLEMS, FORMAT, SHIPPED, Result, labels
from latentloop.provenance import provenance
from latentloop.task.oracle import solve
from latentloop.task.splits import published_problems
from latentloop.train.checkpoint import CONFIG, is_checkpoint, weights_hash
from latentloop.train.cost import estimate
from latentloop.train.devices import make_fabric
from latentloop.train.log import read_log
from latentloop.train.loop import train

ENTROPY_PROBLEMS = 16
CURVE_POINTS = 120
"""Points of a learning curve that are kept, at most."""
DIGITS = 5


def run_folder(job: Job, runs: Path) -> Path:
    """Return where a job is trained."""
    return runs / f"{job.name}-{job.key}"


def measure(
    job: Job, runs: Path, console: Console, weights: Path | None = None, accelerator: str | None = None
) -> Result:
    """Train a job in its run folder, or go on with it, then measure it; keep a copy of its weights if asked to.

    Where runs are compared by time they use the CPU, unless told otherwise, else what there is.
    """
    folder = run_folder(job, runs)
    resume = (folder / CONFIG).exists()
    try:
        fabric = make_fabric(job.run, accelerator=accelerator or ("cpu" if job.point.scale in TIMED else "auto"))
    except UserError as error:
        raise MachineError(str(error)) from error
    begin = _start(job, [SHIPPED / "weights", *([weights] if weights else [])])
    outcome = train(job.run, folder, fabric, resume=resume, weights=begin, console=console)
    if outcome.signal is not None:  # its folder goes on where it stopped, also where that was the last step
        raise Terminated if outcome.signal == Signals.SIGTERM else KeyboardInterrupt
    trained = LatentLoop.from_pretrained(folder / "last", device=fabric.device.type)
    document = result(job, trained, _curve(folder))
    if weights is not None:
        shutil.rmtree(weights / job.name, ignore_errors=True)
        trained.save_pretrained(weights / job.name)
    return document


def _start(job: Job, folders: list[Path]) -> Path | None:
    """Return where the weights are that a job begins with, if it does and they are there."""
    found = (one for folder in folders for one in sorted(folder.glob("*")) if is_checkpoint(one))
    start = job.run.train.start
    return None if start is None else next((one for one in found if weights_hash(one) == start), None)


def measure_again(job: Job, before: Result, weights: Path) -> Result:
    """Measure stored weights once more; what is known of their training is kept."""
    trained = LatentLoop.from_pretrained(weights / job.name)
    wanted = before["model"]["sha256"]
    if trained.sha256 != wanted:
        raise UserError(
            f"the weights in {weights / job.name} are not those of the stored result: its model is {wanted[:12]}, these are "
            f"{trained.sha256[:12]}; put the right ones there, or move them away"
        )
    return result(job, trained, before["training"]["curve"]) | {"training": before["training"]}


def told(job: Job, runs: Path) -> dict[str, Any]:
    """Return how far the training of a job is, from the last line of its metrics."""
    rows = read_log(run_folder(job, runs))
    return next(({"step": row["step"], "seconds": row["seconds"]} for row in rows[::-1] if "seconds" in row), {})


def result(job: Job, trained: LatentLoop, curve: dict[str, list[int | float | None]]) -> Result:
    """Measure a trained model, and put together what is stored of it."""
    wanted = job.evaluation
    evaluation = evaluate_sizes(trained, wanted.sizes, wanted.instances)
    run, cost = job.run, estimate(job.run)
    metrics = trained.checkpoint.metrics
    limit = run.graph.nodes
    shares = {row["nodes"]: row["solved"] for row in evaluation["rows"]}
    inside, outside = ([share for nodes, share in shares.items() if (nodes <= limit) == within] for within in (1, 0))
    return {
        "format": FORMAT,
        "point": job.point.name,
        "seed": job.seed,
        "key": job.key,
        "labels": labels(job),
        "training": {
            "minutes_of_one_core": job.point.budget * MINUTES if job.point.scale in TIMED else None,
            "steps": run.train.steps,
            "problems": run.problems,
            "tokens": run.train.steps * cost.tokens_per_step,
            "operations": run.train.steps * cost.flops_per_step,
            "seconds": metrics.get("seconds"),
            "provenance": metrics.get("provenance"),
            "curve": curve,
        },
        "validation": evaluation["validation"],
        "rows": [row | operations_per_problem(trained, row) for row in evaluation["rows"]],
        "curves": evaluation["curves"],
        "average": float(np.mean(list(shares.values()))),
        "average_in": float(np.mean(inside)),
        "average_out": float(np.mean(outside)) if outside else None,
        "allowed": allowed(trained, wanted) if trained.method.latent else None,
        "entropy": {
            str(nodes): attention_entropy(trained, nodes, ENTROPY_PROBLEMS) for nodes in wanted.entropy
        } if trained.method.latent else None,
        "approximate_fixpoint": evaluation["approximate_fixpoint"],
        "model": evaluation["model"],
        "settings": evaluation["settings"],
        "provenance": provenance(),
    }  # fmt: skip


def allowed(trained: LatentLoop, wanted: Evaluation) -> dict[str, dict[str, float]]:
    """Return the share solved, by size, when a model is allowed more iterations than it needs.

    Methods that adapt need as many as the problem is deep, others their own number.
    """
    found: dict[str, dict[str, float]] = {}
    for nodes in wanted.allowed:
        problems = published_problems(trained.run.task, nodes, ALLOWED_PROBLEMS)
        solution = solve(problems)
        need = solution.depths.max(1).astype(np.int64)
        if trained.run.method.iterations is not None:
            need = np.full_like(need, trained.run.method.iterations)
        rollouts = roll_out(trained.model, problems, max(ALLOWED) * need, halt_at_fixpoint=False)
        found[str(nodes)] = {
            f"{times}x": float(
                np.mean(
                    [
                        np.array_equal(rollout.at(times * int(own)), values)
                        for rollout, own, values in zip(rollouts, need, solution.values, strict=True)
                    ]
                )
            )
            for times in ALLOWED
        }
    return found


def _curve(folder: Path) -> dict[str, list[int | float | None]]:
    """Return a run's learning curve as columns, thinned out."""
    rows = [row for row in read_log(folder) if row["kind"] == "train"]
    if not rows:
        raise UserError(
            f"{folder} has lost its metrics.jsonl, which learning curves are made of: move it away to train again"
        )
    every = -(-len(rows) // CURVE_POINTS)
    rows = rows[every - 1 :: every]
    names = [name for name in rows[-1] if name not in ("kind", "lr") and isinstance(rows[-1][name], int | float)]
    return {name: [_rounded(row.get(name)) for row in rows] for name in names}


def _rounded(value: int | float | None) -> int | float | None:
    return None if value is None else round(value, DIGITS)
