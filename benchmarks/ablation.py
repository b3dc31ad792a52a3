"""What each choice of the laptop recipe is worth: everything on, then each choice off, in equal time on one core.

python benchmarks/ablation.py                 (runs what is missing, two at a time; three seeds of five minutes each)
python benchmarks/ablation.py --draw          (docs/ablation.md and docs/ablation.png from the results so far)
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from latentloop.train.optimise import RunningMean, make_optimizer
from rich.console import Console

from latentloop.config import RunConfig
from latentloop.evaluate.generalization import evaluate_size
from latentloop.evaluate.pretrained import LatentLoop
from latentloop.files import read_json, write_json, writing
from latentloop.methods import method
from latentloop.model.build import build_model
from latentloop.presets import preset
from latentloop.provenance import provenance
from latentloop.report.figures import ablation_figure
from latentloop.report.graph import save_figure
from latentloop.task.splits import validation_problems
from latentloop.tokens.vocabulary import Vocabulary
from latentloop.train.checkpoint import read_checkpoint
from latentloop.train.devices import make_fabric
from latentloop.train.loop import optimizer_step, train
from latentloop.train.loss import Learner
from latentloop.train.targets import make_lesson
from latentloop.train.validate import validate

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "ablation"
SEEDS = (0, 1, 2)
BUDGET, MINUTES = 3000, 5
"""What a run may cost, in steps of everything on: about so many minutes of one core."""
SIZES, INSTANCES = (16, 32, 64, 128), 64
BASE = "everything on"
CHOICES: dict[str, dict[str, dict[str, Any]]] = {
    BASE: {},
    "true states only": {"train": {"true_states": 1.0, "damaged_states": 0.0}},
    "no skewed states": {"train": {"skew": 0.0}},
    "no look-up read-out": {"model": {"lookup": False}},
    "no partial read-out": {"model": {"partial": False}},
    "no offset heads": {"model": {"offset_heads": 0}},
    "random value embeddings": {"model": {"value_init": "random"}},
    "ReLU MLPs": {"model": {"mlp": "relu", "mlp_ratio": 3}},
    "8 look-up heads": {"model": {"first_heads": None}},
    "MLP in the first layer": {"model": {"first_mlp": True}},
    "last layer everywhere": {"model": {"focus": False}},
    "no log-n attention": {"model": {"sharpen": "none"}},
    "no running mean": {"train": {"ema": 0.0}},
    "constant rate": {"train": {"schedule": "constant"}},
    "fan-in 1 and 2 first": {"train": {"small_fan_ins": (1, 2), "small_share": 0.2}},
    "10 nodes first": {"train": {"small_nodes": 10, "small_share": 0.3}},
    "temperature 1": {"model": {"temperature": 1.0}},
    "hard attention": {"model": {"hard": True}},
    "no offset heads, temperature 1": {"model": {"offset_heads": 0, "temperature": 1.0}},
}
"""Each row changes these settings of ``laptop-add`` at 16 nodes; some put on what larger presets have."""
AFTERWARDS = {"temperature 1": BASE, "hard attention": BASE, "no offset heads, temperature 1": "no offset heads"}
"""Choices that act at inference alone, and the row whose weights they are measured with."""


def run_of(name: str, seed: int) -> RunConfig:
    """Give the run of one row; its number of steps is still to be measured."""
    run = preset("laptop-add")
    run = replace(run, graph=replace(run.graph, nodes=16), train=replace(run.train, small_nodes=None, small_share=0.0))
    for part, settings in CHOICES[name].items():
        run = replace(run, **{part: replace(getattr(run, part), **settings)})
    return replace(run, train=replace(run.train, seed=seed, log_every=25, validate_every=10**6, checkpoint_every=10**6))


def step_costs(run: RunConfig, rounds: int = 30) -> tuple[float, float]:
    """Compare a step in the small first part, and one later on, with a step of everything on, taken in turn."""
    ours, base = stepper(run), stepper(run_of(BASE, 0))

    def cost(number: int) -> float:
        return median([ours(number + ahead) / base(ahead) for ahead in range(rounds)][5:])

    late = cost(run.train.steps)
    return cost(0) if run.train.small_share else late, late


def stepper(run: RunConfig) -> Callable[[int], float]:
    """Make a function that takes a step of a run and gives its seconds."""
    fabric, vocabulary, model = make_fabric(run), Vocabulary(task=run.task), build_model(run)
    learner, optimizer = fabric.setup(Learner(model, method(run.method), run.train), make_optimizer(model, run.train))
    mean = RunningMean(model, run.train.ema)

    def timed(number: int) -> float:
        clock = time.perf_counter()
        optimizer_step(run, number, vocabulary, fabric, learner, optimizer)
        if run.train.ema:
            mean.update(model, number)
        return time.perf_counter() - clock

    return timed


def measure(name: str, seed: int, budget: int) -> list[dict[str, Any]]:
    """Train one row from scratch for the time of so many steps of everything on, and measure what came out.

    Choices that act at inference alone come with the row they belong to.
    """
    run = run_of(name, seed)
    early, late = step_costs(run) if name != BASE else (1.0, 1.0)
    small = run.train.small_share
    run = replace(run, train=replace(run.train, steps=max(2, round(budget / (small * early + (1 - small) * late)))))
    cut = small * run.train.steps

    def minutes(step: int) -> float:
        return (min(step, cut) * early + max(step - cut, 0) * late) * MINUTES / BUDGET

    with tempfile.TemporaryDirectory() as folder:
        outcome = train(run, Path(folder), make_fabric(run), resume=False, console=Console(stderr=True))
        if outcome.reason != "done":
            sys.exit(f"{name}, seed {seed}: {outcome.reason} at step {outcome.step}, nothing is kept")
        rows = [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]
        checkpoint = read_checkpoint((Path(folder) / "last").resolve())
    curve = [row for row in rows if row["kind"] == "train"]
    keys = ("step", "loss", "right_lookup", "right_partial", "right_two", "right_three")
    shared = {
        "seed": seed,
        "steps": outcome.step,
        "step_costs": {"early": early, "late": late},
        "seconds": curve[-1]["seconds"],
        "curve": [{"minutes": minutes(row["step"])} | {key: row[key] for key in keys if key in row} for row in curve],
        "provenance": provenance() | {"threads": torch.get_num_threads()},
    }
    found = []
    for choice in (name, *(choice for choice, trained in AFTERWARDS.items() if trained == name)):
        used = replace(run_of(choice, seed), train=run.train)
        loop = LatentLoop(replace(checkpoint, run=used))
        about = {"choice": choice, "asked": asked_of(choice, seed, budget), "config": used.to_dict()}
        found.append(shared | about | _scores(loop))
    return found


def _scores(loop: LatentLoop) -> dict[str, Any]:
    """Measure a model on what is the same for all rows."""
    solved = {str(nodes): evaluate_size(loop, nodes, INSTANCES).figures()["solved"] for nodes in SIZES}
    base = run_of(BASE, 0)
    problems = validation_problems(base.task, base.graph, 256)
    lesson = make_lesson(problems, base, loop.vocabulary, torch.Generator().manual_seed(0))
    return {
        "solved": solved,
        "validation": validate(Learner(loop.model, loop.method).eval(), lesson, torch.device("cpu")),
    }


def asked_of(name: str, seed: int, budget: int) -> dict[str, Any]:
    """Say what a result must have been asked for, to count as one of this row."""
    return json.loads(json.dumps({"budget": budget, "config": run_of(name, seed).to_dict()}))


def path_of(name: str, seed: int) -> Path:
    """Give the file of one row's result."""
    return RESULTS / f"{name.lower().replace(' ', '-').replace(',', '')}-{seed}.json"


def stored(name: str, seed: int, budget: int) -> dict[str, Any] | None:
    """Read a row's result, if there is one of these very settings."""
    path = path_of(name, seed)
    found = read_json(path) if path.exists() else {}
    return found if found.get("asked") == asked_of(name, seed, budget) else None


def run_missing(budget: int, jobs: int) -> bool:
    """Run every row that has no result yet, each in a process with one thread; says whether all went well."""

    def run_one(task: tuple[int, str]) -> bool:
        seed, name = task
        words = ["--one", name, "--seed", str(seed), "--budget", str(budget)]
        command = [sys.executable, str(Path("benchmarks") / "ablation.py"), *words]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
        print(f"{name}, seed {seed}: {'done' if done.returncode == 0 else done.stderr[-500:]}", flush=True)
        return done.returncode == 0

    tasks = [(seed, name) for seed in SEEDS for name in CHOICES if name not in AFTERWARDS]
    tasks = [(seed, name) for seed, name in tasks if stored(name, seed, budget) is None]
    with ThreadPoolExecutor(jobs) as pool:
        return all(list(pool.map(run_one, tasks)))


def time_to(curve: list[dict[str, float]], share: float = 0.99) -> float | None:
    """Give the minutes after which three-operand equations stay that often right for four points in a row."""
    asked = [row for row in curve if "right_three" in row]
    for place in range(len(asked) - 3):
        if min(row["right_three"] for row in asked[place : place + 4]) >= share:
            return asked[place]["minutes"]
    return None


def spread(found: list[float | None], form: str) -> str:
    """Write the middle of three and, in brackets, its neighbours where they differ; a dash is never."""
    numbers = sorted(found, key=lambda x: float("inf") if x is None else x)
    written = ["-" if x is None else form.format(x) for x in numbers]
    if written[0] == written[-1]:
        return written[0]
    return f"{written[len(written) // 2]} ({' .. '.join((written[0], written[-1]))})"


def draw(budget: int) -> None:
    """Write the table and the picture of all results so far."""
    results: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for name in CHOICES:
        for seed in SEEDS:
            if (found := stored(name, seed, budget)) is not None:
                results[name].append(found)
    if BASE not in results:
        sys.exit(f"no result of {BASE!r} in {RESULTS.relative_to(ROOT)} yet: run `python benchmarks/ablation.py`")
    lines = []
    for name, runs in results.items():
        figures = [
            name,
            str(len(runs)),
            spread([run["steps"] for run in runs], "{:,.0f}"),
            spread([time_to(run["curve"]) for run in runs], "{:.1f}"),
            spread([run["validation"]["loss"] for run in runs], "{:.2g}"),
            *(spread([100 * run["solved"][str(nodes)] for run in runs], "{:.0f}") for nodes in SIZES),
        ]
        lines.append(f"| {' | '.join(figures)} |")
    with writing(ROOT / "docs" / "ablation.md") as file:
        file.write(PAGE.format(rows="\n".join(lines), budget=budget, minutes=MINUTES * budget / BUDGET))
    trained = {name: runs for name, runs in results.items() if name not in AFTERWARDS}
    save_figure(ablation_figure(trained, BASE), ROOT / "docs" / "ablation.png")


PAGE = """# What each choice of the recipe is worth

`laptop-add` at 16 nodes with everything on, then with one choice changed. Every run starts from scratch and gets the same
time, that of {budget:,} steps of everything on: about {minutes:g} minutes of one core. What a step of each row costs is
measured in turn with one of everything on, which is exact to about 8 %; schedules end with the time. Of the seeds, the
middle one, and in brackets the least and the most. *Minutes to 99 %* is when equations of three operands come out right 99
% of the time in training, on the states that the row itself trains on (the right answer for an equation with a gap is a
gap, and true states have many); a dash is never. The loss is that of one update on validation problems of 16 nodes, from
states of all kinds, the same for all rows. The last columns are the share of 64 published problems fully solved, halting at
the fixed point; sizes beyond 16 show what a choice does there, and chose nothing. Temperature and hard attention act at
inference alone: these rows have the weights of *everything on*, or of *no offset heads*, which do not bear a first layer
made sharper after training. *ReLU MLPs* have three hidden units a unit of width where gated ones have two: as many weights.
The number of MLPs in the last layer, the relative bias itself and the pinned factors were not tried without.

| choice | seeds | steps | minutes to 99 % | validation loss | N = 16 | N = 32 | N = 64 | N = 128 |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
{rows}

![Learning curves](ablation.png)

Equations of three operands that come out right in training, against minutes of one core: grey is everything on, colour the
changed choice, one line a seed. Made by `python benchmarks/ablation.py`; results, settings and machine are in
`benchmarks/results/ablation/`.
"""


def main() -> None:
    """Run what is missing, one row, or draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", choices=[name for name in CHOICES if name not in AFTERWARDS])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget", type=int, default=BUDGET)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--draw", action="store_true")
    asked = parser.parse_args()
    if asked.one:
        torch.set_num_threads(1)
        for result in measure(asked.one, asked.seed, asked.budget):
            write_json(path_of(result["choice"], asked.seed), result)
        return
    well = asked.draw or run_missing(asked.budget, asked.jobs)
    draw(asked.budget)
    sys.exit(0 if well else 1)


if __name__ == "__main__":
    main()
