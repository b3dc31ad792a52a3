"""What each choice of the laptop recipe is worth: everything on, then each choice off, in equal time on one core.

python benchmarks/ablation.py                 (runs what is missing, two at a time; three seeds of five minutes each)
python benchmarks/ablation.py --draw          (docs/ablation.md and docs/ablation.png from the results so far)
"""

import argparse
import fcntl
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console

from latentloop.config import RunConfig
from latentloop.evaluate.generalization import evaluate_size
from latentloop.evaluate.pretrained import LatentLoop
from latentloop.files import parse_json, to_json, writing
from latentloop.model.build import build_model
from latentloop.presets import preset
from latentloop.provenance import provenance
from latentloop.report.figures import ablation_figure
from latentloop.report.graph import save_figure
from latentloop.schema import changed
from latentloop.task.splits import validation_problems
from latentloop.tokens.vocabulary import Vocabulary
from latentloop.train.checkpoint import read_checkpoint
from latentloop.train.devices import make_fabric
from latentloop.train.loop import optimizer_step, train
from latentloop.train.loss import Learner
from latentloop.train.optimizer import MovingAverage, make_optimizer
from latentloop.train.targets import make_batch
from latentloop.train.validate import validate

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "ablation.jsonl"
"""The recipe with everything on, and then a line for each run."""
SEEDS = (0, 1, 2)
BUDGET, MINUTES = 3000, 5
"""What a run may cost, in steps of everything on: about so many minutes of one core."""
WARM_UP, ROUNDS = 5, 25
"""Steps that are taken to compare the cost of two rows, before and while it is measured."""
SIZES, INSTANCES = (16, 32, 64, 128), 64
BASE = "everything on"
CHOICES: dict[str, dict[str, Any]] = {
    BASE: {},
    "true states only": {"true_states": 1.0, "damaged_states": 0.0},
    "no skewed states": {"skew": 0.0},
    "no look-up read-out": {"lookup_weight": 0.0},
    "no partial read-out": {"partial_weight": 0.0},
    "no offset heads": {"offset_heads": 0},
    "random value embeddings": {"value_init": "random"},
    "ReLU MLPs": {"mlp": "relu", "mlp_ratio": 3},
    "8 look-up heads": {"first_heads": None},
    "MLP in the first layer": {"first_mlp": True},
    "last layer everywhere": {"focus": False},
    "no log-n attention": {"sharpen": "none"},
    "no running mean": {"ema": 0.0},
    "constant rate": {"schedule": "constant", "final_lr": 0.0},
    "fan-in 1 and 2 first": {"curriculum": ("16/12:0.2",)},
    "10 nodes first": {"curriculum": ("10:0.3",)},
    "temperature 1": {"temperature": 1.0},
    "hard attention": {"hard": True},
    "no offset heads, temperature 1": {"offset_heads": 0, "temperature": 1.0},
}
"""Each row changes these settings of ``laptop-add`` at 16 nodes; some put on what larger presets have."""
GONE = ("last layer everywhere", "hard attention")
"""Rows whose setting was deleted after they were measured: their results stay, and cannot be had again."""
AFTERWARDS = {"temperature 1": BASE, "hard attention": BASE, "no offset heads, temperature 1": "no offset heads"}
"""Choices that act at inference alone, and the row whose weights they are measured with."""
TRAINED = [name for name in CHOICES if name not in GONE and name not in AFTERWARDS]
"""Rows that can be trained."""
CURVE = {"minutes": 3, "loss": 4, "right_lookup": 4, "right_partial": 4, "right_two": 4, "right_three": 4}
"""What is kept of a learning curve, and the decimals of each."""


def run_of(name: str, seed: int) -> RunConfig:
    """Return the run of one row; its number of steps is still to be measured."""
    run = changed(preset("laptop-add"), nodes=16, curriculum=())
    run = changed(run, seed=seed, log_every=25, validate_every=10**6, checkpoint_every=10**6)
    return changed(run, **CHOICES[name])


def step_costs(run: RunConfig) -> tuple[float, float]:
    """Compare a step in the small first part, and one later on, with a step of everything on, taken in turn."""
    ours, base = stepper(run), stepper(run_of(BASE, 0))

    def cost(number: int) -> float:
        return median([ours(number + ahead) / base(ahead) for ahead in range(WARM_UP + ROUNDS)][WARM_UP:])

    late = cost(run.train.steps)
    return cost(0) if run.train.curriculum else late, late


def stepper(run: RunConfig) -> Callable[[int], float]:
    """Return a function that takes a step of a run and returns its seconds."""
    fabric = make_fabric(run)
    vocabulary = Vocabulary(task=run.task)
    model = build_model(run)
    learner, optimizer = fabric.setup(Learner(model), make_optimizer(model, run.train))
    average = MovingAverage(model, run.train.ema)

    def timed(number: int) -> float:
        clock = time.perf_counter()
        optimizer_step(run, number, vocabulary, fabric, learner, optimizer)
        if run.train.ema:
            average.update(model, number)
        return time.perf_counter() - clock

    return timed


def measure(name: str, seed: int, budget: int) -> list[dict[str, Any]]:
    """Train one row from scratch for the time of so many steps of everything on, and measure what came out.

    Choices that act at inference alone come with the row they belong to.
    """
    run = run_of(name, seed)
    early, late = step_costs(run) if name != BASE else (1.0, 1.0)
    small = 1 - run.stages[-1][0]
    run = changed(run, steps=max(2, round(budget / (small * early + (1 - small) * late))))
    cut = small * run.train.steps

    def minutes(step: int) -> float:
        return (min(step, cut) * early + max(step - cut, 0) * late) * MINUTES / BUDGET

    with tempfile.TemporaryDirectory() as folder:
        outcome = train(run, Path(folder), make_fabric(run), resume=False, console=Console(stderr=True))
        if outcome.reason != "done":
            sys.exit(f"{name}, seed {seed}: {outcome.reason} at step {outcome.step}, nothing is kept")
        rows = [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]
        checkpoint = read_checkpoint((Path(folder) / "last").resolve())
    curve = [row | {"minutes": minutes(row["step"])} for row in rows if row["kind"] == "train"]
    shared = {
        "seed": seed,
        "budget": budget,
        "steps": outcome.step,
        "step_costs": {"early": round(early, 4), "late": round(late, 4)},
        "seconds": round(curve[-1]["seconds"], 1),
    }
    about = {"provenance": provenance() | {"threads": torch.get_num_threads()}}
    found = []
    for choice in (name, *(choice for choice in AFTERWARDS if AFTERWARDS[choice] == name and choice not in GONE)):
        trained = LatentLoop(replace(checkpoint, run=replace(run_of(choice, seed), train=run.train)))
        learned = {"curve": columns(curve)} if choice == name else {"weights": name}
        row = {"choice": choice, "changed": CHOICES[choice]} | shared | _scores(trained)
        found.append(json.loads(to_json(row | learned | about)))
    return found


def columns(curve: list[dict[str, float]]) -> dict[str, list[float | None]]:
    """Return a learning curve as short arrays; a quantity that no point has is left out."""
    names = [name for name in CURVE if any(name in point for point in curve)]
    return {name: [round(point[name], CURVE[name]) if name in point else None for point in curve] for name in names}


def _scores(trained: LatentLoop) -> dict[str, Any]:
    """Measure a model on what is the same for all rows."""
    solved = {str(nodes): evaluate_size(trained, nodes, INSTANCES).figures()["solved"] for nodes in SIZES}
    base = run_of(BASE, 0)
    problems = validation_problems(base.task, base.graph, 256)
    batch = make_batch(problems, base, trained.vocabulary, torch.Generator().manual_seed(0))
    validation = validate(Learner(trained.model).eval(), batch, torch.device("cpu"))
    return {"solved": solved, "validation": {name: float(f"{value:.6g}") for name, value in validation.items()}}


def read_rows() -> dict[tuple[str, int], dict[str, Any]]:
    """Return the stored results by row and seed; exit if they are of another recipe than this one."""
    if not RESULTS.exists():
        return {}
    recipe, *rows = (parse_json(line) for line in RESULTS.read_bytes().splitlines())
    if RunConfig.from_dict(recipe["recipe"]) != run_of(BASE, 0):  # a setting added since has its default there
        sys.exit(f"{RESULTS} holds results of another recipe than laptop-add is now: move it away, and measure again")
    return {(row["choice"], row["seed"]): row for row in rows}


def add_rows(found: list[dict[str, Any]]) -> None:
    """Store results, each in the place of its row: the file is replaced as a whole, by one process at a time."""
    with _alone(RESULTS.parent):
        rows = read_rows() | {(row["choice"], row["seed"]): row for row in found}
        places = list(CHOICES)
        ordered = sorted(rows.values(), key=lambda row: (places.index(row["choice"]), row["seed"]))
        with writing(RESULTS) as file:
            file.writelines(to_json(line) + "\n" for line in ({"recipe": run_of(BASE, 0).to_dict()}, *ordered))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait for other processes that hold a folder, and hold it."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def stored(budget: int) -> dict[tuple[str, int], dict[str, Any]]:
    """Return the results of this budget and of the settings that each row has now, by row and seed."""
    return {
        (name, seed): row
        for (name, seed), row in read_rows().items()
        if row["budget"] == budget and row["changed"] == json.loads(to_json(CHOICES[name]))
    }


def run_missing(budget: int, jobs: int) -> bool:
    """Run every row that has no result yet, each in a process with one thread; return whether none failed."""

    def run_one(task: tuple[int, str]) -> bool:
        seed, name = task
        words = ["--one", name, "--seed", str(seed), "--budget", str(budget)]
        command = [sys.executable, str(Path("benchmarks") / "ablation.py"), *words]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
        print(f"{name}, seed {seed}: {'done' if done.returncode == 0 else done.stderr[-500:]}", flush=True)
        return done.returncode == 0

    done = stored(budget)
    tasks = [(seed, name) for seed in SEEDS for name in TRAINED if (name, seed) not in done]
    with ThreadPoolExecutor(jobs) as pool:
        return all(list(pool.map(run_one, tasks)))


def points_of(curve: dict[str, list[float | None]]) -> list[dict[str, float]]:
    """Undo ``columns``: return a learning curve point by point, without what a point does not have."""
    points = (dict(zip(curve, values, strict=True)) for values in zip(*curve.values(), strict=True))
    return [{name: value for name, value in point.items() if value is not None} for point in points]


def time_to(curve: list[dict[str, float]], share: float = 0.99) -> float | None:
    """Return the minutes after which three-operand equations stay that often right for four points in a row."""
    asked = [point for point in curve if "right_three" in point]
    for place in range(len(asked) - 3):
        if min(point["right_three"] for point in asked[place : place + 4]) >= share:
            return asked[place]["minutes"]
    return None


def spread(found: list[float | None], form: str) -> str:
    """Write the median and, where they differ, the least and the most; a dash is never."""
    numbers = sorted(found, key=lambda x: float("inf") if x is None else x)
    written = ["-" if x is None else form.format(x) for x in numbers]
    if written[0] == written[-1]:
        return written[0]
    return f"{written[len(written) // 2]} ({' .. '.join((written[0], written[-1]))})"


def draw(budget: int) -> None:
    """Write the table and the picture of all results so far."""
    rows = stored(budget)
    results: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for name, seed in ((name, seed) for name in CHOICES for seed in SEEDS if (name, seed) in rows):
        row = rows[name, seed]
        learned = row if "curve" in row else rows[row["weights"], seed]
        results[name].append(row | {"curve": points_of(learned["curve"])})
    if BASE not in results:
        sys.exit(f"no result of {BASE!r} in {RESULTS.name} yet: run `python benchmarks/ablation.py`")
    lines = []
    for name, runs in results.items():
        figures = [
            _marked(name),
            str(len(runs)),
            spread([run["steps"] for run in runs], "{:,.0f}"),
            spread([time_to(run["curve"]) for run in runs], "{:.1f}"),
            spread([run["validation"]["loss"] for run in runs], "{:.2g}"),
            *(spread([100 * run["solved"][str(nodes)] for run in runs], "{:.0f}") for nodes in SIZES),
        ]
        lines.append(f"| {' | '.join(figures)} |")
    with writing(ROOT / "docs" / "ablation.md") as file:
        file.write(PAGE.format(rows="\n".join(lines), budget=budget, minutes=MINUTES * budget / BUDGET))
    trained = {_marked(name): runs for name, runs in results.items() if name not in AFTERWARDS}
    save_figure(ablation_figure(trained, BASE), ROOT / "docs" / "ablation.png")


def _marked(name: str) -> str:
    return f"{name} †" if name in GONE else name


PAGE = """# What each choice of the recipe is worth

`laptop-add` at 16 nodes with everything on, then with one choice changed. Every run starts from scratch and gets the same
time, that of {budget:,} steps of everything on: about {minutes:g} minutes of one core. What a step of each row costs is
measured in turn with one of everything on, which is exact to about 8 %; schedules end with the time. Numbers are the median
of the seeds (least .. most). *Minutes to 99 %* is when equations of three operands are right 99 % of the time in training,
on the states that the row itself trains on (the right answer for an equation with a gap is a gap, and true states have
many); a dash is never. The loss is that of one update on validation problems of 16 nodes, from states of all kinds, the same
for all rows. The last columns are the share of 64 published problems fully solved, halting at the fixed point; sizes beyond
16 show what a choice does there, and chose nothing. Temperature and hard attention act at inference alone: these rows have
the weights of *everything on*, or of *no offset heads*, which do not bear a first layer made sharper after training. *ReLU
MLPs* have three hidden units for each unit of width where gated ones have two: as many weights. The number of MLPs in the
last layer, the relative bias itself and the pinned factors were not tried without.

† The setting is gone, so the row cannot be run again. Hard attention was never better; and where only values are read, the
last layer is now always computed at right-hand sides only.

| choice | seeds | steps | minutes to 99 % | validation loss | N = 16 | N = 32 | N = 64 | N = 128 |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
{rows}

![Learning curves](ablation.png)

Equations of three operands that are right in training, against minutes of one core: gray is everything on, color the
changed choice, one line a seed. Made by `python benchmarks/ablation.py`; results, settings and machine are in
`benchmarks/results/ablation.jsonl`.
"""


def main() -> None:
    """Run what is missing, one row, or draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", choices=TRAINED)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget", type=int, default=BUDGET)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--draw", action="store_true")
    asked = parser.parse_args()
    if asked.one:
        torch.set_num_threads(1)
        read_rows()  # better refused now than after the training
        add_rows(measure(asked.one, asked.seed, asked.budget))
        return
    succeeded = asked.draw or run_missing(asked.budget, asked.jobs)
    draw(asked.budget)
    sys.exit(0 if succeeded else 1)


if __name__ == "__main__":
    main()
