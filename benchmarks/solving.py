"""What one problem costs whoever asks a shipped model from Python.

python benchmarks/solving.py            (writes benchmarks/results/solving.json; seconds)
"""

import time
from pathlib import Path

import torch

from latentloop import LatentLoop
from latentloop.files import write_json
from latentloop.provenance import provenance
from latentloop.task.splits import published_problems

NODES, COUNT = 128, 8


def main() -> None:
    """Solve published problems one by one; the first is solved once more before, to warm up."""
    trained = LatentLoop.from_pretrained()
    problems = published_problems(trained.run.task, NODES, COUNT)
    seconds = []
    for row in (0, *range(COUNT)):
        clock = time.perf_counter()
        answer = trained.solve_problems(problems[row : row + 1])[0]
        seconds.append({"seconds": time.perf_counter() - clock, "correct": answer.correct})
    result = {"nodes": NODES, "problems": seconds[1:], "model": trained.describe(), "threads": torch.get_num_threads()}
    path = Path(__file__).parent / "results" / "solving.json"
    write_json(path, result | {"provenance": provenance()})
    print(
        f"{min(x['seconds'] for x in seconds[1:]):.3f} to {max(x['seconds'] for x in seconds[1:]):.3f} seconds a problem"
    )


if __name__ == "__main__":
    main()
