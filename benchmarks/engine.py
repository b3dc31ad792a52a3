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

from latentloop.config import GraphConfig, ModelConfig, RunConfig, TaskConfig
from latentloop.config.positions import DisentangledConfig, RotaryConfig
from latentloop.evaluate.rollout import roll_out
from latentloop.files import write_json
from latentloop.methods import ChainOfThought, Continuous, Discrete
from latentloop.model.build import build_model
from latentloop.model.generate import generate
from latentloop.model.recurrence import update
from latentloop.presets import preset
from latentloop.provenance import machine, provenance
from latentloop.task.graph import sample
from latentloop.task.oracle import solve
from latentloop.task.splits import published_problems, sampled_generator
from latentloop.tokens.state import encode_state
from latentloop.tokens.trajectory import encode_trajectories
from latentloop.tokens.vocabulary import Vocabulary
from latentloop.train.data import sample_batch
from latentloop.train.devices import make_fabric
from latentloop.train.loop import backward
from latentloop.train.loss import Learner
from latentloop.train.optimizer import make_optimizer
from latentloop.train.targets import LatentBatch

AUTHORS = {"seconds": 43.0, "gigabytes": 13.1}
"""One such step of the authors' code on a machine like this one, measured by hand once."""
SMALL = ModelConfig(positions=DisentangledConfig(), layers=2, heads=8, width=128, dropout=0.0)


def peak_gigabytes() -> float:
    """Return the most memory this process ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def training_step(steps: int = 3) -> dict[str, Any]:
    """Time optimizer steps of the paper's discrete model: 32 problems of 32 nodes, all iterations teacher-forced."""
    run = preset("paper-discrete")
    fabric = make_fabric(run)
    vocabulary = Vocabulary(task=run.task)
    model = build_model(run)
    optimizer = make_optimizer(model, run.train)
    learner, optimizer = fabric.setup(Learner(model), optimizer)
    seconds, tokens = [], []
    for step in range(steps + 1):  # the first one warms up, and samples the training set
        clock = time.perf_counter()
        batch = sample_batch(run, step, vocabulary, 0)
        backward(fabric, learner, batch, run.train.micro_batch)
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.perf_counter() - clock)
        assert isinstance(batch, LatentBatch)
        tokens.append(len(batch) * int(batch.layout.mask.sum(1).max()))
    found = {"seconds": float(np.median(seconds[1:])), "tokens_padded": tokens[-1], "gigabytes": peak_gigabytes()}
    return found | {"times_faster": AUTHORS["seconds"] / found["seconds"], "authors": AUTHORS}


def evaluation(instances: int = 1024, nodes: int = 128) -> dict[str, Any]:
    """Time solving the published problems, depth + 1 iterations each, with a small model of random weights."""
    run = RunConfig(method=Continuous(), model=SMALL)
    model, problems = build_model(run).eval(), published_problems(run.task, nodes, instances)
    depths = solve(problems).depths.max(1).astype(np.int64)
    clock = time.perf_counter()
    roll_out(model, problems, depths + 1, halt_at_fixpoint=False)
    seconds = time.perf_counter() - clock
    cost = {"seconds": seconds, "gigabytes": peak_gigabytes()}
    return {"instances": instances, "nodes": nodes, "iterations": float((depths + 1).mean())} | cost


def decoding(nodes: int = 64, rows: int = 4) -> dict[str, Any]:
    """Time the same tokens of a chain of thought with and without the cache."""
    run = RunConfig(method=ChainOfThought(iterations=4), model=replace(SMALL, positions=RotaryConfig()))
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


def iteration_cost(largest: int = 1024) -> dict[str, Any]:
    """Time one iteration on one problem against N, and fit the exponent over the larger half."""
    task = TaskConfig(names=largest)
    model = build_model(RunConfig(method=Discrete(), task=task, graph=GraphConfig(nodes=8), model=SMALL)).eval()
    sizes = [2**k for k in range(3, largest.bit_length())]
    seconds, tokens = [], []
    for nodes in sizes:
        problems = sample(task, GraphConfig(nodes=nodes), 1, sampled_generator(0))
        state, layout = encode_state(problems, model.vocabulary)
        tokens.append(layout.mask.shape[1])
        times = []
        with torch.inference_mode():
            for _ in range(3 if nodes > 256 else 10):
                clock = time.perf_counter()
                update(model, state, layout)
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
