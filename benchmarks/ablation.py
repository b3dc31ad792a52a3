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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console

from latentloop.config import RunConfig
from latentloop.evaluate.generalization import evaluate_size
from latentloop.evaluate.pretrained import LatentLoop
from latentloop.files import read_json, write_json, writing
from latentloop.methods import method
from latentloop.presets import preset
from latentloop.provenance import provenance
from latentloop.report.figures import ablation_figure
from latentloop.report.graph import save_figure
from latentloop.tokens.vocabulary import Vocabulary
from latentloop.train.loop import backward, build_model, draw_lesson, make_fabric, train
from latentloop.train.loss import Learner
from latentloop.train.optimise import make_optimizer

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "ablation"
SEEDS = (0, 1, 2)
SIZES, INSTANCES = (16, 32, 64, 128), 64
BASE = "everything on"
CHOICES: dict[str, dict[str, dict[str, Any]]] = {
    BASE: {},
    "true states only": {"train": {"true_states": 1.0, "damaged_states": 0.0}},
    "no skewed states": {"train": {"skew": 0.0}},
    "no look-up read-out": {"model": {"lookup": False}},
    "no partial read-out": {"model": {"partial": False}},
    "one MLP, no partial": {"model": {"partial": False, "mlp_depth": 1}},
    "no offset heads": {"model": {"offset_heads": 0}},
    "no relative bias": {"model": {"offset_heads": 0, "relative_bias": False}},
    "random value embeddings": {"model": {"value_init": "random"}},
    "ReLU MLPs": {"model": {"mlp": "relu", "mlp_ratio": 3}},
    "8 look-up heads": {"model": {"first_heads": None}},
    "MLP in the first layer": {"model": {"first_mlp": True}},
    "last layer everywhere": {"model": {"focus": False}},
    "no log-n attention": {"model": {"sharpen": "none"}},
    "temperature 1": {"model": {"temperature": 1.0}},
    "no running mean": {"train": {"ema": 0.0}},
    "constant rate": {"train": {"schedule": "constant"}},
    "fan-in 1 and 2 first": {"train": {"small_fan_ins": (1, 2), "small_share": 0.2}},
    "10 nodes first": {"train": {"small_nodes": 10, "small_share": 0.3}},
}
"""Each row changes these settings of ``laptop-add`` at 16 nodes; the last two are choices of larger presets, put on."""


def run_of(name: str, seed: int) -> RunConfig:
    """Give the run of one row; its number of steps is still to be measured."""
    run = preset("laptop-add")
    run = replace(run, graph=replace(run.graph, nodes=16), train=replace(run.train, small_nodes=None, small_share=0.0))
    for part, settings in CHOICES[name].items():
        run = replace(run, **{part: replace(getattr(run, part), **settings)})
    return replace(run, train=replace(run.train, seed=seed, log_every=25, validate_every=10**6, checkpoint_every=10**6))


def seconds_a_step(run: RunConfig, steps: int = 24) -> float:
    """Time some steps, so that the schedule of a run ends with its time."""
    fabric, vocabulary, model = make_fabric(run), Vocabulary(task=run.task), build_model(run)
    learner, optimizer = fabric.setup(Learner(model, method(run.method), run.train), make_optimizer(model, run.train))
    found = []
    for step in range(steps):
        clock = time.perf_counter()
        backward(fabric, learner, draw_lesson(run, step, vocabulary, 0), run.train.micro_batch)
        optimizer.step()
        optimizer.zero_grad()
        found.append(time.perf_counter() - clock)
    return median(found[4:])


def measure(name: str, seed: int, seconds: float) -> dict[str, Any]:
    """Train one row from scratch for so many seconds, and measure what came out."""
    run = run_of(name, seed)
    run = replace(run, train=replace(run.train, steps=max(2, round(seconds / (1.03 * seconds_a_step(run))))))
    with tempfile.TemporaryDirectory() as folder:
        outcome = train(
            run, Path(folder), make_fabric(run), resume=False, minutes=1.2 * seconds / 60, console=Console(stderr=True)
        )
        rows = [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]
        loop = LatentLoop.from_pretrained(Path(folder) / "last")
        solved = {nodes: evaluate_size(loop, nodes, INSTANCES).figures()["solved"] for nodes in SIZES}
    curve = [row for row in rows if row["kind"] == "train"]
    keys = ("step", "seconds", "loss", "right_lookup", "right_partial", "right_two", "right_three")
    return {
        "choice": name,
        "seed": seed,
        "steps": outcome.step,
        "seconds": curve[-1]["seconds"],
        "validation": next(row for row in reversed(rows) if row["kind"] == "validation"),
        "solved": solved,
        "curve": [{key: row[key] for key in keys if key in row} for row in curve],
        "config": run.to_dict(),
        "provenance": provenance() | {"threads": torch.get_num_threads()},
    }


def path_of(name: str, seed: int) -> Path:
    """Give the file of one row's result."""
    return RESULTS / f"{name.lower().replace(' ', '-').replace(',', '')}-{seed}.json"


def run_missing(seconds: float, jobs: int) -> None:
    """Run every row that has no result yet, each in a process with one thread."""

    def run_one(task: tuple[int, str]) -> None:
        seed, name = task
        words = ["--one", name, "--seed", str(seed), "--seconds", str(seconds)]
        command = [sys.executable, str(Path("benchmarks") / "ablation.py"), *words]
        done = subprocess.run(
            command, env={**os.environ, "OMP_NUM_THREADS": "1"}, cwd=ROOT, capture_output=True, text=True
        )
        print(f"{name}, seed {seed}: {'done' if done.returncode == 0 else done.stderr[-500:]}", flush=True)

    tasks = [(seed, name) for seed in SEEDS for name in CHOICES if not path_of(name, seed).exists()]
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(run_one, tasks))


def time_to(curve: list[dict[str, float]], share: float = 0.99) -> float | None:
    """Give the seconds after which three-operand equations stay that often right for four points in a row."""
    for place in range(len(curve) - 3):
        if min(row["right_three"] for row in curve[place : place + 4]) >= share:
            return curve[place]["seconds"]
    return None


def spread(found: list[float | None], form: str) -> str:
    """Write the middle of three and, in brackets, its neighbours; a dash is never."""
    numbers = sorted(found, key=lambda x: float("inf") if x is None else x)
    written = ["-" if x is None else form.format(x) for x in numbers]
    return f"{written[len(written) // 2]} ({' .. '.join((written[0], written[-1]))})"


def draw() -> None:
    """Write the table and the picture of all results so far."""
    results: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for name in CHOICES:
        for seed in SEEDS:
            if path_of(name, seed).exists():
                results[name].append(read_json(path_of(name, seed)))
    lines = []
    for name, runs in results.items():
        figures = [
            name,
            str(len(runs)),
            spread([run["steps"] for run in runs], "{:,.0f}"),
            spread([time_to(run["curve"]) for run in runs], "{:.0f}"),
            spread([run["validation"]["loss"] for run in runs], "{:.1e}"),
            *(spread([100 * run["solved"][str(nodes)] for run in runs], "{:.0f}") for nodes in SIZES),
        ]
        lines.append(f"| {' | '.join(figures)} |")
    with writing(ROOT / "docs" / "ablation.md") as file:
        file.write(
            PAGE.format(rows="\n".join(lines), command=results[BASE][0]["provenance"]["command"].split(" --one")[0])
        )
    save_figure(ablation_figure(results, BASE), ROOT / "docs" / "ablation.png")


PAGE = """# What each choice of the recipe is worth

`laptop-add` at 16 nodes with everything on, then with one choice changed. Every run gets five minutes of one core from
scratch; a row's number of steps is what its steps cost, and its schedule ends with its time. Three seeds: the middle one,
and in brackets the least and the most. *Time to 99 %* is when equations of three operands come out right 99 % of the time
in training; a dash is never. *Loss* is that of one update on validation problems of 16 nodes. The last columns are the
share of 64 published problems fully solved, halting at the fixed point; sizes beyond 16 are shown to be learned from and
chose nothing.

| choice | seeds | steps | seconds to 99 % | validation loss | N = 16 | N = 32 | N = 64 | N = 128 |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
{rows}

![Learning curves](ablation.png)

Equations of three operands that come out right, against seconds of one core: grey is everything on, colour the changed
choice, one line a seed. Made by `python {command}`; results, settings and machine are in `benchmarks/results/ablation/`.
"""


def main() -> None:
    """Run what is missing, one row, or draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", choices=CHOICES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--draw", action="store_true")
    asked = parser.parse_args()
    if asked.one:
        torch.set_num_threads(1)
        write_json(path_of(asked.one, asked.seed), measure(asked.one, asked.seed, asked.seconds))
        return
    if not asked.draw:
        run_missing(asked.seconds, asked.jobs)
    draw()


if __name__ == "__main__":
    main()
