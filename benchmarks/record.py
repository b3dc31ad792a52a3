"""Train a preset with three seeds, one after the other on an idle machine, then measure each on problems nobody has seen.

python benchmarks/record.py laptop-add            (runs in runs/, then benchmarks/results/laptop-add-seed*.json)
python benchmarks/record.py --table               (benchmarks/records.md from the stored results)

A run that is there is not trained again, and a result that is there is not measured again: remove it to do so.
"""

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from latentloop.evaluate.certify import certify, worst_lookups
from latentloop.evaluate.generalization import evaluate_sizes
from latentloop.evaluate.pretrained import LatentLoop
from latentloop.evaluate.stress import run_scenario, scenarios
from latentloop.files import read_json, write_json, writing
from latentloop.presets import preset
from latentloop.provenance import provenance
from latentloop.schema import changed
from latentloop.train.devices import make_fabric
from latentloop.train.loop import train

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
SEEDS = (0, 1, 2)
SIZES, INSTANCES, STRESSED = (32, 64, 128), 1024, 64
SKIP = {"laptop-add": 4096, "laptop-all": 4096, "laptop-all-4096": 8192}
"""Published problems before this one may have been seen while the recipe was sought."""
TIMED = ("laptop-add", "laptop-all")
"""Presets that a record is kept of; the largest one is trained two seeds at a time, one thread each."""
GOAL = 128
"""Nodes of the problems that a record must solve all of."""


def folder_of(name: str, seed: int) -> Path:
    """Return the run folder of a seed."""
    return ROOT / "runs" / f"record-{name}-{seed}"


def result_of(name: str, seed: int) -> Path:
    """Return where the result of a seed is stored."""
    return RESULTS / f"{name}-seed{seed}.json"


def measure(name: str, seed: int) -> dict[str, Any]:
    """Measure a trained run: fresh problems, the certificate, and where it was not trained."""
    trained = LatentLoop.from_pretrained(folder_of(name, seed) / "last")
    evaluation = evaluate_sizes(trained, SIZES, INSTANCES, skip=SKIP[name])
    assert not trained.model.training  # noise is for training alone
    certificate = [certify(trained, 32)]
    trouble = [scenario for scenario in scenarios(trained, GOAL, STRESSED, SKIP[name]) if scenario.nodes == GOAL]
    stressed = [{"scenario": one.name, "nodes": GOAL} | run_scenario(trained, one).figures() for one in trouble]
    return {
        "training": trained.checkpoint.metrics,
        "rows": evaluation["rows"],
        "skip": SKIP[name],
        "sizes": certificate,
        "worst_lookups": worst_lookups(trained),
        "stress": stressed,
        "model": trained.describe(),
        "provenance": provenance(),
    }


TABLE = """# Records

Seconds of training on two idle cores to a model that then solves {problems:,} of {problems:,} fresh problems of {nodes} nodes,
halting at the fixed point. Trained on up to 32 nodes. A record needs three seeds in a row, 0, 1 and 2, and counts the slowest.
Made by `python benchmarks/record.py PRESET`; settings, scores and machine are in the results that each row names.

| preset | date | seconds, seeds 0, 1, 2 | solved at {nodes} | record | commit | results |
| --- | --- | --- | --- | --- | --- | --- |
{rows}
"""


def write_table() -> None:
    """Write the table of what is stored."""
    rows = []
    for name in TIMED:
        if not all(result_of(name, seed).exists() for seed in SEEDS):
            continue
        found = [read_json(result_of(name, seed)) for seed in SEEDS]
        seconds = [result["training"]["seconds"] for result in found]
        at_goal = [next(row for row in result["rows"] if row["nodes"] == GOAL) for result in found]
        counts = [round(row["solved"] * row["problems"]) for row in at_goal]
        about = found[0]["training"]["provenance"]
        record = f"**{max(seconds):.0f} s**" if min(counts) == INSTANCES else "no"
        cells = [
            f"`{name}`",
            about["date"][:10],
            ", ".join(f"{x:.0f}" for x in seconds),
            ", ".join(f"{count:,}" for count in counts),
            record,
            about["commit"][:12],
            f"`results/{name}-seed*.json`",
        ]
        rows.append(f"| {' | '.join(cells)} |")
    with writing(ROOT / "benchmarks" / "records.md") as file:
        file.write(TABLE.format(problems=INSTANCES, nodes=GOAL, rows="\n".join(rows)))


def main() -> None:
    """Train, measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--train-only", action="store_true")
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    if asked.name and not asked.table:
        for seed in asked.seeds:
            run = changed(preset(asked.name), seed=seed)
            if not folder_of(asked.name, seed).exists():
                folder, console = folder_of(asked.name, seed), Console(stderr=True)
                outcome = train(run, folder, make_fabric(run), resume=False, console=console)
                if outcome.reason != "done":
                    shutil.rmtree(folder)
                    sys.exit(f"seed {seed}: {outcome.reason} at step {outcome.step}, nothing is kept")
        for seed in () if asked.train_only else asked.seeds:
            if not result_of(asked.name, seed).exists():
                result = measure(asked.name, seed)
                write_json(result_of(asked.name, seed), result)
                print(seed, [(row["nodes"], row["solved"]) for row in result["rows"]], flush=True)
    if not asked.train_only:
        write_table()


if __name__ == "__main__":
    main()
