"""How fast problems are made: sampling, solving and tokenizing on one core, and the memory they take.

python benchmarks/generator.py            (writes benchmarks/results/generator.json)
"""

import os
import time
from pathlib import Path

import numpy as np

from latentloop.config import GraphConfig, TaskConfig
from latentloop.files import write_json
from latentloop.provenance import machine, provenance
from latentloop.task.graph import sample
from latentloop.task.oracle import solve
from latentloop.task.splits import sampled_generator
from latentloop.tokens.dataset import work_out
from latentloop.tokens.factored import encode
from latentloop.tokens.vocabulary import Vocabulary

AUTHORS = {32: 222, 128: 35}
"""Instances a second of the paper's own generator on a machine like ours (two x86 cores, measured by hand once)."""
BATCH, BATCHES = 512, 40


def rate(nodes: int, depth_limit: int | None) -> dict[str, float]:
    """Time each stage over many batches; rates are instances a second."""
    task = TaskConfig.named("all")
    vocabulary, graph, rng = (
        Vocabulary(task=task),
        GraphConfig(nodes=nodes, depth_limit=depth_limit),
        sampled_generator(0),
    )
    seconds = np.zeros(3)
    for batch in range(BATCHES + 1):
        clock = [time.perf_counter()]
        problems = sample(task, graph, BATCH, rng)
        clock.append(time.perf_counter())
        solve(problems)
        clock.append(time.perf_counter())
        encode(problems, vocabulary)
        clock.append(time.perf_counter())
        if batch:  # the first one warms up
            seconds += np.diff(clock)
    stages = dict(zip(("sample", "solve", "tokenize"), (BATCH * BATCHES / seconds).round().tolist(), strict=True))
    rate_of_all = round(BATCH * BATCHES / seconds.sum())
    return {
        **stages,
        "all": rate_of_all,
        "authors": AUTHORS[nodes],
        "times_faster": round(rate_of_all / AUTHORS[nodes]),
    }


def megabytes(count: int, nodes: int) -> float:
    """Measure the arrays of many problems, tokens included."""
    task = TaskConfig.named("all")
    drawn = sample(task, GraphConfig(nodes=nodes, depth_limit=7), count, sampled_generator(0))
    return work_out(drawn, Vocabulary(task=task)).nbytes / 1e6


def main() -> None:
    """Measure on one core, print, and keep the figures with their provenance."""
    os.sched_setaffinity(0, {0})
    print(machine())
    rates = {nodes: rate(nodes, limit) for nodes, limit in ((32, 7), (128, None))}
    memory = megabytes(100_000, 32)
    for nodes, found in rates.items():
        print(f"N = {nodes}: {found['all']:,} instances a second, {found['times_faster']}x the authors' code; {found}")
    print(f"100,000 instances at N = 32, tokens included: {memory:.0f} MB")
    document = {
        "instances_per_second": rates,
        "batch": BATCH,
        "megabytes_100000_at_32": memory,
        "provenance": provenance(),
    }
    write_json(Path(__file__).parent / "results" / "generator.json", document)


if __name__ == "__main__":
    main()
