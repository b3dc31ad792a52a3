"""What one problem costs whoever asks a shipped model from Python, on an idle machine.

python benchmarks/solving.py            (writes benchmarks/results/solving.json; seconds)
"""

import time
from pathlib import Path

import torch

from latentloop import LatentLoop
from latentloop.files import write_json
from latentloop.provenance import provenance
from latentloop.task.splits import published_problems

ASKED = (("laptop-all", 128, 8), ("laptop-all-4096", 1024, 4), ("laptop-all-4096", 4096, 1))
"""Model, nodes, and problems."""


def main() -> None:
    """Solve published problems one by one; the first is solved once more before, to warm up."""
    rows = []
    for name, nodes, count in ASKED:
        trained = LatentLoop.from_pretrained(name)
        assert trained.model  # torch answers from here on
        problems = published_problems(trained.run.task, nodes, count)
        seconds = []
        for row in (*([0] if count > 1 else []), *range(count)):
            clock = time.perf_counter()
            answer = trained.solve_problems(problems[row : row + 1])[0]
            seconds.append({"seconds": time.perf_counter() - clock, "correct": answer.correct})
        seconds = seconds[-count:]
        rows.append({"name": name, "nodes": nodes, "problems": seconds, "model": trained.describe()})
        print(
            f"{name}, {nodes} nodes: {min(x['seconds'] for x in seconds):.2f} to {max(x['seconds'] for x in seconds):.2f} s"
        )
    path = Path(__file__).parent / "results" / "solving.json"
    write_json(path, {"asked": rows, "threads": torch.get_num_threads(), "provenance": provenance()})


if __name__ == "__main__":
    main()
