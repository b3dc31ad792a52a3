"""A certificate of the arithmetic: every value combination of every equation the task allows, through the real model.

With a discrete state the update of an equation depends on its operands' current values alone, or ought to. Probes are
equations of real problems: those with no parent in common are given operations and operand values at will, one iteration is
run, and what the model says is compared with the oracle.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import torch
from jaxtyping import Int8
from numpy import ndarray

from latentloop.config import MAX_FAN_IN, OPERATIONS, GraphConfig, TaskConfig
from latentloop.errors import UserError
from latentloop.evaluate.pretrained import LatentLoop
from latentloop.model.recurrence import State, unroll
from latentloop.task.graph import ABSENT, Problems, sample
from latentloop.task.oracle import solve, step
from latentloop.task.splits import PUBLISHED_SEED, TEST, generator
from latentloop.tokens.batch import Batch

CHUNK = 64
"""Problems that are probed side by side at 32 nodes; fewer where they are larger."""


@dataclass(frozen=True, kw_only=True)
class Probe:
    """Many values of one pattern of operations: entry i of ``values`` are the operands of probe i."""

    operations: tuple[str, ...]
    values: Int8[ndarray, "probe operand"]

    @property
    def name(self) -> str:
        """The pattern as people write it, such as ``a + b * c``."""
        return "a" + "".join(f" {op} {name}" for op, name in zip(self.operations, "bc", strict=False))


def patterns(task: TaskConfig) -> list[Probe]:
    """List every pattern the task allows, each with all combinations of values."""
    found = []
    for fan_in in range(1, MAX_FAN_IN + 1):
        values = np.array(list(product(range(task.modulus), repeat=fan_in)), np.int8)
        found += [Probe(operations=ops, values=values) for ops in product(task.operations, repeat=fan_in - 1)]
    return found


def check_probes(loop: LatentLoop, sizes: Sequence[int]) -> None:
    """Refuse a model that has no update to probe, and problems that cannot hold the probes."""
    if loop.method.carries != "state":
        raise UserError(f"only methods with a discrete state can be certified, and {loop.run.method} has none")
    if not sizes:
        raise UserError("a certificate needs a size of problems, such as 32, got none")
    for nodes in sizes:
        if not 4 <= nodes <= loop.run.task.names:
            raise UserError(f"probes need problems of 4 to {loop.run.task.names} nodes, got {nodes}")


@torch.inference_mode()
def certify(loop: LatentLoop, nodes: int, *, advance: Callable[[int], None] = lambda done: None) -> dict[str, Any]:
    """Probe every entry inside problems of one size; list what is wrong, and the smallest margins."""
    check_probes(loop, [nodes])
    result: dict[str, Any] = {"nodes": nodes, "patterns": {}, "wrong": []}
    for index, probe in enumerate(patterns(loop.run.task)):
        margins = np.empty(len(probe.values), np.float32)
        for entries, found, said in _probe(loop, nodes, probe, index):
            margins[entries] = found
            wrong = ~(found > 0)  # a margin that is no number is no margin
            for entry, value in zip(entries[wrong], said[wrong], strict=True):
                operands, word = probe.values[entry].tolist(), loop.vocabulary.symbols("value")[value]
                result["wrong"].append({"pattern": probe.name, "operands": operands, "said": word})
            advance(len(entries))
        result["patterns"][probe.name] = {
            "entries": len(margins),
            "wrong": int((~(margins > 0)).sum()),
            "smallest_margin": float(margins.min()),
            "median_margin": float(np.median(margins)),
        }
    result["entries"] = sum(pattern["entries"] for pattern in result["patterns"].values())
    result["lookup"] = lookup_margins(loop, nodes)
    return result


def _probe(loop: LatentLoop, nodes: int, probe: Probe, index: int) -> Iterator[tuple[ndarray, ndarray, ndarray]]:
    """Give the entries probed, the margin of the right value over all others, and the value said, group by group."""
    rng = generator(PUBLISHED_SEED, TEST, nodes, index)
    device = loop.model.norm.weight.device
    done, rows = 0, max(1, CHUNK * 32 * 32 // nodes**2)
    while done < len(probe.values):
        problems = sample(loop.run.task, GraphConfig(nodes=nodes, depth_limit=7 if nodes <= 32 else None), rows, rng)
        where = independent_equations(problems, len(probe.operations) + 1)
        entries = done + np.arange(min(len(where), len(probe.values) - done))
        where = where[: len(entries)]
        problems = _with_operations(problems, where, probe.operations)
        state = solve(problems).values
        for operand in range(len(probe.operations) + 1):
            parents = problems.parents[where[:, 0], where[:, 1], operand]
            state[where[:, 0], parents] = probe.values[entries, operand]
        batch = Batch.of(problems, loop.vocabulary).to(device)
        values = batch.values_at(torch.from_numpy(state[None]).long().to(device), loop.vocabulary.empty)[0]
        given = State(**{**State.of(batch).factors(), "value": values})
        logits = next(unroll(loop.model, given, loop.method)).logits["value"].cpu()
        target = torch.from_numpy(where[:, 1].astype(np.int64))
        row = torch.from_numpy(where[:, 0].astype(np.int64))
        scores = logits[row, batch.target.cpu()[row, target]]
        right = torch.from_numpy(step(problems, state)[where[:, 0], where[:, 1]].astype(np.int64))
        best = scores.scatter(1, right[:, None], -torch.inf).max(1).values
        margin = scores.gather(1, right[:, None])[:, 0] - best
        yield entries, margin.numpy(), scores.argmax(1).numpy()
        done += len(entries)


def independent_equations(problems: Problems, fan_in: int) -> ndarray:
    """Choose (row, node) of equations with so many parents, none of which is a parent of another one chosen."""
    chosen = []
    fan_ins = problems.fan_in
    for row in range(len(problems)):
        taken: set[int] = set()
        for node in np.flatnonzero(fan_ins[row] == fan_in):
            parents = set(problems.parents[row, node, :fan_in].tolist())
            if not parents & taken:
                taken |= parents
                chosen.append((row, node))
    return np.array(chosen, np.int64).reshape(-1, 2)


def _with_operations(problems: Problems, where: ndarray, operations: tuple[str, ...]) -> Problems:
    codes = problems.operations.copy()
    for place, operation in enumerate(operations):
        codes[where[:, 0], where[:, 1], place] = OPERATIONS.index(operation)
    return replace(problems, operations=codes)


@torch.inference_mode()
def lookup_margins(loop: LatentLoop, nodes: int, count: int = 16) -> dict[str, float | int]:
    """Measure how clearly a look-up finds its definition: log-odds of the right key against the best wrong one.

    For the head of the first layer that puts most of its attention there; smallest and median over all left-hand sides.
    """
    problems = sample(loop.run.task, GraphConfig(nodes=nodes), count, generator(PUBLISHED_SEED, TEST, nodes, 999))
    best: list[ndarray] = []
    masses: list[ndarray] = []
    for row in range(count):
        one = problems[row : row + 1]
        batch = Batch.of(one, loop.vocabulary).to(loop.model.norm.weight.device)
        values = batch.values_at(batch.answer[None], loop.vocabulary.empty)[0]
        seen: dict[str, torch.Tensor] = {}
        given = State(**{**State.of(batch).factors(), "value": values})
        next(unroll(loop.model, given, loop.method, watch=seen.__setitem__))
        pattern = seen["0.pattern"][0].cpu()
        node, operand = np.nonzero(one.parents[0] != ABSENT)
        queries = batch.operand[0].cpu()[node, operand]
        keys = batch.target[0].cpu()[one.parents[0, node, operand].astype(np.int64)]
        right = pattern[:, queries, keys]
        others = pattern[:, queries].scatter(2, keys[None, :, None].expand(len(pattern), -1, 1), 0.0).max(-1).values
        best.append((right.clamp(min=1e-30).log() - others.clamp(min=1e-30).log()).numpy())
        masses.append(right.numpy())
    head = int(np.concatenate(masses, 1).mean(1).argmax())
    margins, mass = np.concatenate(best, 1)[head], np.concatenate(masses, 1)[head]
    return {
        "head": head,
        "smallest_margin": float(margins.min()),
        "median_margin": float(np.median(margins)),
        "smallest_attention": float(mass.min()),
        "mean_attention": float(mass.mean()),
    }
