"""Which format a chain of thought is judged by: validation problems that each writes without a mistake, by seed 0.

python benchmarks/formats.py [FOLDER]        (the weights of runs; default: those of the experiments)

The rule is in docs/log.md, "which format a chain of thought is judged by". Runs without weights are left as they were stored.
"""

import json
import sys
from pathlib import Path

import torch

from latentloop.evaluate.generalization import count_trajectories
from latentloop.evaluate.pretrained import LatentLoop
from latentloop.experiments.jobs import Job
from latentloop.experiments.store import SHIPPED
from latentloop.experiments.table import EXPERIMENTS
from latentloop.files import write_json
from latentloop.provenance import provenance
from latentloop.task.oracle import solve
from latentloop.task.splits import validation_problems

RESULTS = Path(__file__).parent / "results" / "formats.json"
PROBLEMS = 256


def solved(job: Job, weights: Path) -> dict[str, object] | None:
    """Count what one run writes without a mistake; None where its weights are not there."""
    if not (weights / job.name).is_dir():
        return None
    trained = LatentLoop.from_pretrained(weights / job.name)
    problems = validation_problems(job.run.task, job.run.graph, PROBLEMS)
    counts = count_trajectories(trained, problems, solve(problems))
    copied = counts.structure_right
    found = {"solved": counts.solved, "equations_right": copied, "values_right": counts.nodes_right / counts.nodes}
    return found | {"problems": PROBLEMS, "sha256": trained.describe()["sha256"], "provenance": provenance()}


def main() -> None:
    """Measure the formats that are trained with problems of all sizes, and store what was found."""
    torch.set_num_threads(1)
    weights = Path(sys.argv[1]) if len(sys.argv) > 1 else SHIPPED / "weights"
    formats = json.loads(RESULTS.read_text())["formats"] if RESULTS.exists() else {}
    points = [point for point in EXPERIMENTS["cot-formats"].points if point.run.graph.min_nodes is not None]
    for point in points:
        job = Job(point=point, seed=0)
        found = solved(job, weights)
        if found:
            formats[point.run.method.trajectory] = {"run": job.name} | found  # pyrefly: ignore
    write_json(RESULTS, {"formats": formats, "provenance": provenance()})
    for name, found in formats.items():
        print(
            f"{name}: {found['solved']} of {found['problems']} solved, {found['equations_right']} with all equations right"
        )


if __name__ == "__main__":
    main()
