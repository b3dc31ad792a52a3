"""What each part of the laptop recipe is worth: the recipe, then each part taken away, in equal time on one core.

python benchmarks/ablation.py                 (runs what is missing, two at a time)
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
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from latentloop.config import ModelConfig, RunConfig
from latentloop.evaluate.certify import worst_lookups
from latentloop.evaluate.generalization import evaluate_size
from latentloop.evaluate.pretrained import LatentLoop
from latentloop.evaluate.rollout import default_cap, roll_out
from latentloop.files import parse_json, to_json, writing
from latentloop.model.build import build_model
from latentloop.presets import preset
from latentloop.provenance import provenance
from latentloop.report.figures import ablation_figure
from latentloop.report.graph import save_figure
from latentloop.schema import changed
from latentloop.task.oracle import solve
from latentloop.task.splits import validation_problems
from latentloop.tokens.vocabulary import Vocabulary
from latentloop.train.checkpoint import read_checkpoint
from latentloop.train.devices import make_fabric
from latentloop.train.loop import optimizer_step, train
from latentloop.train.loss import Learner
from latentloop.train.optimizer import MovingAverage, make_optimizer

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "ablation.jsonl"
"""The recipes, and then a line for each run."""
SEEDS = (0, 1, 2)
TASKS: dict[str, tuple[str, float]] = {"add": ("laptop-add", 1.0), "all": ("laptop-all", 0.5)}
"""The preset of each task, and the share of its steps that a run of it gets here."""
WARM_UP, ROUNDS = 5, 40
"""Steps that are taken to compare the cost of two rows, before and while it is measured."""
SIZES, INSTANCES, VALIDATION = (64, 128), 64, 512
BASE = "the recipe"
NEITHER: dict[str, Any] = {"lookup_weight": 0.0, "partial_weight": 0.0}
NESTED: dict[str, dict[str, Any]] = {
    "neither read-out": NEITHER,
    "neither read-out, no average": NEITHER | {"ema": 0.0},
    "neither read-out, no average, no skew": NEITHER | {"ema": 0.0, "skew": 0.0},
    "none of the five": NEITHER | {"ema": 0.0, "skew": 0.0, "curriculum": ()},
}
"""Parts that sums do not miss one at a time, taken away one after the other."""
CHOICES: dict[str, dict[str, Any]] = {
    BASE: {},
    "no look-up read-out": {"lookup_weight": 0.0},
    "no partial read-out": {"partial_weight": 0.0},
    "no skewed states": {"skew": 0.0},
    "no curriculum": {"curriculum": ()},
    "no moving average": {"ema": 0.0},
    "no noise in look-ups": {"lookup_noise": 0.0},
    "true states only": {"true_states": 1.0},
    "AdamW alone": {"optimizer": "adamw", "muon_lr": None, "weight_decay": 0.01},
    **NESTED,
    "no average, no look-up read-out": {"ema": 0.0, "lookup_weight": 0.0},
    "with log-n attention": {"sharpen": "log-n"},
    "with gated MLPs": {"mlp": "gated", "mlp_ratio": 3},
    "with character embeddings": {"value_init": "characters"},
}
"""What each row changes; a gated MLP of ratio 3 has about as many weights as a plain one of ratio 4."""
GONE = ("with log-n attention", "with gated MLPs", "with character embeddings")
"""Rows whose setting is no longer in the code: they run on a checkout that still has it, and their results stay."""
ONLY = dict.fromkeys(("no noise in look-ups", "true states only", "AdamW alone", *NESTED), "add") | {
    "no average, no look-up read-out": "all"
}
"""The task of the rows that are measured for one task alone."""
ROWS = [(task, name) for task in TASKS for name in CHOICES if ONLY.get(name, task) == task]
CURVE = {"step": 0, "seconds": 1, "loss": 4, "right_lookup": 4, "right_partial": 4, "right_two": 4, "right_three": 4}
"""What is kept of a learning curve, and the decimals of each."""


def run_of(task: str, name: str, seed: int) -> RunConfig:
    """Return the run of one row; where its steps cost more or less than the recipe's, it gets fewer or more of them."""
    source, share = TASKS[task]
    run = preset(source)
    run = changed(run, seed=seed, steps=round(share * run.train.steps), log_every=25)
    run = changed(run, validate_every=10**6, checkpoint_every=10**6)
    return changed(run, **CHOICES[name])


def step_cost(task: str, name: str) -> float:
    """Compare steps at places all over the run, in every stage of its curriculum, with those of the recipe, taken in turn."""
    ours, base = (stepper(run_of(task, which, 0)) for which in (name, BASE))
    steps = run_of(task, BASE, 0).train.steps
    places = [int((place + 0.5) * steps / ROUNDS) for place in range(ROUNDS)]
    pairs = [(ours(place), base(place)) for place in [places[-1]] * WARM_UP + places][WARM_UP:]
    return sum(mine for mine, _ in pairs) / sum(theirs for _, theirs in pairs)


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


def measure(task: str, name: str, seed: int) -> dict[str, Any]:
    """Train one row from scratch, for the time of the recipe, and measure what came out."""
    run = run_of(task, name, seed)
    cost = step_cost(task, name) if name != BASE else 1.0
    run = changed(run, steps=max(2, round(run.train.steps / cost)))
    with tempfile.TemporaryDirectory() as folder:
        outcome = train(run, Path(folder), make_fabric(run), resume=False, console=Console(stderr=True))
        if outcome.reason != "done":
            sys.exit(f"{task}, {name}, seed {seed}: {outcome.reason} at step {outcome.step}, nothing is kept")
        rows = [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]
        checkpoint = read_checkpoint((Path(folder) / "last").resolve())
    row = {
        "task": task,
        "choice": name,
        "changed": CHOICES[name],
        "seed": seed,
        "steps": outcome.step,
        "step_cost": round(cost, 4),
        **_scores(LatentLoop(checkpoint), name),
        "curve": columns([row for row in rows if row["kind"] == "train"]),
        "provenance": provenance() | {"threads": torch.get_num_threads()},
    }
    return json.loads(to_json(row))


def columns(curve: list[dict[str, float]]) -> dict[str, list[float | None]]:
    """Return a learning curve as short arrays; a quantity that no point has is left out."""
    names = [name for name in CURVE if any(name in point for point in curve)]
    return {name: [round(point[name], CURVE[name]) if name in point else None for point in curve] for name in names}


def _scores(trained: LatentLoop, name: str) -> dict[str, Any]:
    """Measure a model on what is the same for all rows of a task."""
    run = trained.run
    problems = validation_problems(run.task, replace(run.graph, fan_ins=None), VALIDATION)
    truth = solve(problems).values
    limits = np.full(len(problems), default_cap(run.graph.nodes))
    ends = roll_out(trained.model, problems, limits)
    unsolved = sum(not np.array_equal(end.states[-1], values) for end, values in zip(ends, truth, strict=True))
    solved = {str(nodes): evaluate_size(trained, nodes, INSTANCES).figures()["solved"] for nodes in SIZES}
    worst = worst_lookups(trained)
    least = None if worst is None or "log-n" in CHOICES[name].values() else worst["attention"]["128"]["known"]
    return {"unsolved": unsolved, "solved": solved, "least_attention": least}


def read_rows() -> dict[tuple[str, str, int], dict[str, Any]]:
    """Return the stored results by task, row and seed; exit if they are of other recipes than these."""
    if not RESULTS.exists():
        return {}
    recipes, *rows = (parse_json(line) for line in RESULTS.read_bytes().splitlines())
    today = json.loads(to_json(recipes_of()))
    if any(not _same(recipes[task], today[task]) for task in TASKS):
        sys.exit(f"{RESULTS} holds results of another recipe than today's: move it away, and measure again")
    return {(row["task"], row["choice"], row["seed"]): row for row in rows}


def recipes_of() -> dict[str, Any]:
    """Return the settings of each task's recipe."""
    return {task: run_of(task, BASE, 0).to_dict() for task in TASKS}


def _same(stored: Any, now: Any) -> bool:
    """Return whether a recipe is the stored one, passing over settings deleted since, and new ones that are off."""
    if isinstance(now, dict):
        return isinstance(stored, dict) and all(_same(stored.get(name), value) for name, value in now.items())
    return stored == now


def add_row(row: dict[str, Any]) -> None:
    """Add a result to those stored, one process at a time."""
    with _alone(RESULTS.parent):
        rows = read_rows() | {(row["task"], row["choice"], row["seed"]): row}
        ordered = sorted(rows.values(), key=lambda row: (ROWS.index((row["task"], row["choice"])), row["seed"]))
        with writing(RESULTS) as file:
            file.writelines(to_json(line) + "\n" for line in (recipes_of(), *ordered))


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


def run_missing(jobs: int, tasks: Sequence[str], seeds: Sequence[int]) -> bool:
    """Run every row that has no result yet, each in a process with one thread; return whether none failed."""

    def run_one(job: tuple[int, tuple[str, str]]) -> bool:
        seed, (task, name) = job
        command = [sys.executable, str(Path("benchmarks") / "ablation.py"), "--one", task, name, "--seed", str(seed)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
        print(f"{task}, {name}, seed {seed}: {'done' if done.returncode == 0 else done.stderr[-500:]}", flush=True)
        return done.returncode == 0

    done = read_rows()
    wanted = [(seed, row) for seed in seeds for row in ROWS if row[0] in tasks and (*row, seed) not in done]
    jobs_left = [(seed, row) for seed, row in wanted if row[1] not in GONE or hasattr(ModelConfig, "sharpen")]
    with ThreadPoolExecutor(jobs) as pool:
        return all(list(pool.map(run_one, jobs_left)))


def points_of(curve: dict[str, list[float | None]]) -> list[dict[str, float]]:
    """Undo ``columns``: return a learning curve point by point, without what a point does not have."""
    points = (dict(zip(curve, values, strict=True)) for values in zip(*curve.values(), strict=True))
    return [{name: value for name, value in point.items() if value is not None} for point in points]


def steps_to(row: dict[str, Any], share: float = 0.99) -> float | None:
    """Return the share of its time after which three-operand equations stay that often right for four points in a row."""
    asked = [point for point in points_of(row["curve"]) if "right_three" in point]
    for place in range(len(asked) - 3):
        if min(point["right_three"] for point in asked[place : place + 4]) >= share:
            return 100 * asked[place]["step"] / row["steps"]
    return None


def spread(found: list[float | None], form: str) -> str:
    """Write the median and, where they differ, the least and the most; a dash is never."""
    numbers = sorted(found, key=lambda x: float("inf") if x is None else x)
    written = ["-" if x is None else form.format(x) for x in numbers]
    if written[0] == written[-1]:
        return written[0]
    return f"{written[len(written) // 2]} ({' .. '.join((written[0], written[-1]))})"


def draw() -> None:
    """Write the tables and the pictures of all results so far."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {task: defaultdict(list) for task in TASKS}
    for (task, name, _), row in read_rows().items():
        found[task][name].append(row)
    drawn = [task for task in TASKS if BASE in found[task]]
    if not drawn:
        sys.exit(f"no result of {BASE!r} in {RESULTS.name} yet: run `python benchmarks/ablation.py`")
    for task in drawn:
        panels = {
            name: [{"curve": [_shared(point, run["steps"]) for point in points_of(run["curve"])]} for run in runs]
            for name, runs in found[task].items()
        }
        save_figure(ablation_figure(panels, BASE), ROOT / "docs" / f"ablation-{task}.png")
    with writing(ROOT / "docs" / "ablation.md") as file:
        tables = [_table(title, found) for title in GROUPS]
        file.write(PAGE.format(tables="\n".join(tables), pictures="\n\n".join(_picture(task, found) for task in drawn)))


def _shared(point: dict[str, float], steps: int) -> dict[str, float]:
    return point | {"share": 100 * point["step"] / steps}


def _picture(task: str, found: dict[str, dict[str, list[dict[str, Any]]]]) -> str:
    steps = found[task][BASE][0]["steps"]
    return f"{TITLES[task]}, {steps:,} steps:\n\n![Learning curves: {TITLES[task]}](ablation-{task}.png)"


def _table(title: str, found: dict[str, dict[str, list[dict[str, Any]]]]) -> str:
    """Write a group of rows, below the recipe, with the figures of both tasks side by side."""
    names = [name for name in (BASE, *GROUPS[title]) if any(found[task].get(name) for task in TASKS)]
    worth = [name for name in names if name in WORTH]
    heads = [
        "",
        *(f"{SHORT[task]}: {head}" for task in TASKS for head in HEADS[task]),
        *(["stays for"] if worth else []),
    ]
    lines = [heads, ["---"] * len(heads)]
    for name in names:
        figures = [figure for task in TASKS for figure in _figures(task, found[task].get(name, []))]
        lines.append([name, *figures, *([WORTH.get(name, "")] if worth else [])])
    return "\n".join([f"## {title}", "", *(f"| {' | '.join(line)} |" for line in lines), ""])


def _figures(task: str, runs: list[dict[str, Any]]) -> list[str]:
    """Write what a table shows of the runs of one row, and the number of seeds where some are missing."""
    if not runs:
        return [""] * len(HEADS[task])
    missing = "" if len(runs) == len(SEEDS) else f", {len(runs)} of {len(SEEDS)} seeds"
    figures = {
        "unsolved": spread([run["unsolved"] for run in runs], "{:.0f}") + missing,
        "% of the time to 99 %": spread([steps_to(run) for run in runs], "{:.0f}"),
        "least attention": spread([run["least_attention"] for run in runs], "{:.4f}"),
        "N = 128": spread([100 * list(run["solved"].values())[-1] for run in runs], "{:.0f}"),
    }
    return [figures[head] for head in HEADS[task]]


HEADS = {
    "add": ["% of the time to 99 %", "unsolved", "least attention", "N = 128"],
    "all": ["unsolved", "N = 128"],
}
"""What is shown of each task: half of its time is too short for 99 % of all operations, and look-ups are alike there."""
SHORT = {"add": "sums", "all": "all"}
TITLES = {"add": "Sums", "all": "All three operations, half of the recipe's time"}
WORTH = {
    "no look-up read-out": "unseen shapes (sums), the last wrong entries (all)",
    "no partial read-out": "unseen shapes (sums), the arithmetic (all)",
    "no skewed states": "unseen shapes (sums), the arithmetic (all)",
    "no curriculum": "cheap early steps: unsolved problems (all), or where other parts are missing too (sums)",
    "no moving average": "unseen shapes (sums), the last wrong entries (all)",
    "no noise in look-ups": "margins of look-ups",
    "true states only": "everything",
    "AdamW alone": "everything",
}
"""Why each part is in the recipe, from these runs and from those of full length in the log."""
GROUPS: dict[str, tuple[str, ...]] = {
    "One part taken away": tuple(WORTH),
    "Several parts taken away": tuple(name for name in CHOICES if name not in (BASE, *WORTH, *GONE)),
    "Settings that are gone": GONE,
}
PAGE = """# What each part of the recipe is worth

The recipe with every help, then parts taken away or added. Every run starts from scratch and gets the same time on one core:
where a step costs more, there are fewer. Numbers are the median of three seeds (least .. most), for *sums* and for *all* three
operations, the latter in half of the recipe's time. *Time to 99 %* is the share of it after which equations of three operands
stay 99 % right in training, on the states that the row itself trains on; a dash is never. *Unsolved* are, of 512 validation
problems of 32 nodes, those not solved when the model halts at the fixed point. *Least attention* is the worst case of looking
up a number, over every problem of 128 nodes and every state (not computed for log-n). *N = 128* is the share of 64 published
problems fully solved: it shows what a part does beyond the training sizes, and chose nothing.

{tables}
*Unseen shapes*: with both read-outs and skewed states gone together, and all the rest at full length, one seed of two
failed on one chain of 128 nodes in 64; without the average too, one seed failed on two stars as well. *Settings that are
gone* made no difference for sums. For all operations, log-n attention leaves fewer problems unsolved in half of the time;
at full length the recipe solves all without it, and the worst-case bound of look-ups does not cover it. Their rows ran on a
commit that had them.

## Learning curves

Equations of three operands that are right in training, against time: gray is the recipe, color the changed part, one line per
seed.

{pictures}

The [log](log.md) says what follows from all this, by rules written before the runs ("what the ablation will decide", "plainer
presets"). Made by `python benchmarks/ablation.py`; results, settings and machine are in `benchmarks/results/ablation.jsonl`.
"""


def main() -> None:
    """Run what is missing, one row, or draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", nargs=2, metavar=("TASK", "ROW"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS))
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--draw", action="store_true")
    asked = parser.parse_args()
    if asked.one:
        torch.set_num_threads(1)
        read_rows()  # better refused now than after the training
        task, name = asked.one
        add_row(measure(task, name, asked.seed))
        return
    succeeded = asked.draw or run_missing(asked.jobs, asked.tasks, asked.seeds)
    draw()
    sys.exit(0 if succeeded else 1)


if __name__ == "__main__":
    main()
