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

from latentloop.config import MAX_FAN_IN, GraphConfig, TaskConfig
from latentloop.errors import UserError
from latentloop.evaluate.bound import PLACELESS, worst_case
from latentloop.evaluate.pretrained import LatentLoop
from latentloop.model.build import weights_of
from latentloop.model.capture import capture
from latentloop.model.recurrence import update
from latentloop.operations import OPERATIONS
from latentloop.task.graph import ABSENT, Problems, sample
from latentloop.task.oracle import solve
from latentloop.task.oracle import update as true_update
from latentloop.task.splits import PUBLISHED_SEED, TEST, generator
from latentloop.tokens.state import encode_state, with_values

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


def check_probes(trained: LatentLoop, sizes: Sequence[int]) -> None:
    """Refuse a model that has no update to probe, and problems that cannot hold the probes."""
    if trained.method.carries != "state":
        raise UserError(f"only methods with a discrete state can be certified, and {trained.run.method.name} has none")
    if trained.run.model.layers == 1 and trained.run.method.pin_static:
        raise UserError("a single layer that reads at right-hand sides only has no look-up to certify: it needs two")
    if not sizes:
        raise UserError("a certificate needs a size of problems, such as 32, got none")
    for nodes in sizes:
        if not 4 <= nodes <= trained.run.task.names:
            raise UserError(f"probes need problems of 4 to {trained.run.task.names} nodes, got {nodes}")


@torch.inference_mode()
def certify(trained: LatentLoop, nodes: int, *, advance: Callable[[int], None] = lambda done: None) -> dict[str, Any]:
    """Probe every entry inside problems of one size; list what is wrong, and the smallest margins."""
    check_probes(trained, [nodes])
    result: dict[str, Any] = {"nodes": nodes, "patterns": {}, "wrong": []}
    for index, probe in enumerate(patterns(trained.run.task)):
        margins = np.empty(len(probe.values), np.float32)
        for entries, found, said in _probe(trained, nodes, probe, index):
            margins[entries] = found
            wrong = ~(found > 0)  # a margin that is no number is no margin
            for entry, value in zip(entries[wrong], said[wrong], strict=True):
                operands, word = probe.values[entry].tolist(), trained.vocabulary.symbols("value")[value]
                result["wrong"].append({"pattern": probe.name, "operands": operands, "said": word})
            advance(len(entries))
        result["patterns"][probe.name] = {
            "entries": len(margins),
            "wrong": int((~(margins > 0)).sum()),
            "smallest_margin": float(margins.min()),
            "median_margin": float(np.median(margins)),
        }
    result["entries"] = sum(pattern["entries"] for pattern in result["patterns"].values())
    result["lookup"] = lookup_margins(trained, nodes)
    return result


def _probe(trained: LatentLoop, nodes: int, probe: Probe, index: int) -> Iterator[tuple[ndarray, ndarray, ndarray]]:
    """Yield the entries probed, the margin of the right value over all others, and the value said, group by group."""
    rng = generator(PUBLISHED_SEED, TEST, nodes, index)
    device = trained.model.norm.weight.device
    done, rows = 0, max(1, CHUNK * 32 * 32 // nodes**2)
    while done < len(probe.values):
        problems = sample(trained.run.task, GraphConfig(nodes=nodes, depth_limit=7 if nodes <= 32 else None), rows, rng)
        where = independent_equations(problems, len(probe.operations) + 1)
        entries = done + np.arange(min(len(where), len(probe.values) - done))
        where = where[: len(entries)]
        problems = _with_operations(problems, where, probe.operations)
        state = solve(problems).values
        for operand in range(len(probe.operations) + 1):
            parents = problems.parents[where[:, 0], where[:, 1], operand]
            state[where[:, 0], parents] = probe.values[entries, operand]
        given, layout = encode_state(problems, trained.vocabulary)
        given = with_values(given, layout, state, trained.vocabulary)
        _, output = update(trained.model, given.to(device), layout.to(device))
        logits = output.logits["value"].cpu()
        target = torch.from_numpy(where[:, 1].astype(np.int64))
        row = torch.from_numpy(where[:, 0].astype(np.int64))
        # Methods that read values alone do so at right-hand sides, others at every position.
        scores = logits[row, target if trained.run.method.pin_static else layout.rhs[row, target]]
        right = torch.from_numpy(true_update(problems, state)[where[:, 0], where[:, 1]].astype(np.int64))
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


def worst_lookups(trained: LatentLoop) -> dict[str, Any] | None:
    """Bound the attention of look-ups over every problem and every state; None where the first layer knows positions or more
    than values can change."""
    if trained.run.model.positions.name not in PLACELESS or not trained.run.method.pin_static:
        return None
    weights = weights_of(trained.model)
    return worst_case(trained.run.model, trained.vocabulary, weights)


@torch.inference_mode()
def lookup_margins(trained: LatentLoop, nodes: int, count: int = 16) -> dict[str, float | int]:
    """Measure how clearly a look-up finds its definition: log-odds of the right key against the best wrong one.

    For the head of the first layer that puts most of its attention there; smallest and median over all left-hand sides.
    """
    problems = sample(trained.run.task, GraphConfig(nodes=nodes), count, generator(PUBLISHED_SEED, TEST, nodes, 999))
    device = trained.model.norm.weight.device
    best: list[ndarray] = []
    masses: list[ndarray] = []
    for row in range(count):
        one = problems[row : row + 1]
        given, layout = encode_state(one, trained.vocabulary)
        given = with_values(given, layout, solve(one).values, trained.vocabulary)
        with capture(trained.model, ["pattern"]) as seen:
            update(trained.model, given.to(device), layout.to(device))
        pattern = seen[0, 0, "pattern"][0].cpu()  # [head, query, key]
        node, operand = np.nonzero(one.parents[0] != ABSENT)
        queries = layout.operand[0][node, operand]
        keys = layout.rhs[0][one.parents[0, node, operand].astype(np.int64)]
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
