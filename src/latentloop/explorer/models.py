"""Models as the page holds them: settings, the task's tables, and weights as base64, in half precision where that is safe."""

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from latentloop.config import MAX_NODES, TASKS, RunConfig, TaskConfig
from latentloop.errors import UserError
from latentloop.families import FAMILIES
from latentloop.operations import OPERATIONS
from latentloop.task.arithmetic import table
from latentloop.task.splits import published_problems
from latentloop.train.checkpoint import Checkpoint

MOST_WEIGHTS = 20_000_000
"""Weights that a page may hold: a browser has to read all of them before it shows anything."""
CHECKED = ((32, 24), (128, 2))
"""Nodes and number of the published problems on which half precision must give the same states."""
ENCODINGS = ("abpe", "rope", "nope", "deberta", "local")
"""Positional encodings that the page's engine has."""


def pack_model(name: str, title: str | None = None) -> dict[str, Any]:
    """Load a checkpoint by shipped name, folder or hub id, and return what the page needs of it."""
    from latentloop.evaluate.hub import find_weights
    from latentloop.train.checkpoint import read_checkpoint, weights_hash

    folder = find_weights(name)
    checkpoint = read_checkpoint(folder)
    return pack_checkpoint(checkpoint, title or Path(name).name, weights_hash(folder))


def pack_checkpoint(
    checkpoint: Checkpoint, title: str, sha256: str = "", *, half: bool | None = None
) -> dict[str, Any]:
    """Return what the page needs of a checkpoint that has been read; whether in half precision is found out, if not given."""
    run = checkpoint.run
    weights = {key: np.asarray(tensor) for key, tensor in checkpoint.weights.items()}
    count = sum(array.size for array in weights.values())
    if count > MOST_WEIGHTS:
        raise UserError(f"a page can hold {MOST_WEIGHTS:,} weights, and {title} has {count:,}: choose a smaller model")
    if run.model.positions.name not in ENCODINGS:
        raise UserError(
            f"the page knows the encodings {', '.join(ENCODINGS)}, and {title} has {run.model.positions.name}"
        )
    half = halves_safely(checkpoint) if half is None else half
    tensors, data = pack_tensors(weights, np.float16 if half else np.float32)
    row = run.method.row
    return {
        "title": title,
        "sha256": sha256,
        "parameters": count,
        "precision": "half" if half else "single",
        "config": {"method": run.to_dict()["method"], "model": run.to_dict()["model"]},
        "trained": _trained(run),
        "row": {"title": row.title, "carries": row.carries, "latent": row.latent, "adaptive": row.adaptive},
        "iterations": run.method.iterations,
        "task": pack_task(run.task),
        "tensors": tensors,
        "data": data,
    }


def pack_tensors(weights: dict[str, ndarray], kind: type) -> tuple[dict[str, Any], str]:
    """Return where each tensor lies, and all of them as base64."""
    tensors: dict[str, Any] = {}
    parts = []
    offset = 0
    for name, array in sorted(weights.items()):
        content = np.ascontiguousarray(array, np.dtype(kind).newbyteorder("<")).tobytes()
        tensors[name] = {"dtype": "F16" if kind is np.float16 else "F32", "offset": offset, "shape": list(array.shape)}
        offset += len(content)
        parts.append(content)
    return tensors, base64.b64encode(b"".join(parts)).decode()


def pack_task(task: TaskConfig) -> dict[str, Any]:
    """Return the language of problems with its arithmetic, and the families that they are sampled from, as data."""
    codes = [OPERATIONS.index(operation) for operation in task.operations]
    results = table(task.modulus)[codes, :-1, :-1]
    most = min(task.names, MAX_NODES)
    families = [
        {
            "name": name,
            "summary": family.summary,
            "fan_ins": list(family.fan_ins),
            "pool": family.pool,
            "always": family.always,
            "leaf_values": family.leaf_values,
            "leaves": _base64(np.array([family.leaves(max(nodes, 1)) for nodes in range(most + 1)], "<u2")),
        }
        for name, family in FAMILIES.items()
    ]
    return {
        "operations": list(task.operations),
        "all_operations": list(OPERATIONS),
        "modulus": task.modulus,
        "names": task.names,
        "table": _base64(results.astype(np.uint8)),
        "families": families,
        "tasks": {name: list(used) for name, used in TASKS.items() if set(used) <= set(task.operations)},
    }


def halves_safely(checkpoint: Checkpoint) -> bool:
    """Return whether weights in half precision go through the same states on published problems."""
    from latentloop.evaluate.pretrained import LatentLoop

    halved = {name: _halved(tensor) for name, tensor in checkpoint.weights.items()}
    if not all(np.isfinite(np.asarray(tensor)).all() for tensor in halved.values()):
        return False
    models = [LatentLoop(checkpoint), LatentLoop(replace(checkpoint, weights=halved))]
    task = checkpoint.run.task
    checked = 0
    for nodes, count in CHECKED:
        problems = published_problems(task, min(nodes, task.names), count)
        try:
            before, after = (model.solve_problems(problems) for model in models)
        except UserError:  # absolute positions end somewhere
            break
        checked += count
        if any(
            one.trace != other.trace or one.tokens != other.tokens for one, other in zip(before, after, strict=True)
        ):
            return False
    return checked > 0


def _halved(weight: ndarray) -> ndarray:
    """Round to half precision."""
    with np.errstate(over="ignore"):  # too large for it: becomes infinite, and is refused
        return weight.astype(np.float16).astype(np.float32)


def _trained(run: RunConfig) -> str:
    """Say in a few words what a model was trained on."""
    depth = "any depth" if run.graph.depth_limit is None else f"depth {run.graph.depth_limit} at most"
    return f"trained on {run.graph.nodes} nodes at most, {depth}"


def _base64(array: ndarray) -> str:
    return base64.b64encode(array.tobytes()).decode()
