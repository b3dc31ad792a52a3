"""How far it goes: problems of 1,024 and 4,096 nodes, chains as deep as they are long, and what one problem takes.

python benchmarks/large.py [CHECKPOINT]      (benchmarks/results/large.json; what is there already is not measured again)
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from latentloop.evaluate.pretrained import LatentLoop
from latentloop.evaluate.rollout import default_cap, roll_out
from latentloop.files import read_json, write_json
from latentloop.provenance import provenance
from latentloop.task.oracle import solve
from latentloop.task.splits import published_problems

PATH = Path(__file__).parent / "results" / "large.json"
PROBLEMS = {
    ("random", 1024): 64,
    ("random", 4096): 16,
    ("chain", 1024): 1,
    ("chain", 4096): 1,
}
SKIP = 128
"""Published problems before this one may have been seen while the recipe was sought."""


def measure(trained: LatentLoop, family: str, nodes: int, count: int) -> dict[str, Any]:
    """Solve problems one by one, halting at the fixed point."""
    problems = published_problems(trained.run.task, nodes, count, family=family, skip=SKIP)  # pyrefly: ignore
    solution = solve(problems)
    seconds, iterations, solved = [], [], 0
    for row in range(count):
        clock = time.perf_counter()
        rollout = roll_out(trained.model, problems[row : row + 1], np.array([default_cap(nodes)]))[0]
        seconds.append(time.perf_counter() - clock)
        iterations.append(rollout.iterations)
        solved += bool(rollout.fixpoint is not None and np.array_equal(rollout.states[-1], solution.values[row]))
    lengths = problems.lengths
    return {
        "family": family,
        "nodes": nodes,
        "problems": count,
        "skip": SKIP,
        "solved": solved / count,
        "seconds": {"median": float(np.median(seconds)), "most": max(seconds)},
        "iterations": {"median": float(np.median(iterations)), "most": max(iterations)},
        "depth": {"median": float(np.median(solution.depths.max(1))), "most": int(solution.depths.max())},
        "tokens": {"median": float(np.median(lengths)), "most": int(lengths.max())},
        "threads": torch.get_num_threads(),
        "provenance": provenance(),
    }


def main() -> None:
    """Measure what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", nargs="?", default="laptop-all-4096")
    parser.add_argument("--output", type=Path, default=PATH)
    parser.add_argument("--not-deeper", type=int, default=4096, help="leave out chains of more nodes")
    asked = parser.parse_args()
    trained = LatentLoop.from_pretrained(asked.checkpoint)
    stored = read_json(asked.output) if asked.output.exists() else {}
    about = trained.describe()
    rows = stored["rows"] if stored.get("model", {}).get("sha256") == about["sha256"] else []
    done = {(row["family"], row["nodes"]) for row in rows}
    for (family, nodes), count in PROBLEMS.items():
        if (family, nodes) not in done and (family == "random" or nodes <= asked.not_deeper):
            rows.append(measure(trained, family, nodes, count))
            write_json(asked.output, {"rows": rows, "model": about})
            last = rows[-1]
            print(family, nodes, last["solved"], last["seconds"], last["iterations"], flush=True)


if __name__ == "__main__":
    main()
