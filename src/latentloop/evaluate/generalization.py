"""How far a model generalizes: the published test sets, size by size, with where every number comes from."""

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Int

from latentloop.config import FamilyName
from latentloop.errors import UserError, nearest
from latentloop.evaluate.metrics import Counts
from latentloop.evaluate.pretrained import LatentLoop
from latentloop.evaluate.think import Thought, default_cap, think
from latentloop.evaluate.trajectories import write_trajectories
from latentloop.files import write_json, writing
from latentloop.provenance import provenance
from latentloop.task.graph import EMPTY, Problems
from latentloop.task.oracle import Solution, solve
from latentloop.task.splits import PUBLISHED_SEED, published_problems
from latentloop.tokens.trajectory import read_values, same_structure
from latentloop.train.loss import Learner
from latentloop.train.validate import validate, validation_lesson

Rule = Literal["fixpoint", "depth", "paper", "fixed"]
RULES: tuple[Rule, ...] = get_args(Rule)
BEYOND = (2, 4)
"""Multiples of the iterations needed at which the state is looked at again."""
Advance = Callable[[int], None]


def evaluate_size(
    loop: LatentLoop,
    nodes: int,
    instances: int,
    *,
    halt: Rule | None = None,
    cap: int | None = None,
    iterations: int | None = None,
    family: FamilyName = "random",
    skip: int = 0,
    advance: Advance = lambda done: None,
) -> Counts:
    """Solve published problems of one size, after the first ``skip`` of them, and count what happened."""
    rule = effective_rule(loop, halt, cap, iterations)
    problems = published_problems(loop.run.task, nodes, instances, family=family, skip=skip)
    if rule == "end":
        return _count_trajectories(loop, problems, advance)
    solution = solve(problems)
    fixed = iterations or loop.run.model.iterations or 0
    if rule == "fixed":
        limits = np.full(len(problems), fixed)
        return count_thoughts(loop, problems, solution, limits, rule=rule, caps=limits, fixed=fixed, advance=advance)
    depths = solution.depths.max(1).astype(np.int64)
    limits = np.maximum(max(BEYOND) * depths, int(depths.max()) + 1)
    if loop.method.carries == "state" or cap is not None:
        caps = np.full(len(problems), cap or default_cap(nodes))
    else:  # hidden vectors never come to rest for certain: go no further than is looked at
        caps = limits
    limits = np.maximum(limits, caps)
    return count_thoughts(loop, problems, solution, limits, rule=rule, caps=caps, advance=advance)


def effective_rule(
    loop: LatentLoop, halt: Rule | None, cap: int | None, iterations: int | None
) -> Rule | Literal["end"]:
    """Find the rule that a method halts by, and refuse one that means nothing for it."""
    own = {"adaptive": "fixpoint", "autoregressive": "end"}.get(loop.method.iterations, "fixed")
    for name, number in (("cap", cap), ("iterations", iterations)):
        if number is not None and number < 1:
            raise UserError(f"{name} must be at least 1, got {number}")
    if halt is not None and halt not in RULES:
        raise UserError(f"unknown halting rule {halt!r}: {nearest(halt, RULES)}")
    if own != "fixpoint" and halt not in (None, own):
        raise UserError(f"{loop.run.method} has one way to stop, {own!r}: leave the rule {halt!r} out")
    rule: Any = halt or own
    if iterations is not None and rule != "fixed":
        raise UserError(f"a number of iterations goes with the rule 'fixed', not with {rule!r}")
    if rule == "fixed" and iterations is None and loop.run.model.iterations is None:
        raise UserError("the rule 'fixed' needs a number of iterations: give --iterations")
    return rule


def count_thoughts(
    loop: LatentLoop,
    problems: Problems,
    solution: Solution,
    limits: Int[np.ndarray, "batch"],
    *,
    rule: Rule,
    caps: Int[np.ndarray, "batch"],
    fixed: int = 0,
    start: np.ndarray | None = None,
    advance: Advance = lambda done: None,
) -> Counts:
    """Let a model think about problems, each to its limit at most, and count what happened."""
    thoughts = think(loop.model, loop.method, problems, limits, leave=False, start=start, advance=advance)
    depths = solution.depths.max(1)
    horizon = max(thought.iterations for thought in thoughts)
    counts = Counts()
    for row, thought in enumerate(thoughts):
        stop = {"depth": int(depths[row]), "paper": int(depths.max()) + 1, "fixed": fixed}
        values, levels = solution.values[row], solution.depths[row]
        count_thought(counts, thought, values, levels, rule, int(caps[row]), stop, horizon)
    return counts


def count_thought(
    counts: Counts,
    thought: Thought,
    values: np.ndarray,
    depths: np.ndarray,
    rule: Rule,
    cap: int,
    stop: dict[str, int],
    horizon: int,
) -> None:
    """Add one problem's thought to the counts, read off under the chosen rule and under all others that apply.

    ``stop`` says when the other rules stop, ``horizon`` how far the curve by iterations goes.
    """
    size = thought.states.shape[1]
    values, depths = values[:size], depths[:size]
    depth = int(depths.max())
    halted = thought.fixpoint is not None and thought.fixpoint <= cap
    circled = not halted and thought.cycle is not None and sum(thought.cycle) <= cap
    reach = thought.fixpoint if halted else sum(thought.cycle) if circled and thought.cycle is not None else cap
    ends = {"fixpoint": reach or cap} | stop
    used = ends[rule]
    final = thought.at(used)
    right = final == values
    counts.add(
        Counts(
            problems=1,
            solved=int(right.all()),
            nodes=size,
            nodes_right=int(right.sum()),
            iterations=used,
            iterations_by_depth=used / depth,
            false_halts=int(rule == "fixpoint" and halted and not right.all()),
        )
    )
    counts.by_depth.update(depths.tolist())
    counts.right_by_depth.update(depths[right].tolist())
    if rule == "fixpoint":
        counts.halts["fixpoint" if halted else "cycle" if circled else "cap"] += 1
    else:
        counts.halts["depth" if rule == "depth" else "fixed"] += 1
    if rule != "fixed":
        for name in ("fixpoint", "depth", "paper"):
            counts.solved_by_rule[name] += int((thought.at(ends[name]) == values).all())
        for times in BEYOND:
            counts.solved_by_rule[f"{times}x"] += int((thought.at(times * depth) == values).all())
    for iteration in range(horizon + 1):
        counts.solved_by_iteration[iteration] += int((thought.at(iteration) == values).all())
    states = thought.states[: used + 1]
    wrong = (states[:-1] != values) & (states[:-1] != EMPTY)
    counts.wrong_values += int(wrong.sum())
    counts.corrected_values += int((wrong & (states[1:] == values)).sum())


def _count_trajectories(loop: LatentLoop, problems: Problems, advance: Advance) -> Counts:
    """Let a chain-of-thought model write, and read what it wrote."""
    counts = Counts()
    order = np.argsort(problems.fan_in.sum(1) + problems.sizes, kind="stable")
    rows = max(1, min(64, 2**21 // (problems.width * 24 * loop.run.model.width)))
    for start in range(0, len(order), rows):
        part = problems[order[start : start + rows]]
        solution = solve(part)
        written, reference = write_trajectories(loop.model, part, loop.run.train.trajectory)
        same = same_structure(written, reference, loop.vocabulary)
        for row, size in enumerate(part.sizes):
            given = read_values(written[row], loop.vocabulary)
            values, depths = solution.values[row, :size], solution.depths[row, :size]
            found = np.array([given.get(int(name), EMPTY) for name in part.names[row, :size]])
            right = found == values
            ended = bool((written[row] == loop.vocabulary.end).any())
            length = int((written[row] != loop.vocabulary.pad).sum())
            counts.add(
                Counts(
                    problems=1,
                    solved=int(right.all()),
                    nodes=int(size),
                    nodes_right=int(right.sum()),
                    iterations=length,
                    iterations_by_depth=length / int(depths.max()),
                    structure_right=int(same[row]),
                )
            )
            counts.by_depth.update(depths.tolist())
            counts.right_by_depth.update(depths[right].tolist())
            counts.halts["end" if ended else "cap"] += 1
        advance(len(part))
    return counts


def validation_figures(loop: LatentLoop) -> dict[str, float]:
    """Give the loss on validation problems, which is what choices are made by, inference's own among them."""
    learner = Learner(loop.model, loop.method, loop.run.train)
    return validate(learner, validation_lesson(loop.run), loop.model.norm.weight.device)


def evaluate_sizes(
    loop: LatentLoop,
    sizes: Sequence[int],
    instances: int,
    *,
    halt: Rule | None = None,
    cap: int | None = None,
    iterations: int | None = None,
    family: FamilyName = "random",
    skip: int = 0,
    advance: Advance = lambda done: None,
) -> dict[str, Any]:
    """Evaluate size by size: a document with a row and curves for each, and everything needed to get them again."""
    settings: dict[str, Any] = {"halt": halt, "cap": cap, "iterations": iterations, "family": family, "skip": skip}
    rule = effective_rule(loop, halt, cap, iterations)
    if not sizes:
        raise UserError("an evaluation needs sizes such as 8, 16 and 32, got none")
    rows, curves = [], {}
    for nodes in sizes:
        counts = evaluate_size(loop, nodes, instances, **settings, advance=advance)
        structure = {} if loop.method.latent else {"structure_right": counts.structure_right / counts.problems}
        rows.append({"nodes": nodes} | counts.figures() | structure)
        curves[nodes] = counts.curves()
    return {
        "rows": rows,
        "curves": curves,
        "validation": validation_figures(loop),
        "average": float(np.mean([row["solved"] for row in rows])),
        "model": loop.describe(),
        "settings": settings | {"halt": rule, "sizes": list(sizes), "instances": instances, "seed": PUBLISHED_SEED},
        "approximate_fixpoint": loop.method.carries == "hidden" and rule == "fixpoint",
        "provenance": provenance(),
    }


def evaluation_paths(path: Path) -> tuple[Path, Path]:
    """Give the names of the two files of an evaluation, from a name with or without a suffix."""
    stem = path.name.removesuffix(".json").removesuffix(".csv")
    return path.with_name(f"{stem}.json"), path.with_name(f"{stem}.csv")


def write_evaluation(document: dict[str, Any], path: Path) -> None:
    """Write the document as JSON, and its rows as CSV beside it."""
    as_json, as_csv = evaluation_paths(path)
    write_json(as_json, document)
    text = io.StringIO()
    rows = [{"model": document["model"]["sha256"][:12]} | row for row in document["rows"]]
    table = csv.DictWriter(text, list(dict.fromkeys(key for row in rows for key in row)))
    table.writeheader()
    table.writerows(rows)
    with writing(as_csv) as file:
        file.write(text.getvalue())
