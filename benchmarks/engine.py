"""What the engine costs: a training step, an evaluation, decoding with and without a cache, and one iteration against N.

python benchmarks/engine.py            (writes benchmarks/results/engine.json; about ten minutes on two cores)
"""

import resource
import sys
import time
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from latentloop.evaluate.think import think
from latentloop.tokens.batch import Batch
from latentloop.train.optimise import make_optimizer

from latentloop.config import GraphConfig, ModelConfig, RunConfig, TaskConfig
from latentloop.files import write_json
from latentloop.methods import method
from latentloop.model.build import build_model
from latentloop.model.generate import generate
from latentloop.model.recurrence import State, unroll
from latentloop.presets import preset
from latentloop.provenance import machine, provenance
from latentloop.task.graph import sample
from latentloop.task.oracle import solve
from latentloop.task.splits import drawn_generator, published_problems
from latentloop.tokens.trajectory import encode_trajectories
from latentloop.tokens.vocabulary import Vocabulary
from latentloop.train.devices import make_fabric
from latentloop.train.loop import backward, draw_lesson
from latentloop.train.loss import Learner

AUTHORS = {"seconds": 43.0, "gigabytes": 13.1}
"""One such step of the authors' code on a machine like this one, measured by hand once."""
SMALL = ModelConfig(positions="deberta", layers=2, heads=8, width=128, dropout=0.0)


def peak_gigabytes() -> float:
    """Give the most memory this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def training_step(steps: int = 3) -> dict[str, Any]:
    """Time optimiser steps of the paper's discrete model: 32 problems of 32 nodes, all iterations teacher-forced."""
    run = preset("paper-discrete")
    fabric, vocabulary, model = make_fabric(run), Vocabulary(task=run.task), build_model(run)
    optimizer = make_optimizer(model, run.train)
    learner, optimizer = fabric.setup(Learner(model, method(run.method)), optimizer)
    seconds, tokens = [], []
    for step in range(steps + 1):
        clock = time.perf_counter()
        lesson = draw_lesson(run, step, vocabulary, 0)
        backward(fabric, learner, lesson, run.train.micro_batch)
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.perf_counter() - clock)
        tokens.append(len(lesson) * int(lesson.mask.sum(1).max()))  # pyrefly: ignore
    found = {"seconds": float(np.median(seconds[1:])), "tokens_padded": tokens[-1], "gigabytes": peak_gigabytes()}
    return found | {"times_faster": AUTHORS["seconds"] / found["seconds"], "authors": AUTHORS}


def evaluation(instances: int = 1024, nodes: int = 128) -> dict[str, Any]:
    """Time thinking about the published problems, depth + 1 iterations each, with a small model of random weights."""
    run = RunConfig(method="continuous", model=SMALL)
    model, problems = build_model(run).eval(), published_problems(run.task, nodes, instances)
    depths = solve(problems).depths.max(1).astype(np.int64)
    clock = time.perf_counter()
    think(model, method("continuous"), problems, depths + 1, leave=False)
    seconds = time.perf_counter() - clock
    cost = {"seconds": seconds, "gigabytes": peak_gigabytes()}
    return {"instances": instances, "nodes": nodes, "iterations": float((depths + 1).mean())} | cost


def decoding(nodes: int = 64, rows: int = 4, limit: int = 200) -> dict[str, Any]:
    """Time the same tokens of a chain of thought with and without the cache."""
    run = replace(preset("paper-cot"), model=replace(SMALL, positions="rope", iterations=4, max_positions=3072))
    model, problems = build_model(run).eval(), published_problems(run.task, nodes, rows)
    written = encode_trajectories(problems, solve(problems), model.vocabulary, "equation-value")
    width = int(written.prompt_lengths.max())
    prompts, lengths = (
        torch.from_numpy(written.tokens[:, :width]).long(),
        torch.from_numpy(written.prompt_lengths).long(),
    )
    limit = int((written.lengths - written.prompt_lengths).max())
    seconds = {}
    for cached in (True, False):
        clock = time.perf_counter()
        generate(model, prompts, lengths, limit=limit, cached=cached)
        seconds["cached" if cached else "again"] = time.perf_counter() - clock
    return {
        "nodes": nodes,
        "rows": rows,
        "tokens": limit,
        **seconds,
        "times_faster": seconds["again"] / seconds["cached"],
    }


def iteration_cost() -> dict[str, Any]:
    """Time one iteration on one problem against N, and fit the exponent over the larger half."""
    task = TaskConfig(names=1024)
    model = build_model(RunConfig(task=task, model=SMALL)).eval()
    sizes, seconds, tokens = [2**k for k in range(3, 11)], [], []
    for nodes in sizes:
        problems = sample(task, GraphConfig(nodes=nodes), 1, drawn_generator(0))
        state = State.of(Batch.of(problems, model.vocabulary))
        tokens.append(state.value.shape[1])
        times = []
        with torch.inference_mode():
            for _ in range(3 if nodes > 256 else 10):
                clock = time.perf_counter()
                next(unroll(model, state, method("discrete")))
                times.append(time.perf_counter() - clock)
        seconds.append(min(times))
    half = len(sizes) // 2
    exponent = float(np.polyfit(np.log(sizes[half:]), np.log(seconds[half:]), 1)[0])
    return {"nodes": sizes, "tokens": tokens, "seconds": seconds, "exponent": exponent}


def main() -> None:
    """Measure each in a process of its own, so that memory is its own too; print, and keep with provenance."""
    document: dict[str, Any] = {"provenance": provenance()}
    print(machine())
    wanted = sys.argv[1:] or ["training_step", "decoding", "iteration_cost", "evaluation"]
    path = Path(__file__).parent / "results" / "engine.json"
    for name in wanted:
        with get_context("spawn").Pool(1) as pool:
            document[name] = pool.apply(globals()[name])
        print(name, document[name], flush=True)
        write_json(path, document)


if __name__ == "__main__":
    main()
