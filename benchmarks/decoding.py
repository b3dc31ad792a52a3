"""Latent reasoning against chain-of-thought decoding: seconds and memory for one problem, by size, as ratios.

python benchmarks/decoding.py [LATENT] [CHAIN]        (checkpoints; default: the ladder's discrete and cot)

Both answer the same published problems, one at a time, on one thread, in turn, so that what else the machine does slows both
down alike. Memory is what a process grows by while it solves one problem, each in a process of its own.
"""

import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import torch

from latentloop.evaluate.pretrained import LatentLoop
from latentloop.experiments.store import SHIPPED
from latentloop.files import write_json
from latentloop.provenance import provenance
from latentloop.task.graph import Problems
from latentloop.task.splits import published_problems

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "decoding.json"
SIZES = (8, 16, 24, 32, 48, 64)
ROUNDS = 5


def seconds(trained: LatentLoop, problem: Problems) -> float:
    """Return what one answer takes."""
    clock = time.perf_counter()
    trained.solve_problems(problem)
    return time.perf_counter() - clock


def grown(name: str, nodes: int) -> int:
    """Return the bytes that a process of its own grows by while it solves one problem."""
    words = [sys.executable, __file__, "--grown", name, str(nodes)]
    return int(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    """Measure, and store what was found."""
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["--grown"]:
        trained, nodes = LatentLoop.from_pretrained(sys.argv[2]), int(sys.argv[3])
        problem = published_problems(trained.run.task, nodes, 2)
        trained.solve_problems(published_problems(trained.run.task, 6, 1))  # what is loaded only once
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        trained.solve_problems(problem[:1])
        print(1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))
        return
    names = sys.argv[1:3] or [str(SHIPPED / "weights" / f"{name}-seed0") for name in ("discrete", "cot")]
    latent, chain = (LatentLoop.from_pretrained(name) for name in names)
    rows = []
    for nodes in SIZES:
        problems = published_problems(latent.run.task, nodes, ROUNDS)
        pairs = [
            (seconds(latent, problems[row : row + 1]), seconds(chain, problems[row : row + 1])) for row in range(ROUNDS)
        ]
        memory = [grown(name, nodes) for name in names]
        rows.append(
            {
                "nodes": nodes,
                "latent_seconds": median(a for a, _ in pairs),
                "chain_seconds": median(b for _, b in pairs),
                "ratio": median(b / a for a, b in pairs),
                "latent_bytes": memory[0],
                "chain_bytes": memory[1],
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    models = [model.describe() | {"config": None} for model in (latent, chain)]
    write_json(RESULTS, {"rows": rows, "models": models, "threads": 1, "provenance": provenance()})


if __name__ == "__main__":
    main()
