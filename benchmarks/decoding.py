"""Latent reasoning against chain-of-thought decoding: seconds and memory for one problem, by size, as ratios.

python benchmarks/decoding.py [LATENT] [CHAIN]        (checkpoints; default: the ladder's discrete and cot)

Both answer the same published problems, one at a time, on one thread, in turn, so that what else the machine does slows both
down alike. The latent model halts by itself. The chain takes in the prompt and then the true trajectory, token by token, as one
that makes no mistake would: how well it was trained does not matter. Memory is the most that tensors take at any moment,
the weights apart. Both run in PyTorch.
"""

import json
import sys
import time
from itertools import accumulate
from pathlib import Path
from statistics import median, quantiles

import numpy as np
import torch

from latentloop.evaluate.pretrained import LatentLoop
from latentloop.experiments.store import SHIPPED
from latentloop.files import write_json
from latentloop.methods import ChainOfThought
from latentloop.model.generate import begin
from latentloop.provenance import provenance
from latentloop.task.graph import Problems
from latentloop.task.oracle import solve
from latentloop.task.splits import published_problems
from latentloop.tokens.trajectory import encode_trajectories

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "decoding.json"
SIZES = (8, 16, 24, 32, 48, 64)
PROBLEMS = 25
"""How many of each size are timed."""
WEIGHED = 5
"""How many of them are weighed: problems of one size differ little in memory."""


def answer(trained: LatentLoop, problem: Problems) -> None:
    """Solve one problem, or write its whole chain of thought."""
    if trained.method.latent:
        trained.solve_problems(problem)
        return
    assert isinstance(trained.run.method, ChainOfThought)
    true = encode_trajectories(problem, solve(problem), trained.vocabulary, trained.run.method.trajectory)
    tokens = torch.from_numpy(true.tokens.astype(np.int64))
    prompt = int(true.prompt_lengths[0])
    with torch.inference_mode():
        decoding = begin(trained.model, torch.zeros(1, dtype=torch.int64), tokens.shape[1])
        decoding.advance(tokens[:, :prompt])
        for place in range(prompt, tokens.shape[1] - 1):
            decoding.advance(tokens[:, place : place + 1]).argmax(-1)


def seconds(trained: LatentLoop, problem: Problems) -> float:
    """Return what one answer takes."""
    clock = time.perf_counter()
    answer(trained, problem)
    return time.perf_counter() - clock


def memory(trained: LatentLoop, problem: Problems) -> int:
    """Return the most bytes that are allocated at any moment of an answer, beyond what was there before."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        answer(trained, problem)
    events = profile.profiler.kineto_results.events()  # pyrefly: ignore
    changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    return max(accumulate(change for _, change in changes))


def main() -> None:
    """Measure, and store what was found."""
    torch.set_num_threads(1)
    names = sys.argv[1:3] or [str(SHIPPED / "weights" / f"{name}-seed0") for name in ("discrete", "cot")]
    latent, chain = (LatentLoop.from_pretrained(name) for name in names)
    for one in (latent, chain):
        one.model.eval()  # in PyTorch, though NumPy would do for one small problem
        answer(one, published_problems(one.run.task, 6, 1))  # what is done only once
    rows = []
    for nodes in SIZES:
        problems = published_problems(latent.run.task, nodes, PROBLEMS)
        pairs = [
            (seconds(latent, problems[row : row + 1]), seconds(chain, problems[row : row + 1]))
            for row in range(PROBLEMS)
        ]
        low, middle, high = quantiles([b / a for a, b in pairs])
        peaks = [median(memory(one, problems[row : row + 1]) for row in range(WEIGHED)) for one in (latent, chain)]
        rows.append(
            {
                "nodes": nodes,
                "latent_seconds": median(a for a, _ in pairs),
                "chain_seconds": median(b for _, b in pairs),
                "ratio": middle,
                "ratio_quartiles": [low, high],
                "latent_bytes": peaks[0],
                "chain_bytes": peaks[1],
                "bytes_ratio": peaks[1] / peaks[0],
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    models = [model.describe() | {"config": None} for model in (latent, chain)]
    write_json(
        RESULTS, {"rows": rows, "problems": PROBLEMS, "models": models, "threads": 1, "provenance": provenance()}
    )


if __name__ == "__main__":
    main()
