"""Do NumPy and torch go through the same states? 10,000 problems of the shipped checkpoints, every iteration of each.

python benchmarks/engines.py            (writes benchmarks/results/engines.json; what is there already is not run again)
"""

import time
from pathlib import Path
from typing import Any

import numpy as np

from latentloop.config import GraphConfig
from latentloop.evaluate.pretrained import LatentLoop
from latentloop.evaluate.rollout import default_cap, roll_out
from latentloop.files import read_json, write_json
from latentloop.model.reference import Reference
from latentloop.provenance import provenance
from latentloop.task.graph import sample
from latentloop.task.splits import sampled_generator

ROOT = Path(__file__).parent.parent
PATH = ROOT / "benchmarks" / "results" / "engines.json"
PROBLEMS = {8: 1500, 16: 1000, 32: 700, 64: 120, 128: 30}
"""By nodes, of each checkpoint: half of them begin with nothing, half with random values."""
SEED = 15
"""Of problems that nothing else is measured on."""


def compare(trained: LatentLoop, nodes: int, count: int) -> dict[str, Any]:
    """Roll both engines out on the same problems, and count what differs."""
    problems = sample(trained.run.task, GraphConfig(nodes=nodes), count, sampled_generator(SEED, nodes))
    limits = np.full(count // 2, default_cap(nodes))
    random = np.random.default_rng(SEED).integers(-1, problems.modulus, (count // 2, nodes), dtype=np.int8)
    reference = Reference(trained.run, trained.checkpoint.weights)
    seconds = {"numpy": 0.0, "torch": 0.0}
    figures = {"problems": 0, "states": 0, "values": 0, "problems_that_differ": 0}
    for half, start in ((problems[: count // 2], None), (problems[count // 2 :], random)):
        rollouts = {}
        for name, model in (("numpy", reference), ("torch", trained.model)):
            clock = time.process_time()
            rollouts[name] = roll_out(model, half, limits, start=start)
            seconds[name] += time.process_time() - clock
        for one, other in zip(rollouts["numpy"], rollouts["torch"], strict=True):
            same = np.array_equal(one.states, other.states)
            figures["problems"] += 1
            figures["states"] += len(one.states) - 1
            figures["values"] += one.states[1:].size
            figures["problems_that_differ"] += not (same and (one.fixpoint, one.cycle) == (other.fixpoint, other.cycle))
    return {"nodes": nodes} | figures | {"cpu_seconds": seconds, "provenance": provenance()}


def main() -> None:
    """Compare what was not compared yet."""
    stored = read_json(PATH)["checkpoints"] if PATH.exists() else {}
    for manifest in sorted((ROOT / "checkpoints").glob("*/manifest.json")):
        name = manifest.parent.name
        trained = LatentLoop.from_pretrained(manifest.parent)
        if not trained.method.latent:
            continue
        found = stored.get(name)
        rows = found["rows"] if found and found["sha256"] == trained.sha256 else []
        stored[name] = {"sha256": trained.sha256, "rows": rows}
        for nodes, count in PROBLEMS.items():
            if nodes not in {row["nodes"] for row in rows}:
                rows.append(compare(trained, nodes, count))
                total = {
                    key: sum(row[key] for each in stored.values() for row in each["rows"])
                    for key in ("problems", "states", "values", "problems_that_differ")
                }
                write_json(PATH, {"total": total, "seed": SEED, "checkpoints": stored})
                print(name, {key: value for key, value in rows[-1].items() if key != "provenance"}, flush=True)
    print("done")


if __name__ == "__main__":
    main()
